//! 10,000 in line, half of whom give up in random order.

use crate::child::{Job, Outcome, have_done};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::results::Results;
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
            have_done(results, CASE, peer.name(), &Job::Cancel { peer }, plan.limit())?;
        }
    }
    Ok(())
}

struct HalfLeave<'a> {
    runtime: &'a Runtime,
    start: Instant,
}

pub fn measure(peer: Peer) -> Outcome {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    // One round of it to warm up the heap, whose first touch of each page would be charged to the first drops.
    present(peer, RATE, WAITERS as u32, HalfLeave { runtime: &runtime, start: Instant::now() });
    let mut outcome = present(peer, RATE, WAITERS as u32, HalfLeave { runtime: &runtime, start: Instant::now() });
    if peer == Peer::Tollgate {
        outcome.insert("tokens lost".into(), vec![tokens_lost(&runtime)]);
    }
    outcome
}

impl Scenario for HalfLeave<'_> {
    type Outcome = Outcome;

    fn run<W: Waits>(self, limiter: W) -> Outcome {
        let mut cx = Context::from_waker(Waker::noop());
        let mut line: Vec<_> = (0..WAITERS).map(|_| Box::pin(limiter.acquire(1))).collect();
        // Who is served while the others still arrive leaves at once; few are.
        line.retain_mut(|waiter| waiter.as_mut().poll(&mut cx).is_pending());
        fastrand::Rng::with_seed(7).shuffle(&mut line);
        let leaving = line.split_off(line.len() / 2);
        let (count, begin) = (leaving.len(), Instant::now());
        for waiter in leaving {
            drop(waiter);
        }
        let each = begin.elapsed().as_nanos() as f64 / count as f64;
        let stayed = line.len();
        self.runtime.block_on(async { line.into_iter().collect::<FuturesUnordered<_>>().count().await });
        // All that were served, those who left aside.
        let ideal = (WAITERS - count) as f64 / f64::from(RATE);
        Outcome::from([
            ("ns per drop".into(), vec![each]),
            ("rest finished / ideal".into(), vec![self.start.elapsed().as_secs_f64() / ideal]),
            ("stayed".into(), vec![stayed as f64]),
        ])
    }
}

/// What the schedule minted, less what was granted and what is left, when half of a line has left.
fn tokens_lost(runtime: &Runtime) -> f64 {
    let limiter = Limiter::new(Quota::per_second(RATE.into()).burst(1_000_000).initial(0)).expect("valid");
    let started = Instant::now();
    let mut cx = Context::from_waker(Waker::noop());
    let mut line: Vec<_> = (0..WAITERS).map(|_| Box::pin(limiter.consume(1))).collect();
    line.retain_mut(|waiter| waiter.as_mut().poll(&mut cx).is_pending());
    fastrand::Rng::with_seed(11).shuffle(&mut line);
    line.truncate(line.len() / 2);
    runtime.block_on(async { line.into_iter().collect::<FuturesUnordered<_>>().count().await });
    let snapshot = limiter.snapshot();
    let minted = started.elapsed().as_nanos() as f64 * f64::from(RATE) / 1e9;
    let kept = snapshot.granted - snapshot.refunded + limiter.available();
    // The limiter began a little before the stopwatch, and was looked at a little before it: less than a token.
    (minted - kept as f64).round()
}
