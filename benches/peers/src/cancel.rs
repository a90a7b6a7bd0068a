//! 10,000 waiters, half of which are cancelled in random order.

use crate::Failure;
use crate::job::{Job, Outcome, Plan};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::rounds::quantile;
use futures::stream::{FuturesUnordered, StreamExt};
use std::task::{Context, Waker};
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

const WAITERS: usize = 10_000;
const RATE: u32 = 10_000;

pub fn run(plan: &Plan) -> Result<(), Failure> {
    plan.run("cancel, 10,000 waiters, half dropped in random order", |peer| Job::Cancel { peer })
}

/// The number of queues in each process: cancelling half of one takes less than a millisecond.
const QUEUES: usize = 20;

struct HalfLeave<'a> {
    runtime: &'a Runtime,
    start: Instant,
    /// Whether the remaining waiters are awaited.
    to_the_end: bool,
}

pub fn measure(peer: Peer) -> Outcome {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let half_leave = |to_the_end| {
        let scenario = HalfLeave { runtime: &runtime, start: Instant::now(), to_the_end };
        present(peer, RATE, WAITERS as u32, scenario)
    };
    let drops = (0..QUEUES).map(|_| half_leave(false)[0].1).collect();
    let mut outcome = half_leave(true);
    outcome[0].1 = quantile(drops, 0.5);
    if peer == Peer::Tollgate {
        outcome.push(("tokens lost", tokens_lost(&runtime)));
    }
    outcome
}

impl Scenario for HalfLeave<'_> {
    type Outcome = Outcome;

    fn run<W: Waits>(self, limiter: W) -> Outcome {
        let mut cx = Context::from_waker(Waker::noop());
        let mut queue: Vec<_> = (0..WAITERS).map(|_| Box::pin(limiter.acquire(1))).collect();
        // A task that is served while others still arrive leaves at once; there are few.
        queue.retain_mut(|waiter| waiter.as_mut().poll(&mut cx).is_pending());
        fastrand::Rng::with_seed(7).shuffle(&mut queue);
        let leaving = queue.split_off(queue.len() / 2);
        let (count, begin) = (leaving.len(), Instant::now());
        for waiter in leaving {
            drop(waiter);
        }
        let each = begin.elapsed().as_nanos() as f64 / count as f64;
        let each = ("ns per drop", each);
        if !self.to_the_end {
            return vec![each];
        }
        self.runtime.block_on(async { queue.into_iter().collect::<FuturesUnordered<_>>().count().await });
        // All that were served, without the cancelled ones.
        let ideal = (WAITERS - count) as f64 / f64::from(RATE);
        vec![each, ("rest finished / ideal", self.start.elapsed().as_secs_f64() / ideal)]
    }
}

/// The tokens that the schedule minted, less those granted and those left, when half of a queue is cancelled.
fn tokens_lost(runtime: &Runtime) -> f64 {
    let limiter = Limiter::new(Quota::per_second(RATE.into()).burst(1_000_000).initial(0)).expect("valid");
    let started = Instant::now();
    let mut cx = Context::from_waker(Waker::noop());
    let mut queue: Vec<_> = (0..WAITERS).map(|_| Box::pin(limiter.consume(1))).collect();
    queue.retain_mut(|waiter| waiter.as_mut().poll(&mut cx).is_pending());
    fastrand::Rng::with_seed(11).shuffle(&mut queue);
    queue.truncate(queue.len() / 2);
    runtime.block_on(async { queue.into_iter().collect::<FuturesUnordered<_>>().count().await });
    // The limiter was started before the stopwatch, and is read after it.
    let minted = started.elapsed().as_nanos() as u64 * u64::from(RATE) / 1_000_000_000;
    let snapshot = limiter.snapshot();
    let kept = snapshot.granted - snapshot.refunded + limiter.available();
    minted.saturating_sub(kept) as f64
}
