//! What does a grant without waiting cost, on one thread and on several?
//!
//! `cargo bench --bench grant`. The harness of these files is divan: one attribute per question, threads as a
//! parameter, no plots and statistics to build. Samples have 2,000 calls, so that the first ones, which take the slow
//! path, weigh little.

use divan::{Bencher, black_box};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tollgate::{Builder, Limiter, Quota};

fn main() {
    divan::main();
}

/// So large that no call is refused.
fn ample() -> Builder {
    Limiter::builder().quota(Quota::per_second(1_000_000_000).burst(1_000_000))
}

#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire(bencher: Bencher) {
    let limiter = ample().build().expect("valid");
    bencher.bench(|| limiter.try_acquire(black_box(1)).is_ok());
}

#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire_exact_on_every_call(bencher: Bencher) {
    let limiter = ample().stride(0).build().expect("valid");
    bencher.bench(|| limiter.try_acquire(black_box(1)).is_ok());
}

#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire_capped_and_released(bencher: Bencher) {
    let limiter = ample().max_in_flight(1_000_000).build().expect("valid");
    bencher.bench(|| drop(limiter.try_acquire(black_box(1))));
}

#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn consume(bencher: Bencher) {
    let limiter = ample().build().expect("valid");
    bencher.bench(|| {
        let poll = pin!(limiter.consume(black_box(1))).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Ready(Ok(_))));
    });
}

/// Two quotas cost one claim.
#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire_of_two_quotas(bencher: Bencher) {
    let limiter = ample().quota(Quota::per_minute(60_000_000_000).burst(2_000_000)).build().expect("valid");
    bencher.bench(|| limiter.try_acquire(black_box(1)).is_ok());
}
