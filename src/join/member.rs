//! One limiter's part of a joint claim.

use crate::core::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::claims::Polled;
use crate::core::classes::ClassId;
use crate::core::drop_quietly;
use crate::core::outcome::Outcome;
use crate::core::queue::Place;
use crate::error::ConsumeError;
use crate::grant::Grant;
use crate::handle::{Handle, Limiter};
use crate::observe::{Observed, QueueInfo, WaitRecord};
use crate::permit::Permit;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

/// One limiter's part of a joint claim.
#[derive(Debug)]
pub(super) struct Member<'a, L: Handle = Limiter> {
    scope: &'a L::Scope,
    pub(super) cost: u64,
    /// How many tokens remained after the grant, once it has been granted.
    pub(super) granted: Option<u64>,
    /// The number of the joint claim while this part is in the queue, or has an outcome there.
    pub(super) number: Option<u64>,
    /// The place that represents the part in the queue of its class, if the limiter has classes. Emptied before it is
    /// dropped.
    place: Option<Pin<Box<Place>>>,
    pub(super) queue_info: QueueInfo,
    pub(super) wait_record: WaitRecord,
}

impl<'a, L: Handle> Member<'a, L> {
    pub(super) fn new((limiter, cost): (&'a L, u64)) -> Self {
        Self {
            scope: limiter.scope(),
            cost,
            granted: None,
            number: None,
            place: None,
            queue_info: QueueInfo::default(),
            wait_record: WaitRecord::default(),
        }
    }

    pub(super) fn core(&self) -> &'a Core {
        self.scope.core()
    }

    pub(super) fn class(&self) -> ClassId {
        self.scope.class()
    }

    /// The observers, the clock and the class for reports about the part.
    pub(super) fn observed(&self) -> Observed<'a> {
        let scope = self.scope;
        Observed { class: scope.label(), ..scope.core().observed() }
    }

    pub(super) fn into_grant(self) -> Grant<'a, L> {
        let remaining = self.granted.expect("every member was granted");
        Grant::new(Permit::new(self.scope, self.cost, remaining))
    }

    /// The place that represents the part in the queue of its class.
    pub(super) fn place(&mut self) -> Pin<&mut Place> {
        self.place.get_or_insert_with(|| Box::pin(Place::new())).as_mut()
    }

    /// Empties the place. The part had its turn, or the claim has ended.
    fn empty_place(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        let class = self.class();
        let left = self.core().leaving(|state, rovers, _| state.depart(rovers, place.as_mut(), class));
        drop_quietly(left.waker);
    }

    /// The error of a joint claim that was given up after `waited`, and that this limiter held back longest.
    pub(super) fn timed_out(&self, waited: Duration) -> ConsumeError {
        let (by, name) = self.core().leaving(|state, rovers, _| state.holder_of_new(rovers, self.class(), self.cost));
        ConsumeError::TimedOut { waited, by, quota_name: name.text() }
    }

    /// Checks whether this queue has granted or refused its part.
    pub(super) fn poll(&mut self, waker: &Waker) -> Poll<Result<(), ConsumeError>> {
        let Some(number) = self.number else { return Poll::Ready(Ok(())) };
        let core = self.core();
        let Polled { outcome, unserved, host } = core.check_part(number, waker);
        if outcome.is_ready() {
            self.number = None;
            self.empty_place();
        }
        match outcome {
            Poll::Ready(Outcome::Granted { remaining }) => {
                self.granted = Some(remaining);
                Poll::Ready(Ok(()))
            }
            // The queue that closed has ended its own part first, and that part reports the error.
            Poll::Ready(Outcome::JointEnded) => Poll::Ready(Ok(())),
            Poll::Ready(outcome) => Poll::Ready(outcome.into_result().map(drop)),
            Poll::Pending if unserved && !host.as_ref().is_some_and(|host| core.serve_here(host)) => {
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Starts the wait record: the member waits in its queue.
    pub(super) fn begin_wait(&mut self) {
        self.wait_record.begin(self.scope.core().observers(), self.scope.label(), self.cost, self.queue_info);
    }

    pub(super) fn cancel(&mut self) {
        if let Some(number) = self.number.take() {
            self.core().cancel_part(number, self.scope.class(), self.cost);
        } else if let Some(word) = self.granted.take() {
            self.core().give_back(self.scope.class(), self.cost, word);
        }
        self.empty_place();
    }
}
