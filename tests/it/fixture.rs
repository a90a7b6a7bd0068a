//! Shared helpers: a limiter with a manual clock and claims that are polled by hand, a time limit for tests that may
//! hang, and wakers.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Wake;
use std::thread;
use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Builder, Consume, ConsumeError, Denied, Grant, Limiter, ManualClock, Quota, TryAcquireError};

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
        match self.limiter.try_acquire(cost) {
            Err(TryAcquireError::Denied(denied)) => denied,
            other => panic!("{other:?}"),
        }
    }
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

/// Panics when it is woken.
#[cfg_attr(not(feature = "keyed"), expect(dead_code, reason = "only tests of keyed limiters use it"))]
pub struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}
