//! The queues of a joint claim while all of them are locked.

use super::Waiting;
use super::member::Member;
use crate::core::Core;
use crate::core::classes::ClassId;
use crate::core::joint::{self, JointSet, Part};
use crate::core::locked::{Locked, with_locked};
use crate::core::state::{CatchUp, Reach, State};
use crate::core::wakes::Wakes;
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::handle::Handle;
use crate::observe::{GrantWord, QueueInfo};
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle as Runtime;

/// What a joint claim needs from one queue.
#[derive(Clone, Copy)]
struct Need<'a> {
    core: &'a Core,
    class: ClassId,
    /// The key in whose class the claim is, in a parent with classes: each has its turns. Of several keys from which tokens are
    /// taken it is the first by address, so that the order in which a claim names them does not matter.
    key: Option<&'a Core>,
    of: Needed,
}

/// For which limiter of the caller's array a queue is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    /// The index of the limiter.
    pub(super) limiter: usize,
    /// It is the limiter of a key, and the queue is that of its parent. Of several such limiters it is the first from which
    /// tokens are taken.
    pub(super) is_parent: bool,
    /// What is needed from the queue: the sum, if that is the parent of several keys.
    pub(super) cost: u64,
}

/// The queues of a joint claim in the order in which all joint claims lock them: those with a parent first, then by address.
pub(super) struct LockOrder<'a> {
    needs: Vec<Need<'a>>,
}

