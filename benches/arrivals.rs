//! What does one call cost, depending on the number of waiters? Each measured number is a line: case, kind of quota or
//! call, measure, and nanoseconds per call, separated by tabs.
//!
//! * `arrivals`: the mean of 500 arrivals with a deadline at the end of a queue of this length, by kind of quota. The
//!   futures have been made before; their first polls are measured.
//! * `storm`: the same, with a waiter cancelled from the middle before each arrival.
//! * `once`: one call at a queue of 100,000 that has not computed an estimate before.
//! * `stalled`: one call by another caller than the driver, while 100,000 waiters are due.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tollgate::{Clock, ConsumeError, Grant, Limiter, Quota};

const DAY: Duration = Duration::from_secs(86_400);
const MANY: usize = 100_000;
const ARRIVALS: usize = 500;
const KINDS: [&str; 6] = ["one quota", "two quotas", "stepped", "two, one stepped", "one, paused", "two, capped"];

/// A clock that the benchmark moves. It is not a `ManualClock`: the limiter expects that drivers serve its queue.
#[derive(Clone, Debug, Default)]
struct Wall(Arc<AtomicU64>);

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(SeqCst))
    }
}

fn limiter(kind: &str, wall: &Wall) -> Limiter {
    let fast = Quota::per_second(100_000).burst(20);
    let slow = Quota::new(3_000_000, Duration::from_secs(60)).burst(1_000);
    let step = Quota::new(100, Duration::from_millis(1)).stepped();
    let builder = Limiter::builder().clock(wall.clone());
    let limiter = match kind {
        "two quotas" => builder.quota(fast).quota(slow),
        "two, capped" => builder.quota(fast).quota(slow).max_in_flight(1_000_000),
        "stepped" => builder.quota(step),
        "two, one stepped" => builder.quota(fast).quota(step),
        _ => builder.quota(fast),
    };
    let limiter = limiter.build().expect("valid");
    if kind == "one, paused" {
        limiter.pause_for(DAY / 2);
    }
    limiter
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Grant<'a>, ConsumeError>> + 'a>>;

fn wait<'a>(claim: impl Future<Output = Result<Grant<'a>, ConsumeError>> + 'a) -> Waiting<'a> {
    let mut claim: Waiting<'a> = Box::pin(claim);
    arrive(&mut claim);
    claim
}

fn arrive(claim: &mut Waiting<'_>) {
    let _ = claim.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

fn queue(limiter: &Limiter, length: usize) -> Vec<Waiting<'_>> {
    (0..length).map(|_| wait(limiter.consume(1))).collect()
}

/// The nanoseconds of `call` on the result of `set_up`: the median of seven.
fn median<T>(set_up: impl Fn() -> T, call: impl Fn(&mut T)) -> u128 {
    let mut times = [0; 7].map(|_| {
        let mut made = set_up();
        let start = Instant::now();
        call(&mut made);
        start.elapsed().as_nanos()
    });
    times.sort_unstable();
    times[3]
}

/// Leaked, so that its waiters can be stored beside it.
fn leaked(kind: &str, wall: &Wall) -> &'static Limiter {
    Box::leak(Box::new(limiter(kind, wall)))
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    for kind in KINDS {
        for length in [1_000, 10_000, 100_000] {
            let set_up = || {
                let limiter = leaked(kind, &Wall::default());
                let waiting = queue(limiter, length);
                let newcomers = (0..ARRIVALS).map(|_| Box::pin(limiter.consume(1).within(DAY)) as Waiting<'static>);
                let newcomers: Vec<_> = newcomers.collect();
                let _ = limiter.estimate(1);
                (waiting, newcomers)
            };
            let each = |(_, newcomers): &mut (Vec<_>, Vec<_>)| newcomers.iter_mut().for_each(arrive);
            println!("arrivals\t{kind}\t{length} waiters, ns\t{}", median(set_up, each) / ARRIVALS as u128);
            let storm = |(waiting, newcomers): &mut (Vec<_>, Vec<_>)| {
                for (index, newcomer) in newcomers.iter_mut().enumerate() {
                    drop(waiting.swap_remove(length / 2 - index % 100));
                    arrive(newcomer);
                }
            };
            println!("storm\t{kind}\t{length} waiters, ns\t{}", median(set_up, storm) / ARRIVALS as u128);
        }
        for call in ["within", "estimate", "try_acquire"] {
            let set_up = || {
                let limiter = leaked(kind, &Wall::default());
                (limiter, queue(limiter, MANY), None)
            };
            let once = |(limiter, _, kept): &mut (&'static Limiter, _, Option<Waiting<'static>>)| match call {
                "within" => *kept = Some(wait(limiter.consume(1).within(DAY))),
                "estimate" => assert!(limiter.estimate(1).is_some()),
                _ => assert!(limiter.try_acquire(1).is_err()),
            };
            println!("once\t{kind}\t{call}, ns\t{}", median(set_up, once));
        }
    }
    let calls =
        ["snapshot", "available", "estimate", "try_acquire", "replenish", "close", "settle", "consume", "set_quota"];
    for call in calls {
        let set_up = || {
            let wall = Wall::default();
            let limiter = leaked("one quota", &wall);
            let grant = limiter.try_acquire(2).expect("the bucket is full");
            let waiting = queue(limiter, MANY);
            wall.0.fetch_add(4_000_000_000, SeqCst);
            (limiter, waiting, grant, None)
        };
        let stalled =
            |(limiter, _, grant, kept): &mut (&'static Limiter, _, Grant<'_>, Option<Waiting<'static>>)| match call {
                "snapshot" => _ = limiter.snapshot(),
                "available" => _ = limiter.available(),
                "estimate" => _ = limiter.estimate(1),
                "try_acquire" => _ = limiter.try_acquire(1),
                "replenish" => limiter.replenish(1),
                "close" => limiter.close(),
                "settle" => grant.settle(1),
                "consume" => *kept = Some(wait(limiter.consume(1).within(DAY))),
                _ => limiter.set_quota(0, Quota::per_second(7)).expect("valid"),
            };
        println!("stalled\t{call}\tns\t{}", median(set_up, stalled));
    }
    let set_up = || {
        let quota = Quota::manual(MANY as u64).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(Wall::default()).build().expect("valid");
        let limiter: &'static Limiter = Box::leak(Box::new(limiter));
        (limiter, queue(limiter, MANY))
    };
    println!("stalled\treplenish, manual quota\tns\t{}", median(set_up, |(limiter, _)| limiter.replenish(MANY as u64)));
}
