//! Waiting on a thread without a runtime: the thread drives the queue itself while it waits.

use crate::claim::Claim;
use crate::core::claim_scope::ClaimScope;
use crate::core::drivers::Kind;
use crate::core::replenisher::Registration;
use crate::core::wakes::wake_handed_over;
use crate::core::{Core, Drive};
use crate::deadline::Allowed;
use crate::error::ConsumeError;
use crate::permit::Permit;
use std::ops::{ControlFlow, Deref};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often a thread that waits behind a joint claim looks at the other queues of that claim, and how often a thread
/// with a deadline reads a manual clock: ten times the lateness of a tokio timer. Nothing depends on this interval
/// where drivers serve the other queues.
const RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Wakes a thread that waits. Wakers of other tasks, which this thread calls before it parks, may park it themselves and so
/// use up its `unpark`: the flag tells of it nevertheless.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// This thread's registration as a driver of the parent limiter, if the queue has a parent.
struct ParentDriver(Option<(Arc<Core>, Registration)>);

impl ParentDriver {
    fn of(core: &Core) -> Self {
        Self(core.parent().map(|parent| {
            let kind = Kind::Thread(thread::current().id());
            (Arc::clone(&parent.limiter), Registration::new(parent, kind))
        }))
    }

    /// Drives the parent first, then `core`. Returns when the earlier of the two must be driven again, in the time of
    /// `core`.
    fn drive_first(&self, core: &Core, id: u64, waker: &Waker) -> Drive {
        if let Some((parent, driver)) = &self.0 {
            let first = parent.drive(driver.id, waker);
            let then = core.drive(id, waker);
            let (Drive::Until { alarm: first, source_task_is_gone, .. }, Drive::Until { alarm, several_wait, .. }) =
                (first, then)
            else {
                return Drive::Yield;
            };
            let wait = first.saturating_sub(parent.time.now());
            let first = if first == u64::MAX { u64::MAX } else { core.time.now().saturating_add(wait) };
            return Drive::Until { alarm: alarm.min(first), several_wait, source_task_is_gone };
        }
        core.drive(id, waker)
    }
}

/// Takes `cost` tokens, after a wait of at most `allowed`. Calls `on_wait` when the claim has entered the queue.
pub(crate) fn consume<P>(
    scope: P,
    cost: u64,
    allowed: Allowed,
    on_wait: impl FnOnce(),
) -> Result<Permit<P>, ConsumeError>
where
    P: Deref<Target: ClaimScope> + Clone,
{
    if let Some(word) = scope.claim_fast(cost) {
        return Ok(Permit::new(scope, cost, word));
    }
    let limiter = scope.clone();
    let core = limiter.core();
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let driver = Registration::new(core, Kind::Thread(thread::current().id()));
    let parent = ParentDriver::of(core);
    let mut claim = pin!(Claim::with_limit(scope, cost, allowed));
    let mut on_wait = Some(on_wait);
    loop {
        let deadline = match claim.as_mut().poll_on_thread(&waker) {
            ControlFlow::Break(answer) => return answer,
            ControlFlow::Continue(deadline) => deadline,
        };
        if let Some(on_wait) = on_wait.take() {
            on_wait();
        }
        // A wake-up between this line and the park is not lost: `woken` tells of it, or the park returns at once.
        let Drive::Until { alarm, source_task_is_gone, .. } = parent.drive_first(core, driver.id, &waker) else {
            thread::yield_now();
            continue;
        };
        // The task of the source may have ended before this thread had registered to be woken then. Outside of all runtimes
        // the next poll fails.
        if source_task_is_gone && !core.time.is_manual() && !core.replace_sources() {
            continue;
        }
        let is_tied = core.tick_tied();
        let until = |at: u64| core.time.sleep_until(at);
        let wait = if core.time.is_manual() {
            // The code that moves the clock serves the queue, but does not know of deadlines.
            deadline.map(|_| RECHECK_INTERVAL)
        } else if is_tied {
            // The runtimes of the other queues may not be driven, and this thread drives only its own queue.
            Some(deadline.map_or(RECHECK_INTERVAL, |deadline| until(deadline).min(RECHECK_INTERVAL)))
        } else {
            Some(alarm.min(deadline.unwrap_or(u64::MAX))).filter(|at| *at < u64::MAX).map(until)
        };
        // In a waker of another task, this thread has its own waker still to call. After any waker, `wait` may be over.
        if wake_handed_over() || unpark.woken.swap(false, Ordering::Acquire) {
            continue;
        }
        wait.map_or_else(thread::park, thread::park_timeout);
    }
}
