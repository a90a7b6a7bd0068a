//! The queues of a joint claim while all of them are locked.

use super::Member;
use crate::core::Core;
use crate::core::joint::{JointClaim, JointPart};
use crate::core::state::{Reach, Sample, ServeResult, State};
use crate::core::sync::MutexGuard;
use crate::core::wakes::Wakes;
use crate::error::{ConsumeError, TryAcquireError};
use crate::observe::QueueInfo;
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle;

/// All queues of a joint claim, locked and brought up to date. No other caller can take tokens from any of them
/// meanwhile.
pub(super) struct LockedQueues<'a> {
    held: Vec<LockedQueue<'a>>,
    wakes: Wakes,
}

struct LockedQueue<'a> {
    index: usize,
    core: &'a Core,
    sample: Sample,
    state: MutexGuard<'a, State>,
}

impl<'a> LockedQueues<'a> {
    pub(super) fn enter(members: &[Member<'a>]) -> Self {
        let mut order: Vec<(usize, &'a Core)> = members.iter().map(|member| member.core).enumerate().collect();
        order.sort_by_key(|(_, core)| std::ptr::from_ref(*core));
        let mut wakes = Wakes::default();
        let mut samples: Vec<Sample> = order.iter().map(|(_, core)| core.sample()).collect();
        loop {
            let locked = order.iter().zip(samples.iter().copied());
            let lock = |(&(index, core), sample): (&(usize, &'a Core), Sample)| LockedQueue {
                index,
                core,
                sample,
                state: core.state.lock(),
            };
            let mut held: Vec<LockedQueue<'a>> = locked.map(lock).collect();
            if held.iter_mut().all(|locked| locked.settle(&mut wakes)) {
                return Self { held, wakes };
            }
            drop(held);
            wakes.wake_all();
            // The locks were taken and the queues partly served: if the clock panics now, keep the last sample.
            for ((_, core), sample) in order.iter().zip(&mut samples) {
                *sample = core.sample_or_last().unwrap_or(*sample);
            }
        }
    }

    /// Returns `Ok(true)` if the claim has to wait and may wait, `Ok(false)` if it was granted.
    pub(super) fn check(
        &mut self,
        members: &mut [Member<'a>],
        hosts: &[Option<Handle>],
    ) -> Result<bool, (usize, ConsumeError)> {
        self.first_refusal(|LockedQueue { index, core, state, .. }| {
            state.check_claim(&core.rovers, members[*index].cost)
        })?;
        if self.grant_all(members) {
            return Ok(false);
        }
        self.first_refusal(|LockedQueue { index, core, state, .. }| {
            let enters_queue = members[*index].cost > 0;
            if enters_queue { state.check_queue(core.is_driven(state, &hosts[*index])) } else { Ok(()) }
        })?;
        Ok(true)
    }

    /// Returns the refusal that is first in the caller's order.
    fn first_refusal(
        &mut self,
        check: impl Fn(&LockedQueue<'a>) -> Result<(), ConsumeError>,
    ) -> Result<(), (usize, ConsumeError)> {
        let refusing = self.held.iter_mut().filter_map(|locked| check(locked).err().map(|error| (locked, error)));
        let Some((locked, error)) = refusing.min_by_key(|(locked, _)| locked.index) else { return Ok(()) };
        locked.state.totals.refused += 1;
        Err((locked.index, error))
    }

    /// Takes every cost if all are available.
    pub(super) fn grant_all(&mut self, members: &mut [Member<'a>]) -> bool {
        let fits = |locked: &LockedQueue<'_>| locked.state.can_admit(&locked.core.rovers, members[locked.index].cost);
        if !self.held.iter().all(fits) {
            return false;
        }
        for LockedQueue { index, core, state, .. } in &mut self.held {
            let cost = members[*index].cost;
            let rovers = &core.rovers;
            let remaining = if cost == 0 { Some(state.available(rovers)) } else { state.admit(rovers, cost) };
            members[*index].granted = Some(remaining.expect("it fits, and the fast path is closed"));
        }
        true
    }

    /// Enters every queue in which the cost is above 0.
    pub(super) fn wait(&mut self, members: &mut [Member<'a>], joint: &Arc<JointClaim>, wakers: &mut Vec<Waker>) {
        // Use one reading of the clock for all queues: a thread that is delayed between two readings would make the
        // queues disagree. Use the reading of the oldest limiter, because that one becomes negative last if the clock
        // steps back.
        let oldest = self.held.iter().max_by_key(|locked| locked.sample.now);
        let Some((reference, entered)) = oldest.map(|locked| (locked.core, locked.sample.now)) else { return };
        for LockedQueue { index, core, state, sample } in &mut self.held {
            let member = &mut members[*index];
            // One queue alone cannot tell how long the wait takes.
            member.queue_info = QueueInfo { since: sample.now, ahead: state.queue.len(), estimate: None };
            if member.cost == 0 {
                member.granted = Some(state.available(&core.rovers));
            } else if let (Some(place), Some(waker)) = (&mut member.place, wakers.pop()) {
                let entered = core.time.translate(&reference.time, entered);
                let part = Box::new(JointPart::new(Arc::clone(joint), *index, entered));
                state.enter(&core.rovers, place.as_mut(), member.cost, waker, Some(part));
            }
        }
    }

    /// Of the limiters that refuse, returns the one with the longest wait: first those that never grant, then those
    /// with an unknown wait, then by time, then by index.
    pub(super) fn worst_refusal(&mut self, members: &[Member<'a>]) -> Option<(usize, TryAcquireError)> {
        let mut worst = None;
        for LockedQueue { index, core, state, sample } in &mut self.held {
            let cost = members[*index].cost;
            if state.can_admit(&core.rovers, cost) {
                continue;
            }
            if let Err(error) = state.try_acquire(&core.rovers, cost, sample.now) {
                let rank = match error {
                    TryAcquireError::Denied(denied) => denied.retry_after.map_or(u128::MAX - 1, |wait| wait.as_nanos()),
                    // Too large, or closed.
                    _ => u128::MAX,
                };
                if worst.is_none_or(|(most, first, _)| (rank, first) > (most, *index)) {
                    worst = Some((rank, *index, error));
                }
            }
        }
        worst.map(|(_, index, error)| (index, error))
    }

    pub(super) fn leave(self) {
        let Self { mut held, mut wakes } = self;
        held.retain_mut(|locked| {
            locked.state.finish(&locked.core.rovers, locked.sample.now, &mut wakes) == ServeResult::Again
        });
        // If the batch was full before the queue was served, serve the rest once no lock is held.
        let unfinished: Vec<&Core> = held.into_iter().map(|locked| locked.core).collect();
        wakes.wake_all();
        for core in unfinished {
            core.serve_into(&mut wakes);
        }
        Core::leave(&mut wakes);
    }
}

impl LockedQueue<'_> {
    /// Brings the queue up to date and closes its fast path. Returns false if `wakes` is full before that.
    fn settle(&mut self, wakes: &mut Wakes) -> bool {
        let rovers = &self.core.rovers;
        if self.state.settle(rovers, self.sample.now, Reach::Held, wakes) == ServeResult::Again {
            return false;
        }
        self.state.observe(rovers, self.sample);
        self.state.retract(rovers);
        true
    }
}
