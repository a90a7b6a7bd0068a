//! What does one call cost, by how many wait? Nanoseconds of this thread's CPU time per call.
//!
//! * `arrivals`: the mean of arrivals with a deadline at the end of a queue of so many, by kind of quota.
//! * `storm`: the same, with a waiter cancelled from the middle before each arrival.
//! * `once`: one call at a queue of 100,000 that was not asked for an estimate before.
//! * `stalled`: one call by another caller than the driver, while 100,000 waiters are due.

use std::fs;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{Clock, Consume, Limiter, Quota};

const DAY: Duration = Duration::from_secs(86_400);
const MANY: usize = 100_000;
const KINDS: [&str; 6] = ["one quota", "two quotas", "stepped", "two, one stepped", "one, paused", "two, capped"];

/// Moved by the bench, and taken for a real one by the limiter.
#[derive(Clone, Debug, Default)]
struct Wall(Arc<AtomicU64>);

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(SeqCst))
    }
}

/// How long this thread has run, in nanoseconds.
fn ran() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ran| ran.parse().ok()).expect("nanoseconds")
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

type Waiting<'a> = Pin<Box<Consume<'a>>>;

fn wait(claim: Consume<'_>) -> Waiting<'_> {
    let mut claim = Box::pin(claim);
    let _ = claim.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    claim
}

fn queue(limiter: &Limiter, length: usize) -> Vec<Waiting<'_>> {
    (0..length).map(|_| wait(limiter.consume(1))).collect()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let only = std::env::args().nth(1).filter(|only| !only.starts_with('-'));
    let asked = |what: &str| only.as_ref().is_none_or(|only| only == what);
    for kind in KINDS {
        for length in [1_000, 10_000, 100_000] {
            for (what, count) in [("arrivals", 1_000), ("storm", 100)] {
                if !asked(what) {
                    continue;
                }
                let wall = Wall::default();
                let limiter = limiter(kind, &wall);
                let mut line = queue(&limiter, length);
                line.reserve(count);
                let mut spent = 0;
                drop(limiter.estimate(1));
                for index in 0..count {
                    if what == "storm" {
                        drop(line.swap_remove(length / 2 + index));
                    }
                    if index == 0 || what == "storm" {
                        spent = spent.wrapping_sub(ran());
                    }
                    line.push(wait(limiter.consume(1).within(DAY)));
                    if index + 1 == count || what == "storm" {
                        spent = spent.wrapping_add(ran());
                    }
                }
                println!("{what}\t{kind}\t{length}\t{}", spent / count as u64);
            }
        }
        if asked("once") {
            for call in ["within", "estimate", "try_acquire"] {
                let wall = Wall::default();
                let limiter = limiter(kind, &wall);
                let _line = queue(&limiter, MANY);
                let before = ran();
                match call {
                    "within" => drop(wait(limiter.consume(1).within(DAY))),
                    "estimate" => assert!(limiter.estimate(1).is_some()),
                    _ => assert!(limiter.try_acquire(1).is_err()),
                }
                println!("once\t{kind}\t{call}\t{}", ran() - before);
            }
        }
    }
    if asked("stalled") {
        for call in ["snapshot", "available", "estimate", "try_acquire", "replenish", "close", "settle", "set_quota"] {
            let wall = Wall::default();
            let limiter = limiter("one quota", &wall);
            let mut grant = limiter.try_acquire(2).expect("the bucket is full");
            let _line = queue(&limiter, MANY);
            wall.0.fetch_add(4_000_000_000, SeqCst);
            let before = ran();
            match call {
                "snapshot" => drop(limiter.snapshot()),
                "available" => drop(limiter.available()),
                "estimate" => drop(limiter.estimate(1)),
                "try_acquire" => drop(limiter.try_acquire(1)),
                "replenish" => limiter.replenish(1),
                "close" => limiter.close(),
                "settle" => drop(grant.settle(1)),
                _ => limiter.set_quota(0, Quota::per_second(7)).expect("valid"),
            }
            println!("stalled\tone quota\t{call}\t{}", ran() - before);
        }
        let wall = Wall::default();
        let limiter =
            Limiter::builder().quota(Quota::manual(MANY as u64).initial(0)).clock(wall).build().expect("valid");
        let _line = queue(&limiter, MANY);
        let before = ran();
        limiter.replenish(MANY as u64);
        println!("stalled\tmanual\treplenish\t{}", ran() - before);
    }
}
