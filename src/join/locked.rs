//! The queues of a joint claim while all of them are locked.

use super::member::Member;
use crate::core::Core;
use crate::core::joint::{JointClaim, JointPart};
use crate::core::locked::{Locked, with_locked};
use crate::core::state::{CatchUp, Reach};
use crate::core::wakes::{TiedClaim, Wakes};
use crate::error::{ConsumeError, TryAcquireError};
use crate::observe::QueueInfo;
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle;

/// The queues of a joint claim in the order in which all joint claims lock them: by address.
pub(super) struct LockOrder<'a, const N: usize> {
    /// Each with its index in the caller's order.
    order: [(usize, &'a Core); N],
}

impl<'a, const N: usize> LockOrder<'a, N> {
    pub(super) fn of(members: &[Member<'a>; N]) -> Self {
        let mut order = std::array::from_fn(|index| (index, members[index].core));
        order.sort_by_key(|(_, core)| std::ptr::from_ref(*core));
        Self { order }
    }

    /// Locks all queues and runs `act`. No other caller can take tokens from any of them meanwhile.
    ///
    /// # Panics
    /// If a clock panics; then nothing has changed.
    pub(super) fn lock<R>(self, act: impl FnOnce(&mut LockedQueues<'_, 'a>) -> R) -> R {
        let (indices, cores) = (self.order.map(|(index, _)| index), self.order.map(|(_, core)| core));
        let samples = cores.map(|core| Some(core.sample()));
        let mut wakes = Wakes::default();
        let result = with_locked(
            &mut wakes,
            cores,
            samples,
            (Reach::Held, CatchUp::Fully),
            |_| (),
            |queues, _| {
                // Close the fast paths.
                queues.iter_mut().for_each(|queue| queue.state.retract(&queue.core.rovers));
                act(&mut LockedQueues { indices: &indices, queues })
            },
        );
        wakes.run();
        result
    }
}

/// All queues of a joint claim, locked and brought up to date, with their fast paths closed.
pub(super) struct LockedQueues<'l, 'a> {
    /// The index of each in the caller's order.
    indices: &'l [usize],
    queues: &'l mut [Locked<'a>],
}

impl<'a> LockedQueues<'_, 'a> {
    /// Returns `Ok(true)` if the claim has to wait and may wait, `Ok(false)` if it was granted.
    pub(super) fn check(
        &mut self,
        members: &mut [Member<'a>],
        hosts: &[Option<Handle>],
        allowed: Option<u64>,
    ) -> Result<bool, (usize, ConsumeError)> {
        self.first_refusal(|index, Locked { core, state, .. }| state.check_claim(&core.rovers, members[index].cost))?;
        if self.grant_all(members) {
            return Ok(false);
        }
        // The deadline needs a timer: see `Core::arrive`.
        let has_timer = hosts.iter().any(Option::is_some) || members.iter().any(|member| member.core.time.is_manual());
        self.first_refusal(|index, Locked { core, state, sample, .. }| {
            let cost = members[index].cost;
            if cost == 0 {
                return Ok(());
            }
            state.check_queue((allowed.is_none() || has_timer) && core.is_driven(state, &hosts[index]))?;
            allowed.map_or(Ok(()), |allowed| state.check_in_time(&core.rovers, cost, sample.now, allowed))
        })?;
        Ok(true)
    }

    /// Returns the refusal that is first in the caller's order.
    fn first_refusal(
        &mut self,
        check: impl Fn(usize, &mut Locked<'a>) -> Result<(), ConsumeError>,
    ) -> Result<(), (usize, ConsumeError)> {
        let refusing =
            self.iter_mut().filter_map(|(index, queue)| check(index, queue).err().map(|error| (index, queue, error)));
        let Some((index, queue, error)) = refusing.min_by_key(|(index, ..)| *index) else { return Ok(()) };
        queue.state.totals.refused += 1;
        Err((index, error))
    }

    /// Takes every cost if all are available.
    pub(super) fn grant_all(&mut self, members: &mut [Member<'a>]) -> bool {
        if !self.iter().all(|(index, queue)| queue.state.can_admit(&queue.core.rovers, members[index].cost)) {
            return false;
        }
        for (index, Locked { core, state, .. }) in self.iter_mut() {
            let cost = members[index].cost;
            let rovers = &core.rovers;
            let remaining = if cost == 0 { Some(state.available(rovers)) } else { state.admit(rovers, cost) };
            members[index].granted = Some(remaining.expect("it fits, and the fast path is closed"));
        }
        true
    }

    /// Enters every queue in which the cost is above 0.
    pub(super) fn wait(&mut self, members: &mut [Member<'a>], joint: &Arc<JointClaim>, wakers: &mut Vec<Waker>) {
        // Use one reading of the clock for all queues: a thread that is delayed between two readings would make the
        // queues disagree. Use the reading of the oldest limiter, because that one becomes negative last if the clock
        // steps back.
        let oldest = self.queues.iter().max_by_key(|queue| queue.sample.now);
        let Some((reference, entered)) = oldest.map(|queue| (queue.core, queue.sample.now)) else { return };
        for (index, Locked { core, state, sample, .. }) in self.iter_mut() {
            let member = &mut members[index];
            // One queue alone cannot tell how long the wait takes.
            member.queue_info = QueueInfo { since: sample.now, ahead: state.queue.len(), estimate: None };
            if member.cost == 0 {
                member.granted = Some(state.available(&core.rovers));
            } else if let Some(waker) = wakers.pop() {
                let entered = core.time.translate(&reference.time, entered);
                let part = Box::new(JointPart::new(Arc::clone(joint), index, entered));
                member.number = Some(joint.number());
                state.enter_part(&core.rovers, member.cost, waker, part);
            }
        }
    }

    /// Of the limiters that refuse, returns the one with the longest wait: first those that never grant, then those
    /// with an unknown wait, then by time, then by index.
    pub(super) fn worst_refusal(&mut self, members: &[Member<'a>]) -> Option<(usize, TryAcquireError)> {
        let mut worst = None;
        for (index, Locked { core, state, sample, .. }) in self.iter_mut() {
            let cost = members[index].cost;
            if state.can_admit(&core.rovers, cost) {
                continue;
            }
            if let Err(error) = state.try_acquire(&core.rovers, cost, sample.now) {
                let rank = match error {
                    TryAcquireError::Denied(denied) => denied.retry_after.map_or(u128::MAX - 1, |wait| wait.as_nanos()),
                    // Too large, or closed.
                    _ => u128::MAX,
                };
                if worst.is_none_or(|(most, first, _)| (rank, first) > (most, index)) {
                    worst = Some((rank, index, error));
                }
            }
        }
        worst.map(|(_, index, error)| (index, error))
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Locked<'a>)> {
        self.indices.iter().copied().zip(&*self.queues)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Locked<'a>)> {
        self.indices.iter().copied().zip(&mut *self.queues)
    }
}
