//! A joint claim that leaves its set without a grant.

use super::review::{Members, Reviewed, with_members_locked};
use super::set::{Called, JointSet};
use crate::core::drop_quietly;
use crate::core::locked::Locked;
use crate::core::state::{Reach, Served};
use crate::core::wakes::Wakes;
use std::sync::Arc;
use std::task::Waker;

/// The result of [`cancel_in`].
pub(crate) enum Cancelled {
    /// It had been called out.
    Called(Called),
    /// It waited. When each member, in the order of the set, could have granted the front of the set, in nanoseconds of
    /// the first member's time: [`i128::MAX`] if that is unknown.
    Waiting(Vec<i128>),
}

/// Claim `number` of a set is dropped: it leaves all members, unless it has an outcome.
pub(crate) fn cancel_in(set: &Arc<JointSet>, number: u64, wakes: &mut Wakes) -> Cancelled {
    loop {
        let cancelled = with_members_locked(set, wakes, |members, wakes| members.cancel(number, wakes));
        match cancelled {
            Ok((cancelled, waker)) => {
                drop_quietly(waker);
                // The members are served again: what the front leaves is for others.
                Arc::clone(set).review(wakes);
                set.members
                    .iter()
                    .filter_map(|member| member.core.upgrade())
                    .for_each(|core| wakes.push_unserved(core));
                return cancelled;
            }
            Err(Reviewed::After(other)) => other.review(wakes),
            Err(Reviewed::Awaits(child)) => wakes.ask(&child),
            Err(Reviewed::Again | Reviewed::Done) => wakes.wake_all(),
        }
    }
}

impl Members<'_> {
    /// Claim `number` leaves. Returns its waker.
    fn cancel(&mut self, number: u64, wakes: &mut Wakes) -> Result<(Cancelled, Option<Waker>), Reviewed> {
        if let Some(called) = self.queue.take_called(number) {
            return Ok((Cancelled::Called(called), None));
        }
        let is_front = self.queue.front() == Some(number);
        if is_front {
            // The front may be due by now, and what is minted until now was held for it.
            for (_, Locked { core, state, sample, .. }) in &mut self.members {
                match state.settle(&core.rovers, sample.now, Reach::Held, wakes) {
                    Served::All => {}
                    Served::Again => return Err(self.interrupt(Reviewed::Again)),
                    Served::Stopped => {
                        let before = Reviewed::before(&mut *state);
                        return Err(self.interrupt(before));
                    }
                }
            }
        }
        let unknown = i128::MAX;
        let parts = self.parts();
        let dues = self.members.iter().map(|(index, it)| {
            let due = it.state.joint().and_then(|fronts| fronts.get(parts.get(*index)?.number)?.due);
            due.map_or(unknown, |due| self.set.members[*index].common(due))
        });
        let dues = dues.collect();
        if is_front {
            for (index, Locked { core, state, .. }) in &mut self.members {
                state.remove_front(&core.rovers, parts[*index].number);
            }
        }
        let waker = self.queue.remove(number).map(|(waker, parts)| {
            self.count_out(&parts);
            waker
        });
        if is_front {
            self.enter_front();
            self.members.iter_mut().for_each(|(_, locked)| locked.interrupt());
        }
        Ok((Cancelled::Waiting(dues), waker))
    }
}
