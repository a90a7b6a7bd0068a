//! What does a refusal cost, with all its details?

use divan::{Bencher, black_box};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{Builder, Limiter, Quota};

fn main() {
    divan::main();
}

fn empty() -> Builder {
    Limiter::builder().quota(Quota::per_day(1).initial(0))
}

#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire(bencher: Bencher) {
    let limiter = empty().build().expect("valid");
    bencher.bench(|| limiter.try_acquire(black_box(1)).is_err());
}

#[cfg(feature = "quanta")]
#[divan::bench(threads = [1, 2], sample_count = 200, sample_size = 2_000)]
fn try_acquire_by_the_quanta_clock(bencher: Bencher) {
    let limiter = empty().clock(tollgate::QuantaClock::new()).build().expect("valid");
    bencher.bench(|| limiter.try_acquire(black_box(1)).is_err());
}

/// While other claims wait.
#[divan::bench(sample_count = 200, sample_size = 2_000)]
fn try_acquire_behind_a_queue(bencher: Bencher) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let limiter = empty().build().expect("valid");
    let mut waiting = pin!(limiter.consume(1));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    bencher.bench_local(|| limiter.try_acquire(black_box(1)).is_err());
}

/// Refused before waiting.
#[divan::bench(sample_count = 200, sample_size = 2_000)]
fn consume_within_a_millisecond(bencher: Bencher) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let limiter = empty().build().expect("valid");
    bencher.bench_local(|| {
        let refused = pin!(limiter.consume(black_box(1)).within(Duration::from_millis(1)));
        assert!(refused.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    });
}
