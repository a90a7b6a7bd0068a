//! What does a grant from a lease cost, compared with the same limiter with a quota of its own?
//!
//! ```text
//! cargo bench --features distributed --bench warm
//! ```
//!
//! Both are called in turns of a few thousand calls each, in one process, and the ratio of the medians is printed. The
//! store is in memory: as long as there is a lease no call reaches the store, so its kind does not matter, and the
//! refill task runs on another thread here, as it does with Redis. Calls that found the lease empty are counted, and
//! the turns in which that happened are left out: those measure the network.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tollgate::distributed::MemoryStore;
use tollgate::{Builder, Limiter, Quota};

const CALLS: u32 = 5_000;
const TURNS: usize = 2_000;
/// The time after which the store knows the rate of the calls, and leases as many tokens as they use.
const WARM_UP: Duration = Duration::from_secs(1);

fn main() {
    // A worker for the refill tasks; this thread makes the calls.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    println!("{:<34} {:>10} {:>10} {:>7} {:>14}", "", "own, ns", "leased, ns", "ratio", "calls refused");
    compare("try_acquire", |builder| builder, |limiter| limiter.try_acquire(black_box(1)).is_ok());
    compare(
        "try_acquire, exact on every call",
        |builder| builder.stride(0),
        |limiter| limiter.try_acquire(black_box(1)).is_ok(),
    );
    compare(
        "consume, granted at once",
        |builder| builder,
        |limiter| {
            let claim = pin!(limiter.consume(black_box(1)));
            matches!(claim.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
        },
    );
}

fn compare(name: &str, with: impl Fn(Builder) -> Builder, call: impl Fn(&Limiter) -> bool) {
    let quota = Quota::per_second(1_000_000_000).burst(1_000_000_000);
    let own = with(Limiter::builder().quota(quota)).build().expect("valid");
    let leased = with(Limiter::builder().quota(quota).distributed(MemoryStore::new())).build().expect("valid");
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        _ = turn(&own, &call);
        _ = turn(&leased, &call);
    }
    let (mut owns, mut leases, mut refused) = (Vec::new(), Vec::new(), 0);
    for number in 0..TURNS {
        // The order alternates.
        let (one, other) = if number % 2 == 0 { (&own, &leased) } else { (&leased, &own) };
        let (first, second) = (turn(one, &call), turn(other, &call));
        let (of_own, of_leased) = if number % 2 == 0 { (first, second) } else { (second, first) };
        refused += of_own.1 + of_leased.1;
        if of_own.1 + of_leased.1 == 0 {
            owns.push(of_own.0);
            leases.push(of_leased.0);
        }
    }
    let (own, leased) = (median(&mut owns), median(&mut leases));
    println!("{name:<34} {own:>10.2} {leased:>10.2} {:>7.3} {refused:>14}", leased / own);
}

/// Nanoseconds per call, and the number of refused calls.
fn turn(limiter: &Limiter, call: impl Fn(&Limiter) -> bool) -> (f64, u32) {
    let began = Instant::now();
    let granted = (0..CALLS).filter(|_| call(limiter)).count() as u32;
    (began.elapsed().as_nanos() as f64 / f64::from(CALLS), CALLS - granted)
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
