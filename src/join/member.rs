//! One limiter's part of a joint claim.

use crate::core::Core;
use crate::core::classes::ROOT;
use crate::core::limiter_ref::ScopeRef;
use crate::core::outcome::Outcome;
use crate::error::ConsumeError;
use crate::grant::Grant;
use crate::handle::Limiter;
use crate::observe::{QueueInfo, WaitRecord};
use crate::permit::Permit;
use std::task::{Poll, Waker};
use std::time::Duration;

/// One limiter's part of a joint claim.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) core: &'a Core,
    pub(super) cost: u64,
    /// How many tokens remained after the grant, once it has been granted.
    pub(super) granted: Option<u64>,
    /// The number of the joint claim while this part is in the queue, or has an outcome there.
    pub(super) number: Option<u64>,
    pub(super) queue_info: QueueInfo,
    pub(super) wait_record: WaitRecord,
}

impl<'a> Member<'a> {
    pub(super) fn new((limiter, cost): (&'a Limiter, u64)) -> Self {
        Self {
            core: limiter.core(),
            cost,
            granted: None,
            number: None,
            queue_info: QueueInfo::default(),
            wait_record: WaitRecord::default(),
        }
    }

    pub(super) fn into_grant(self) -> Grant<'a> {
        let remaining = self.granted.expect("every member was granted");
        Grant::new(Permit::new(ScopeRef(self.core), self.cost, remaining))
    }

    /// The error of a joint claim that was given up after `waited`, and that this limiter held back longest.
    pub(super) fn timed_out(&self, waited: Duration) -> ConsumeError {
        let (by, name) = self.core.leaving(|state, rovers, _| state.holder_of_new(rovers, ROOT, self.cost));
        ConsumeError::TimedOut { waited, by, quota_name: name.text() }
    }

    /// Checks whether this queue has granted or refused its part.
    pub(super) fn look(&mut self, waker: &Waker) -> Poll<Result<(), ConsumeError>> {
        let Some(number) = self.number else { return Poll::Ready(Ok(())) };
        let looked = self.core.check_part(number, waker);
        if looked.0.is_ready() {
            self.number = None;
        }
        match looked {
            (Poll::Ready(Outcome::Granted { remaining }), _, _) => {
                self.granted = Some(remaining);
                Poll::Ready(Ok(()))
            }
            // The queue that closed has ended its own part first, and that part reports the error.
            (Poll::Ready(Outcome::JointEnded), _, _) => Poll::Ready(Ok(())),
            (Poll::Ready(outcome), _, _) => Poll::Ready(outcome.into_result().map(drop)),
            (Poll::Pending, true, host) if !host.as_ref().is_some_and(|host| self.core.serve_here(host)) => {
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            (Poll::Pending, _, _) => Poll::Pending,
        }
    }

    /// Starts the wait record: the member waits in its queue.
    pub(super) fn begin_wait(&mut self) {
        self.wait_record.begin(self.core.observers(), None, self.cost, self.queue_info);
    }

    pub(super) fn cancel(&mut self) {
        if let Some(number) = self.number.take() {
            self.core.cancel_part(number, self.cost);
        } else if self.granted.take().is_some() {
            self.core.give_back(self.cost);
        }
    }
}
