//! Every interleaving of the races that matter: one named race per model, checked by loom.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --features keyed --test loom` runs them; with `-- --nocapture`
//! each prints its number of executions. The planted bugs that make a model fail are named above it and stored in
//! `tests/plants`; `scripts/plants` proves that they do.
//!
//! * loom 0.7.2 misses races when a model is the main thread and one other that begins with a load. So the main thread
//!   only sets up, joins and checks; every actor is spawned by [`Race::actor`], which begins it with a
//!   read-modify-write.
//! * Nearly all models are exhaustive, in 15 to some 300,000 executions. A model with a bound on preemptions gives the
//!   reason.
//! * The clock is manual, and its time is a loom atomic: a reading may be old.
//! * Wakers are not loom's: whether a claim was woken is checked after all actors have ended.
#![cfg(tollgate_loom)]

mod adaptive;
mod bucket;
mod changes;
mod classes;
mod denials;
mod drivers;
mod dry_run;
mod fast;
mod in_flight;
mod join;
mod joint;
mod joint_classes;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "keyed")]
mod keyed_classes;
mod leave;
mod passing;
mod queue;

use futures::FutureExt;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{self, Spawn};
use tollgate::{Builder, ConsumeOwned, Limiter, ManualClock, OwnedGrant, Quota};

const SECOND: Duration = Duration::from_secs(1);

/// The atomic that every actor of a model touches first.
#[derive(Default)]
struct Race(Arc<AtomicU64>);

impl Race {
    /// Spawns an actor. The order of these first steps orders nothing else: they are Relaxed.
    fn actor<T: 'static>(&self, act: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        let start = self.0.clone();
        thread::spawn(move || {
            start.fetch_add(1, Relaxed);
            act()
        })
    }

    /// Spawns an actor with a clone of what it acts on.
    fn on<C: Clone + 'static, T: 'static>(&self, target: &C, act: impl FnOnce(&C) -> T + 'static) -> JoinHandle<T> {
        let target = target.clone();
        self.actor(move || act(&target))
    }
}

/// What two actors return, after both have ended.
fn ends<T, U>(one: JoinHandle<T>, other: JoinHandle<U>) -> (T, U) {
    (one.join().unwrap(), other.join().unwrap())
}

/// Runs `model` in every interleaving.
fn explore(model: impl Fn(&Race) + Send + Sync + 'static) {
    explore_bounded(None, model);
}

/// Runs `model` in every interleaving with at most this many preemptions: switches away from a thread that could
/// continue.
fn explore_bounded(preemptions: Option<usize>, model: impl Fn(&Race) + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    // A claim of a key takes the locks of its shard, its queue and its parent: a few of them need more than the default.
    builder.max_branches = 10_000;
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model(&Race::default());
    });
    println!("{} executions", executions.load(Relaxed));
}

/// A limiter on a clock of its own that stands still.
fn build(builder: Builder) -> Limiter {
    timed(builder).0
}

/// A limiter and its clock.
fn timed(builder: Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (on_clock(&clock, builder), clock)
}

fn on_clock(clock: &ManualClock, builder: Builder) -> Limiter {
    builder.clock(clock.clone()).build().expect("the configuration is valid")
}

/// Limiters in the order of their addresses, which is that of their locks: loom replays executions, so the order must
/// not change between executions.
fn sorted<const N: usize>(build: impl Fn() -> Limiter) -> [Limiter; N] {
    let mut limiters = std::array::from_fn(|_| build());
    limiters.sort_by_key(|limiter: &Limiter| {
        const { assert!(size_of::<Limiter>() == size_of::<usize>()) };
        // SAFETY: a limiter is one pointer, as large as a `usize`, and has no padding.
        unsafe { std::mem::transmute_copy::<Limiter, usize>(limiter) }
    });
    limiters
}

/// An empty bucket that fills by `replenish` only.
fn empty(capacity: u64) -> Limiter {
    build(Limiter::builder().quota(Quota::manual(capacity).initial(0)))
}

/// A claim that waits in the queue.
fn waiting(limiter: &Limiter, cost: u64) -> Spawn<ConsumeOwned> {
    let mut waiter = task::spawn(limiter.clone().consume_owned(cost));
    assert!(waiter.poll().is_pending(), "the claim must have to wait");
    waiter
}

/// An actor with a claim that is not polled before: whether that granted it, unless it waits, and the claim. The grant is
/// kept for good.
fn enters(race: &Race, limiter: &Limiter, cost: u64) -> JoinHandle<(Poll<bool>, Spawn<ConsumeOwned>)> {
    let mut claim = task::spawn(limiter.clone().consume_owned(cost));
    race.actor(move || {
        let answered = claim.poll().map(|answer| answer.map(std::mem::forget).is_ok());
        (answered, claim)
    })
}

/// Whether a claim of [`enters`] is granted by now.
fn is_granted((answered, claim): &mut (Poll<bool>, Spawn<ConsumeOwned>)) -> bool {
    *answered == Poll::Ready(true) || is_served(claim)
}

/// A grant that was available at once.
fn taken(limiter: &Limiter, cost: u64) -> OwnedGrant {
    let claim = limiter.clone().consume_owned(cost).now_or_never();
    claim.expect("the claim must be granted at once").expect("the claim must not be refused")
}

/// Takes `cost` for good and returns whether it was granted: nothing is released.
fn try_keep(limiter: &Limiter, cost: u64) -> bool {
    limiter.try_acquire(cost).map(std::mem::forget).is_ok()
}

/// Takes tokens one by one until refused, and returns how many: at most nine, which is more than any model has.
fn drain(limiter: &Limiter) -> u64 {
    (0..9).take_while(|_| try_keep(limiter, 1)).count() as u64
}

/// Whether a waiting claim has been granted since. If so, it must have been woken for that.
fn is_served(waiter: &mut Spawn<ConsumeOwned>) -> bool {
    let woken = waiter.is_woken();
    match waiter.poll() {
        Poll::Ready(answer) => {
            assert!(woken, "called out, but not woken");
            answer.map(std::mem::forget).is_ok()
        }
        Poll::Pending => false,
    }
}
