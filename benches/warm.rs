//! What does a grant cost that is paid from a lease, against the same limiter with a quota of its own?
//!
//! ```text
//! cargo bench --features distributed --bench warm
//! ```
//!
//! Both are called in turns, a few thousand calls each, in one process; what is printed is the ratio of the medians. The
//! line is in memory: once a lease is there nobody looks at the line, whatever it is, and its task runs on another thread
//! here as it does beside Redis. Calls that found the lease empty are counted, and the turns in which that happened are left
//! out: that is the other price, the one of the network.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tollgate::distributed::MemoryStore;
use tollgate::{Builder, Limiter, Quota};

const CALLS: u32 = 5_000;
const TURNS: usize = 2_000;
/// Until the line has seen how fast calls come, and has leased accordingly.
const WARM_UP: Duration = Duration::from_secs(1);

fn main() {
    // A worker for the tasks that ask; this thread calls.
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
        // Who goes first changes.
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

/// Nanoseconds per call, and how many calls were refused.
fn turn(limiter: &Limiter, call: impl Fn(&Limiter) -> bool) -> (f64, u32) {
    let began = Instant::now();
    let granted = (0..CALLS).filter(|_| call(limiter)).count() as u32;
    (began.elapsed().as_nanos() as f64 / f64::from(CALLS), CALLS - granted)
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
