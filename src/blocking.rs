//! Waiting on a thread without a runtime: the thread drives the queue itself while it waits.

use crate::consume::Claim;
use crate::core::drivers::Kind;
use crate::core::hold::Hold;
use crate::core::replenisher::Registration;
use crate::core::{Core, Drive};
use crate::error::ConsumeError;
use crate::grant::Permit;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often a thread that waits behind a joint claim looks at the other queues of that claim: ten times the lateness
/// of a tokio timer. Where drivers serve the other queues, nothing depends on this interval.
const LOOK_AROUND: Duration = Duration::from_millis(10);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// This thread's registration as a driver of the parent limiter, if the queue has a parent.
struct ParentDriver(Option<(Arc<Core>, Registration)>);

impl ParentDriver {
    fn of(core: &Core) -> Self {
        Self(core.parent().map(|parent| {
            let kind = Kind::Thread(thread::current().id());
            (Arc::clone(parent), Registration::new(parent, kind))
        }))
    }

    /// Drives the parent first, then `core`. Returns when the earlier of the two must be driven again, in the time of
    /// `core`.
    fn drive_first(&self, core: &Core, id: u64, waker: &Waker) -> Drive {
        if let Some((parent, driver)) = &self.0 {
            let first = parent.drive(driver.id, waker);
            let then = core.drive(id, waker);
            let (Drive::Until { alarm: first, .. }, Drive::Until { alarm, crowd }) = (first, then) else {
                return Drive::Yield;
            };
            let wait = first.saturating_sub(parent.time.now());
            let first = if first == u64::MAX { u64::MAX } else { core.time.now().saturating_add(wait) };
            return Drive::Until { alarm: alarm.min(first), crowd };
        }
        core.drive(id, waker)
    }
}

pub(crate) fn consume<S>(held: S, cost: u64) -> Result<Permit<S>, ConsumeError>
where
    S: Hold + Clone,
{
    if let Some(remaining) = held.try_claim(cost) {
        return Ok(Permit::new(held, cost, remaining));
    }
    let core = held.clone();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let driver = Registration::new(&core, Kind::Thread(thread::current().id()));
    let parent = ParentDriver::of(&core);
    let mut claim = pin!(Claim::new(held, cost));
    loop {
        if let Poll::Ready(answer) = claim.as_mut().poll_within(&mut Context::from_waker(&waker), None) {
            return answer;
        }
        // An unpark between this line and the park is not lost: it makes the next park return at once.
        match parent.drive_first(&core, driver.id, &waker) {
            Drive::Yield => thread::yield_now(),
            // The runtimes of the other queues may not be driven, and this thread drives only its own queue.
            _ if core.tick_tied() && !core.time.is_manual() => thread::park_timeout(LOOK_AROUND),
            Drive::Until { alarm: u64::MAX, .. } => thread::park(),
            Drive::Until { .. } if core.time.is_manual() => thread::park(),
            Drive::Until { alarm, .. } => {
                thread::park_timeout(Duration::from_nanos(alarm.saturating_sub(core.time.now())));
            }
        }
    }
}
