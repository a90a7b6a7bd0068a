//! The queue of the joint claims over one set of limiters.

use crate::core::Core;
use crate::core::classes::ClassId;
use crate::core::outcome::Outcome;
use crate::observe::GrantWord;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// What names a set: the addresses of its members, in their order, and their classes.
pub(crate) type SetKey = Box<[(usize, ClassId)]>;

/// The limiters, or classes, over which joint claims wait, and these claims.
#[derive(Debug)]
pub(crate) struct JointSet {
    /// In the order in which their locks are taken: those with a parent first, then by address.
    pub(crate) members: Box<[Member]>,
    /// Whether all members read the same clock.
    pub(crate) one_clock: bool,
    /// Innermost of all locks: taken while members are locked, or alone.
    queue: Mutex<SetQueue>,
}

/// A limiter of a set, or a class of it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) core: Weak<Core>,
    pub(crate) class: ClassId,
    /// This member's time minus the first member's time at the same instant, in nanoseconds.
    offset: i128,
}

impl Member {
    pub(crate) fn new(core: &Core, class: ClassId, first: &Core) -> Self {
        Self { core: core.weak(), class, offset: core.time.translate(&first.time, 0) }
    }

    /// Translates an instant of the first member's time to that of this member.
    pub(crate) fn local(&self, at: i128) -> u64 {
        (at + self.offset).clamp(0, u64::MAX as i128) as u64
    }

    /// Translates an instant of this member's time to that of the first one.
    pub(crate) fn common(&self, at: u64) -> i128 {
        i128::from(at) - self.offset
    }
}

/// The waiting claims of a set, and the outcomes that their futures have not seen. The numbers of claims follow the order
/// in which they arrived.
#[derive(Debug, Default)]
pub(crate) struct SetQueue {
    waiting: BTreeMap<u64, Claim>,
    called: BTreeMap<u64, Called>,
    next: u64,
}

#[derive(Debug)]
struct Claim {
    waker: Waker,
    /// In the order of the members.
    parts: Arc<[Part]>,
}

/// What a joint claim wants from one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) cost: u64,
    /// The arrival number of the claim in this limiter.
    pub(crate) number: u64,
    /// The debts charged in this limiter before the claim arrived; see [`Fronts::charged`](super::Fronts::charged).
    pub(crate) charged: u64,
}

/// The end of a wait.
#[derive(Debug)]
pub(crate) enum Called {
    /// Granted in all members.
    Granted(Box<[GrantWord]>),
    /// A member has turned it away.
    Refused { member: usize, outcome: Outcome },
}

impl JointSet {
    pub(crate) fn new(members: Box<[Member]>, one_clock: bool) -> Self {
        Self { members, one_clock, queue: Mutex::new(SetQueue::default()) }
    }

    /// The name of the set.
    pub(crate) fn key(&self) -> SetKey {
        self.members.iter().map(|member| (member.core.as_ptr().addr(), member.class)).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SetQueue> {
        self.queue.lock()
    }

    /// A claim joins the end of the queue. Returns its number. The members are locked.
    pub(crate) fn push(&self, waker: Waker, parts: Arc<[Part]>) -> u64 {
        let mut queue = self.lock();
        queue.next += 1;
        let number = queue.next;
        queue.waiting.insert(number, Claim { waker, parts });
        number
    }

    /// Takes the outcome of a claim, or stores `waker` to be woken with it. Returns the waker that is not needed.
    pub(crate) fn poll(&self, number: u64, waker: Waker) -> (Option<Called>, Waker) {
        let mut queue = self.lock();
        if let Some(called) = queue.called.remove(&number) {
            return (Some(called), waker);
        }
        match queue.waiting.get_mut(&number) {
            Some(claim) => (None, std::mem::replace(&mut claim.waker, waker)),
            None => (None, waker),
        }
    }

    /// Takes the wakers of all claims. One that is woken with its waker polls again and stores a new one.
    pub(crate) fn take_wakers(&self) -> Vec<Waker> {
        let mut queue = self.lock();
        let wakers = queue.waiting.values_mut().map(|claim| std::mem::replace(&mut claim.waker, Waker::noop().clone()));
        wakers.collect()
    }
}

impl SetQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of the front claim.
    pub(super) fn front(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(number, _)| *number)
    }

    /// What the front claim wants from each member.
    pub(super) fn front_parts(&self) -> Option<&Arc<[Part]>> {
        self.waiting.first_key_value().map(|(_, claim)| &claim.parts)
    }

    /// Removes the front claim, and stores the outcome for its future. The caller wakes it.
    pub(super) fn call_front(&mut self, called: Called) -> Option<(Waker, Arc<[Part]>)> {
        let (number, claim) = self.waiting.pop_first()?;
        self.called.insert(number, called);
        Some((claim.waker, claim.parts))
    }

    /// Removes a claim that waits.
    pub(super) fn remove(&mut self, number: u64) -> Option<(Waker, Arc<[Part]>)> {
        self.waiting.remove(&number).map(|claim| (claim.waker, claim.parts))
    }

    pub(super) fn take_called(&mut self, number: u64) -> Option<Called> {
        self.called.remove(&number)
    }
}
