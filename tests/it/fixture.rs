//! Shared helpers: a limiter with a manual clock and claims that are polled by hand, a time limit for tests that may
//! hang, and wakers.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::mpsc::{self, RecvTimeoutError};

use tokio::runtime::{self, Runtime};

// What many tests name.
pub use std::cell::Cell;
pub use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
pub use std::fmt::Debug;
pub use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
pub use std::pin::Pin;
pub use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use std::sync::{Arc, Barrier, Mutex};
pub use std::task::{Context, Poll, Wake, Waker};
pub use std::thread;
pub use std::time::Duration;

pub use fastrand::Rng;
pub use futures::FutureExt;
pub use futures::future::try_join_all;
pub use proptest::prelude::*;
pub use tokio::task::JoinSet;
pub use tokio::time::{Instant, sleep, sleep_until, timeout};
pub use tokio_test::task::{self, Spawn, spawn};
pub use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};
pub use tollgate::distributed::{MemoryStore, Outage};
pub use tollgate::{
    Adaptive, AnyLimiter, Bound, Bucket, Builder, Class, Clock, ConfigError, Consume, ConsumeError, ConsumeOwned,
    Denied, Grant, Join, JoinError, Limiter, ManualClock, Quota, QuotaError, Quotas, Share, Snapshot, TryAcquireError,
    join, reserve, try_join,
};
pub use tollgate::{KeyedBuilder, KeyedLimiter};

pub const DAY: Duration = Duration::from_secs(86_400);
pub const HOUR: Duration = Duration::from_secs(3_600);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MILLI: Duration = Duration::from_millis(1);
pub const NANO: Duration = Duration::from_nanos(1);

pub type Waiting<'a> = Spawn<Consume<'a>>;

/// A token each millisecond into an empty bucket.
pub fn one_per_milli(burst: u64) -> Quota {
    Quota::new(1, MILLI).burst(burst).initial(0)
}

/// The refusal of a claim that would wait too long for quota 0, which has no name.
pub fn too_late(estimate: Duration, allowed: Duration) -> ConsumeError {
    ConsumeError::TooLate { estimate, allowed, by: Bound::Quota(0), quota_name: None }
}

/// The refusal of a claim that is larger than the most that this bound allows, which has no name.
pub fn too_large(cost: u64, most: u64, by: impl Into<Option<Bound>>) -> ConsumeError {
    ConsumeError::TooLarge { cost, most, by: by.into(), quota_name: None }
}

/// A limiter and its clock.
pub struct Fixture {
    pub limiter: Limiter,
    pub clock: ManualClock,
}

/// A limiter on a manual clock.
pub fn built(builder: Builder) -> (Limiter, ManualClock) {
    let Fixture { limiter, clock } = Fixture::built(builder);
    (limiter, clock)
}

impl Fixture {
    pub fn new(quota: Quota) -> Self {
        Self::built(Limiter::builder().quota(quota))
    }

    pub fn built(builder: Builder) -> Self {
        let clock = ManualClock::new();
        Self { limiter: builder.clock(clock.clone()).build().unwrap(), clock }
    }

    /// A claim at the end of the queue.
    #[track_caller]
    pub fn enter(&self, cost: u64) -> Waiting<'_> {
        let mut waiting = spawn(self.limiter.consume(cost));
        assert_pending!(waiting.poll(), "a claim of {cost} should have to wait");
        waiting
    }

    /// A claim that does not have to wait.
    #[track_caller]
    pub fn take(&self, cost: u64) -> Grant<'_> {
        assert_ready_ok!(spawn(self.limiter.consume(cost)).poll())
    }

    pub fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.limiter.tick();
    }

    #[track_caller]
    pub fn denied(&self, cost: u64) -> Denied {
        denied(self.limiter.try_acquire(cost))
    }
}

/// The denial that a call got.
#[track_caller]
pub fn denied(answer: Result<impl Sized, TryAcquireError>) -> Denied {
    match answer.map(drop) {
        Err(TryAcquireError::Denied(denied)) => denied,
        other => panic!("{other:?}"),
    }
}

