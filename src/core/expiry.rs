//! Claims that have reached their deadline, and the bounds that held them back.

use super::{Core, drop_quietly};
use crate::core::classes::ClassId;
use crate::core::queue::Place;
use crate::error::{Bound, ConsumeError};
use crate::name::Name;
use crate::observe::GrantWord;
use std::pin::Pin;
use std::time::Duration;

impl Core {
    /// The claim of `cost` in `place` has reached its deadline: it leaves the queue, unless it has an outcome by now:
    /// then the outcome counts. The error is `TimedOut` after `waited`.
    pub(crate) fn give_up(
        &self,
        mut place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waited: Duration,
    ) -> Result<GrantWord, ConsumeError> {
        let (left, held) = self.leaving(|state, rovers, _| {
            let held = state.holder_of_waiting(rovers, place.as_mut());
            let left = state.depart(rovers, place, class);
            let held = match held {
                Some(by) => Some((by, state.quota_name(by))),
                None if self.has_parent => None,
                None => Some(state.holder_of_new(rovers, class, cost)),
            };
            (left, held)
        });
        drop_quietly(left.waker);
        if let Some(outcome) = left.outcome {
            return outcome.into_result();
        }
        let (by, name) = held.unwrap_or_else(|| self.holder_in_parent(cost));
        Err(ConsumeError::TimedOut { waited, by, quota_name: name.text() })
    }

    /// The bound of the parent that holds back a claim of `cost` that this limiter does not hold back, and its name.
    pub(crate) fn holder_in_parent(&self, cost: u64) -> (Bound, Name) {
        let Some(parent) = self.parent() else { return (Bound::Queue, Name::NONE) };
        let (by, name) = parent.leaving(|state, rovers, _| state.holder_of_new(rovers, parent.group, cost));
        (by.of_parent(), name)
    }
}