impl<'a> LockOrder<'a> {
    /// Returns as the error the limiter that is in the array twice, or has a parent that is in it.
    pub(super) fn of<L: Handle>(members: &[Member<'a, L>]) -> Result<Self, usize> {
        let mut needs: Vec<Need<'a>> = Vec::with_capacity(2 * members.len());
        for (limiter, member) in members.iter().enumerate() {
            let (own, cost) = ((member.core(), member.class()), member.cost);
            let parent = member.core().parent().map(|parent| ((&*parent.limiter, parent.group), true));
            for ((core, class), is_parent) in [(own, false)].into_iter().chain(parent) {
                let key = Some(member.core()).filter(|_| is_parent && core.has_classes && cost > 0);
                match needs.iter_mut().find(|known| std::ptr::eq(known.core, core)) {
                    Some(known) if is_parent && known.of.is_parent && known.class == class => {
                        known.key = known.key.into_iter().chain(key).min_by_key(|key| std::ptr::from_ref(*key));
                        if known.of.cost == 0 {
                            known.of.limiter = limiter;
                        }
                        known.of.cost = known.of.cost.saturating_add(cost);
                    }
                    Some(_) => return Err(limiter),
                    None => needs.push(Need { core, class, key, of: Needed { limiter, is_parent, cost } }),
                }
            }
        }
        needs.sort_by_key(|need| (need.core.parent().is_none(), std::ptr::from_ref(need.core)));
        Ok(Self { needs })
    }

    /// Locks all queues and runs `act`. No other caller can take tokens from any of them meanwhile.
    ///
    /// # Panics
    /// If a clock panics; then nothing has changed.
    pub(super) fn lock<R>(self, act: impl FnOnce(&mut LockedQueues<'_, 'a>) -> R) -> R {
        let cores: Vec<&'a Core> = self.needs.iter().map(|need| need.core).collect();
        let samples: Vec<_> = cores.iter().map(|core| Some(core.sample())).collect();
        let mut wakes = Wakes::default();
        let mut needs = self.needs;
        let act = |queues: &mut [Locked<'a>], _: &mut Wakes| {
            for (queue, need) in queues.iter_mut().zip(&mut needs) {
                // Close the fast path.
                queue.state.retract(&queue.core.rovers);
                if let Some(key) = need.key {
                    need.class = key.join_parent(&mut queue.state);
                }
            }
            let result = act(&mut LockedQueues { needs: &needs, queues });
            for (queue, need) in queues.iter_mut().zip(&needs).filter(|(_, need)| need.key.is_some()) {
                queue.state.remove_user(need.class);
            }
            result
        };
        let result = with_locked(&mut wakes, cores, &samples, Reach::Held, CatchUp::Fully, |_| (), act);
        wakes.run();
        result
    }
}

/// All queues of a joint claim, locked and brought up to date, with their fast paths closed.
pub(super) struct LockedQueues<'l, 'a> {
    needs: &'l [Need<'a>],
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
        self.first_refusal(|need, Locked { core, state, .. }| {
            if state.is_closed(need.class) {
                return Err(ConsumeError::Closed);
            }
            state.check_claim(&core.rovers, need.of.cost)
        })?;
        if self.grant_all(members) {
            return Ok(false);
        }
        // The deadline needs a timer: see `Core::arrive`.
        let has_timer =
            hosts.iter().any(Option::is_some) || members.iter().any(|member| member.core().time.is_manual());
        self.first_refusal(|&Need { class, of, .. }, Locked { core, state, sample, .. }| {
            if of.cost == 0 {
                return Ok(());
            }
            let driven = core.is_driven(state, &hosts[of.limiter]);
            state.check_queue_of(class, (allowed.is_none() || has_timer) && driven)?;
            allowed.map_or(Ok(()), |allowed| state.check_in_time(&core.rovers, class, of.cost, sample.now, allowed))
        })?;
        Ok(true)
    }

    /// Returns the refusal that is first in the caller's order, and counts it.
    fn first_refusal(
        &mut self,
        check: impl Fn(&Need<'a>, &mut Locked<'a>) -> Result<(), ConsumeError>,
    ) -> Result<(), (usize, ConsumeError)> {
        let refusing = self.iter_mut().filter_map(|(need, queue)| Some((need.of, check(need, queue).err()?, queue)));
        let first = refusing.min_by_key(|(of, ..)| (of.limiter, of.is_parent));
        let Some((Needed { limiter, is_parent, .. }, error, queue)) = first else { return Ok(()) };
        queue.state.totals.refused += 1;
        Err((limiter, if is_parent { error.as_parent() } else { error }))
    }

    /// Takes every cost if all are available, and no claim waits over the same limiters.
    pub(super) fn grant_all<L: Handle>(&mut self, members: &mut [Member<'a, L>]) -> bool {
        if self.waiting_set().is_some() || !self.iter_mut().all(|(need, queue)| can_admit(queue, need)) {
            return false;
        }
        for (&Need { class, of, .. }, Locked { core, state, .. }) in self.iter_mut() {
            let rovers = &core.rovers;
            let word = match of.cost {
                0 => Some(GrantWord::plain(state.available_in(rovers, class))),
                cost => state.admit_in(rovers, class, cost).map(|word| state.with_instant(word)),
            };
            let word = word.expect("it fits, and the fast path is closed");
            if !of.is_parent {
                members[of.limiter].granted = Some(word);
            }
        }
        true
    }

    /// The queues in which the cost is above 0, in the order of their locks.
    fn waiting(&self) -> impl Iterator<Item = &Need<'a>> {
        self.needs.iter().filter(|need| need.of.cost > 0)
    }

    /// The set of these limiters, if a claim waits there.
    fn waiting_set(&self) -> Option<Arc<JointSet>> {
        let first = self.needs.iter().position(|need| need.of.cost > 0)?;
        let sets = &self.queues[first].state.joint()?.sets;
        if sets.is_empty() {
            return None;
        }
        let address = |need: &Need<'a>| (std::ptr::from_ref(need.core).addr(), need.class);
        sets.get(&self.waiting().map(address).collect::<Box<[_]>>()).cloned()
    }

    /// Enters the queue of the limiters in which the cost is above 0.
    pub(super) fn wait<L: Handle>(&mut self, members: &mut [Member<'a, L>], waker: Waker) -> Waiting {
        let known = self.waiting_set();
        let mut parts: Vec<Part> = Vec::with_capacity(self.needs.len());
        for (&Need { class, of, .. }, Locked { core, state, sample, .. }) in self.iter_mut() {
            if !of.is_parent {
                let member = &mut members[of.limiter];
                // One queue alone cannot tell how long the wait takes.
                member.queue_info = QueueInfo { since: sample.now, ahead: state.queue.len(), estimate: None };
                if of.cost == 0 {
                    member.granted = Some(GrantWord::plain(state.available_in(&core.rovers, class)));
                }
            }
            if of.cost > 0 {
                parts.push(state.count_joint(class, of.cost));
            }
        }
        let of = self.waiting().map(|need| need.of).collect();
        let set = known.clone().unwrap_or_else(|| {
            let waiting: Vec<&Need<'a>> = self.waiting().collect();
            let entries =
                waiting.iter().map(|need| joint::Member::new(need.core, need.class, waiting[0].core)).collect();
            let is_one = |pair: &[&Need<'a>]| pair[0].core.time.is_one_with(&pair[1].core.time);
            Arc::new(JointSet::new(entries, waiting.windows(2).all(is_one)))
        });
        let parts: Arc<[Part]> = parts.into();
        let number = set.push(waker, Arc::clone(&parts));
        if known.is_none() {
            let fronts = self.iter_mut().filter(|(need, _)| need.of.cost > 0).zip(&*parts);
            for (place, ((need, Locked { core, state, .. }), part)) in fronts.enumerate() {
                if place == 0 {
                    if let Some(fronts) = state.joint_mut() {
                        fronts.sets.insert(set.key(), Arc::clone(&set));
                    }
                }
                state.add_front(&core.rovers, &set, need.class, *part);
            }
        }
        Waiting { set, number, of }
    }

    /// Returns the refusing limiter with the longest wait. Limiters that never grant come first, then those with an
    /// unknown wait, then the others by time and by index.
    pub(super) fn worst_refusal(&mut self) -> Option<(usize, TryAcquireError)> {
        let mut worst = None;
        for (need, queue) in self.iter_mut() {
            if can_admit(queue, need) {
                continue;
            }
            let Locked { core, state, sample, .. } = queue;
            let error = state.refuse(&core.rovers, need.class, need.of.cost, sample.now);
            let Needed { limiter, is_parent, .. } = need.of;
            let error = if is_parent { State::as_parent(error, u64::MAX) } else { error };
            let rank = match error {
                TryAcquireError::Denied(denied) => denied.retry_after.map_or(u128::MAX - 1, |wait| wait.as_nanos()),
                // Too large, or closed.
                _ => u128::MAX,
            };
            if worst.is_none_or(|(most, first, _)| (rank, first) > (most, limiter)) {
                worst = Some((rank, limiter, error));
            }
        }
        // Nothing but an older claim over the same limiters is in the way.
        let behind = || Some((self.waiting().next()?.of.limiter, Denied::new(None, 0, Bound::Queue).into()));
        worst.map(|(_, limiter, error)| (limiter, error)).or_else(behind)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (&Need<'a>, &mut Locked<'a>)> {
        self.needs.iter().zip(&mut *self.queues)
    }
}

/// Whether the limiter could grant what is needed from it now.
fn can_admit(queue: &mut Locked<'_>, need: &Need<'_>) -> bool {
    queue.state.can_admit(&queue.core.rovers, need.class, need.of.cost)
}
