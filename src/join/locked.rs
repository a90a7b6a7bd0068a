//! The queues of a joint claim while all of them are locked.

use super::Waiting;
use super::member::Member;
use crate::core::Core;
use crate::core::joint::{self, JointSet, Part};
use crate::core::locked::{Locked, with_locked};
use crate::core::state::{CatchUp, Reach};
use crate::core::wakes::Wakes;
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::handle::Handle;
use crate::observe::{GrantWord, QueueInfo};
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle as Runtime;

/// The queues of a joint claim in the order in which all joint claims lock them: by address.
pub(super) struct LockOrder<'a, const N: usize> {
    /// Each queue, with the index of its limiter in the caller's array.
    order: [(usize, &'a Core); N],
}

impl<'a, const N: usize> LockOrder<'a, N> {
    pub(super) fn of<L: Handle>(members: &[Member<'a, L>; N]) -> Self {
        let mut order = std::array::from_fn(|index| (index, members[index].core()));
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
            Reach::Held,
            CatchUp::Fully,
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
    /// The index of each queue's limiter in the caller's array.
    indices: &'l [usize],
    queues: &'l mut [Locked<'a>],
}

impl<'a> LockedQueues<'_, 'a> {
    /// Grants the claim if that is possible now. Returns whether it has to wait, and may.
    pub(super) fn must_wait<L: Handle>(
        &mut self,
        members: &mut [Member<'a, L>],
        hosts: &[Option<Runtime>],
        allowed: Option<u64>,
    ) -> Result<bool, (usize, ConsumeError)> {
        self.first_refusal(|index, Locked { core, state, .. }| {
            if state.is_closed(members[index].class()) {
                return Err(ConsumeError::Closed);
            }
            state.check_claim(&core.rovers, members[index].cost)
        })?;
        if self.grant_all(members) {
            return Ok(false);
        }
        // The deadline needs a timer: see `Core::arrive`.
        let has_timer =
            hosts.iter().any(Option::is_some) || members.iter().any(|member| member.core().time.is_manual());
        self.first_refusal(|index, Locked { core, state, sample, .. }| {
            let cost = members[index].cost;
            if cost == 0 {
                return Ok(());
            }
            let (class, driven) = (members[index].class(), core.is_driven(state, &hosts[index]));
            state.check_queue_of(class, (allowed.is_none() || has_timer) && driven)?;
            allowed.map_or(Ok(()), |allowed| state.check_in_time(&core.rovers, class, cost, sample.now, allowed))
        })?;
        Ok(true)
    }

    /// Returns the refusal that is first in the caller's order, and counts it.
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

    /// Takes every cost if all are available, and no claim waits over the same limiters.
    pub(super) fn grant_all<L: Handle>(&mut self, members: &mut [Member<'a, L>]) -> bool {
        if self.waiting_set(members).is_some()
            || !self.iter_mut().all(|(index, queue)| can_admit(queue, &members[index]))
        {
            return false;
        }
        for (index, Locked { core, state, .. }) in self.iter_mut() {
            let cost = members[index].cost;
            let rovers = &core.rovers;
            let class = members[index].class();
            let word = match cost {
                0 => Some(GrantWord::plain(state.available_in(rovers, class))),
                cost => state.admit_in(rovers, class, cost).map(|word| state.with_instant(word)),
            };
            members[index].granted = Some(word.expect("it fits, and the fast path is closed"));
        }
        true
    }

    /// The limiters in which the cost is above 0, in the order of their locks: their indices in the caller's array.
    fn waiting<L: Handle>(&self, members: &[Member<'a, L>]) -> Vec<usize> {
        self.indices.iter().copied().filter(|index| members[*index].cost > 0).collect()
    }

    /// The set of these limiters, if a claim waits there.
    fn waiting_set<L: Handle>(&mut self, members: &[Member<'a, L>]) -> Option<Arc<JointSet>> {
        let waiting = self.waiting(members);
        let first = *waiting.first()?;
        let (_, queue) = self.iter_mut().find(|(index, _)| *index == first)?;
        let sets = &queue.state.joint()?.sets;
        if sets.is_empty() {
            return None;
        }
        let address = |index: &usize| (std::ptr::from_ref(members[*index].core()).addr(), members[*index].class());
        sets.get(&waiting.iter().map(address).collect::<Box<[_]>>()).cloned()
    }

    /// Enters the queue of the limiters in which the cost is above 0.
    pub(super) fn wait<L: Handle>(&mut self, members: &mut [Member<'a, L>], waker: Waker) -> Waiting {
        let indices = self.waiting(members);
        let known = self.waiting_set(members);
        let mut parts: Vec<Part> = Vec::with_capacity(indices.len());
        for (index, Locked { core, state, sample, .. }) in self.iter_mut() {
            let member = &mut members[index];
            // One queue alone cannot tell how long the wait takes.
            member.queue_info = QueueInfo { since: sample.now, ahead: state.queue.len(), estimate: None };
            if member.cost == 0 {
                let remaining = state.available_in(&core.rovers, member.class());
                member.granted = Some(GrantWord::plain(remaining));
            } else {
                parts.push(state.count_joint(member.class(), member.cost));
            }
        }
        let set = known.clone().unwrap_or_else(|| {
            let cores: Vec<&Core> = indices.iter().map(|index| members[*index].core()).collect();
            let entry = |(core, index): (&&Core, &usize)| joint::Member::new(core, members[*index].class(), cores[0]);
            let entries = cores.iter().zip(&indices).map(entry).collect();
            Arc::new(JointSet::new(entries, cores.windows(2).all(|pair| pair[0].time.is_one_with(&pair[1].time))))
        });
        let parts: Arc<[Part]> = parts.into();
        let number = set.push(waker, Arc::clone(&parts));
        if known.is_none() {
            let fronts = self.iter_mut().filter(|(index, _)| indices.contains(index)).zip(&*parts);
            for (place, ((index, Locked { core, state, .. }), part)) in fronts.enumerate() {
                if place == 0 {
                    if let Some(fronts) = state.joint_mut() {
                        fronts.sets.insert(set.key(), Arc::clone(&set));
                    }
                }
                state.add_front(&core.rovers, &set, members[index].class(), *part);
            }
        }
        Waiting { set, number, indices }
    }

    /// Returns the refusing limiter with the longest wait. Limiters that never grant come first, then those with an
    /// unknown wait, then the others by time and by index.
    pub(super) fn worst_refusal<L: Handle>(&mut self, members: &[Member<'a, L>]) -> Option<(usize, TryAcquireError)> {
        let mut worst = None;
        for (index, queue) in self.iter_mut() {
            if can_admit(queue, &members[index]) {
                continue;
            }
            let Locked { core, state, sample, .. } = queue;
            let (class, cost) = (members[index].class(), members[index].cost);
            let error = state.refuse(&core.rovers, class, cost, sample.now);
            let rank = match error {
                TryAcquireError::Denied(denied) => denied.retry_after.map_or(u128::MAX - 1, |wait| wait.as_nanos()),
                // Too large, or closed.
                _ => u128::MAX,
            };
            if worst.is_none_or(|(most, first, _)| (rank, first) > (most, index)) {
                worst = Some((rank, index, error));
            }
        }
        // Nothing but an older claim over the same limiters is in the way.
        let behind = || Some((*self.waiting(members).first()?, Denied::new(None, 0, Bound::Queue).into()));
        worst.map(|(_, index, error)| (index, error)).or_else(behind)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Locked<'a>)> {
        self.indices.iter().copied().zip(&mut *self.queues)
    }
}

/// Whether the limiter of `member` could grant its cost now.
fn can_admit<L: Handle>(queue: &mut Locked<'_>, member: &Member<'_, L>) -> bool {
    queue.state.can_admit(&queue.core.rovers, member.class(), member.cost)
}
