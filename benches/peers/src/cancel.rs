//! 10,000 waiters, half of which are cancelled in random order.

use crate::job::{Job, Outcome, run_in_child};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::results::{Results, quantile};
use crate::{Failure, Plan};
use futures::stream::{FuturesUnordered, StreamExt};
use std::task::{Context, Waker};
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

pub const CASE: &str = "cancel, 10,000 waiters, half dropped in random order";
const WAITERS: usize = 10_000;
const RATE: u32 = 10_000;

pub fn run(results: &mut Results, plan: &Plan) -> Result<(), Failure> {
    for round in 0..plan.child_rounds {
        for peer in Peer::ALL.into_iter().filter(|peer| plan.wants(CASE) && plan.invites(*peer, round)) {
            run_in_child(results, CASE, peer.name(), &Job::Cancel { peer }, plan.limit())?;
        }
    }
    Ok(())
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
    let drops: Vec<f64> =
        (0..QUEUES).flat_map(|_| half_leave(false).remove("ns per drop").unwrap_or_default()).collect();
    let mut outcome = half_leave(true);
    outcome.insert("ns per drop".into(), vec![quantile(&drops, 0.5)]);
    if peer == Peer::Tollgate {
        outcome.insert("tokens lost".into(), vec![tokens_lost(&runtime)]);
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
        let each = ("ns per drop".to_owned(), vec![each]);
        if !self.to_the_end {
            return Outcome::from([each]);
        }
        self.runtime.block_on(async { queue.into_iter().collect::<FuturesUnordered<_>>().count().await });
        // All that were served, without the cancelled ones.
        let ideal = (WAITERS - count) as f64 / f64::from(RATE);
        Outcome::from([each, ("rest finished / ideal".into(), vec![self.start.elapsed().as_secs_f64() / ideal])])
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
