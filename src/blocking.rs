//! Waiting on a thread without a runtime: the thread drives the line itself while it waits.

use crate::consume::Claim;
use crate::drivers::Kind;
use crate::error::ConsumeError;
use crate::grant::Permit;
use crate::replenisher::Registration;
use crate::shared::{Drive, Shared};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often a thread that blocks behind a joint claim looks at the claim's other lines: ten times the lateness of a tokio
/// timer. Nothing hangs by it where the other lines are driven.
const LOOK_AROUND: Duration = Duration::from_millis(10);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The limiter above this line, which this thread drives too.
struct Above(#[cfg(feature = "keyed")] Option<(Arc<Shared>, Registration)>);

impl Above {
    fn of(shared: &Shared) -> Self {
        #[cfg(feature = "keyed")]
        let above = shared.above().map(|above| {
            let kind = Kind::Thread(thread::current().id());
            (Arc::clone(above), Registration::new(above, kind))
        });
        #[cfg(not(feature = "keyed"))]
        let _ = shared;
        Self(
            #[cfg(feature = "keyed")]
            above,
        )
    }

    /// Drives it, and then `shared`; says when the first of them is to be driven again, by the time of `shared`.
    fn drive_first(&self, shared: &Shared, id: u64, waker: &Waker) -> Drive {
        #[cfg(feature = "keyed")]
        if let Some((above, driver)) = &self.0 {
            let first = above.drive(driver.id, waker);
            let then = shared.drive(id, waker);
            let (Drive::Until { alarm: first, .. }, Drive::Until { alarm, crowd }) = (first, then) else {
                return Drive::Yield;
            };
            let wait = first.saturating_sub(above.time.now());
            let first = if first == u64::MAX { u64::MAX } else { shared.time.now().saturating_add(wait) };
            return Drive::Until { alarm: alarm.min(first), crowd };
        }
        shared.drive(id, waker)
    }
}

pub(crate) fn consume<S>(held: S, cost: u64) -> Result<Permit<S>, ConsumeError>
where
    S: Deref<Target = Shared> + Clone,
{
    if let Some(remaining) = held.try_claim(cost) {
        return Ok(Permit::new(held, cost, remaining));
    }
    let shared = held.clone();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let driver = Registration::new(&shared, Kind::Thread(thread::current().id()));
    let above = Above::of(&shared);
    let mut claim = pin!(Claim::new(held, cost));
    loop {
        if let Poll::Ready(answer) = claim.as_mut().poll_within(&mut Context::from_waker(&waker), None) {
            return answer;
        }
        // An unpark between here and parking is not lost: it makes the next park return at once.
        match above.drive_first(&shared, driver.id, &waker) {
            Drive::Yield => thread::yield_now(),
            // The runtimes of those lines may stand still, and this thread is a driver of its own line only.
            _ if shared.tick_tied() && !shared.time.is_manual() => thread::park_timeout(LOOK_AROUND),
            Drive::Until { alarm: u64::MAX, .. } => thread::park(),
            Drive::Until { .. } if shared.time.is_manual() => thread::park(),
            Drive::Until { alarm, .. } => {
                thread::park_timeout(Duration::from_nanos(alarm.saturating_sub(shared.time.now())));
            }
        }
    }
}