/// What a manual clock's owner tells of the time: a limiter, or that of many keys.
pub trait Tick {
    fn tick(&self);
}

impl Tick for Limiter {
    fn tick(&self) {
        self.tick();
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Tick for KeyedLimiter<K, S> {
    fn tick(&self) {
        self.tick();
    }
}

/// The clock goes on by `time`, and the limiter serves what it may.
pub fn tick_after(clock: &ManualClock, limiter: &impl Tick, time: Duration) {
    clock.advance(time);
    limiter.tick();
}

/// A store whose messages take this long, each way.
pub fn store_at(latency: Duration) -> MemoryStore {
    let store = MemoryStore::new();
    store.set_latency(latency);
    store
}

/// A future that has to wait when it is first polled.
#[track_caller]
pub fn pending<F: Future>(future: F) -> Spawn<F> {
    let mut waiting = spawn(future);
    assert!(waiting.poll().is_pending(), "the claim should have to wait");
    waiting
}

/// The claim was woken, and its poll returns the grant.
#[track_caller]
pub fn served<'a>(waiting: &mut Waiting<'a>) -> Grant<'a> {
    assert!(waiting.is_woken(), "the claim was not woken");
    assert_ready_ok!(waiting.poll())
}

/// The claim was not woken, and a poll returns nothing.
#[track_caller]
pub fn waits(waiting: &mut Waiting<'_>) {
    assert!(!waiting.is_woken(), "the claim was woken without a grant");
    assert_pending!(waiting.poll());
}

/// How many of these were woken.
pub fn woken<F>(claims: &[Spawn<F>]) -> usize {
    claims.iter().filter(|claim| claim.is_woken()).count()
}

/// A limiter that grants nothing before its quota is changed, however slow the machine is.
pub fn never() -> Limiter {
    Limiter::new(Quota::manual(1).initial(0)).unwrap()
}

/// A runtime with this many worker threads.
pub fn workers(count: usize) -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

/// A runtime of the current thread.
pub fn alone() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns when `count` claims wait. They arrive by themselves; this only waits for them.
pub fn await_waiters(limiter: &Limiter, count: u64) {
    while limiter.snapshot().waiting_tasks != count {
        thread::yield_now();
    }
}

/// How many tasks the current runtime has.
pub fn tasks() -> usize {
    runtime::Handle::current().metrics().num_alive_tasks()
}

/// A clock that calls `read` at each reading.
#[derive(Clone)]
pub struct ClockFn {
    read: Arc<dyn Fn() -> Duration + Send + Sync>,
    is_manual: bool,
}

impl ClockFn {
    /// A clock that the limiter takes for one that is moved by hand.
    pub fn manual(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), is_manual: true }
    }

    /// A clock that the limiter takes for one that moves by itself.
    pub fn moving(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), is_manual: false }
    }
}

impl fmt::Debug for ClockFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockFn")
    }
}

impl Clock for ClockFn {
    fn now(&self) -> Duration {
        (self.read)()
    }

    fn is_manual(&self) -> bool {
        self.is_manual
    }
}

/// Nanoseconds that a test sets, and a clock of `new` that shows them.
pub fn shown(new: impl Fn(Box<dyn Fn() -> Duration + Send + Sync>) -> ClockFn) -> (Arc<AtomicU64>, ClockFn) {
    let nanos = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&nanos);
    (nanos, new(Box::new(move || Duration::from_nanos(read.load(SeqCst)))))
}

/// Runs `test` on a thread of its own, so that a test that hangs fails instead of stopping the run.
pub fn to_its_end(test: impl FnOnce() + Send + 'static) {
    let (running, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _running = running;
        test();
    });
    // This only stops a test that hangs. A machine may be busy with much else, and Miri is a thousand times slower.
    let longest = Duration::from_secs(3_600);
    match ended.recv_timeout(longest) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

struct Calling<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calling<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that calls `act`.
pub fn waker(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calling(act)))
}
