//! One claim that waits in several queues: the state that its parts share.
//!
//! Each queue marks its part ready when the part has come to the front and its tokens are available. The last queue to
//! do so commits the claim, and from then on every queue grants its part as soon as it sees it. Until then a queue
//! holds its part at the front, as it would for the ceiling: no part is granted while another one still waits.
//!
//! One atomic word holds that state, so that "all are ready" and "one of them is not ready any more" cannot both
//! happen:
//!
//! | word | means | leads to |
//! |---|---|---|
//! | some ready bits | waiting for the others | more or fewer bits, all bits, dead |
//! | all ready bits | committed: granted in every queue, at sight | nothing else |
//! | dead | turned away in every queue, at sight | nothing else |
//!
//! The caller that commits or kills a claim must have the other queues serve themselves: [`JointClaim::members`], after
//! it has released its own lock.
//!
//! A claim can also wait in one queue and, once it is at the front there and ready, enter another queue with a *parent
//! ticket* (see `core/parent.rs`): then the second queue alone decides, and the first one can only withdraw the ticket.
//!
//! The instant of the grant is the latest of the instants at which the queues became ready, counted from the moment the
//! claim entered them all. Queues on different clocks have no instants in common: there each of them counts the grant
//! from when it sees it. The instant of a death is not kept: a queue that learns of it reads the time again. So only a
//! clock that steps back and forth between the two can let the claims behind pass as of an earlier time.

use crate::core::outcome::Outcome;
use crate::core::wakes::{LastDecision, Peer};
use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DEAD: u64 = 1 << 63;
/// Set together with [`DEAD`]: the claim was turned away by a distributed limiter that cannot reach its store.
const CUT_OFF: u64 = 1 << 62;

/// The bits of a claim with a parent ticket.
const CHILD: u64 = 1;
const PARENT: u64 = 2;

/// How many queues one claim can wait in: one bit each, beside [`DEAD`] and `CUT_OFF`.
pub(crate) const MAX_QUEUES: usize = 32;

#[derive(Debug)]
pub(crate) struct JointClaim {
    word: AtomicU64,
    /// The latest instant at which a queue became ready, in nanoseconds since the claim entered.
    ready_at: AtomicU64,
    /// Whether all queues read the same clock.
    one_clock: bool,
    all: u64,
    /// The limiters that must serve their queues when the claim is decided.
    members: Box<[Weak<dyn Peer>]>,
}

/// The part of a joint claim that waits in one queue.
#[derive(Debug)]
pub(crate) struct JointPart {
    pub(crate) joint: Arc<JointClaim>,
    bit: u64,
    /// When the claim entered, in this queue's time. Negative if the clock stepped back to before its own beginning.
    entered: i128,
    /// This part waits here for a claim that is ready everywhere else: this queue alone decides.
    parent_ticket: bool,
}

/// How a queue treats a part at its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JointState {
    /// All queues are ready: grant it.
    Committed,
    /// Other queues are not ready: hold it at the front.
    Held,
    /// The claim was given up, or turned away in another queue: turn it away.
    Dead,
}

impl JointClaim {
    /// A claim over the queues of `members`. The queues in `idle` have nothing to grant to it and are ready at once.
    pub(crate) fn new(members: Box<[Weak<dyn Peer>]>, idle: impl Iterator<Item = usize>, one_clock: bool) -> Self {
        let all = (1 << members.len()) - 1;
        let word = idle.fold(0, |word, index| word | 1 << index);
        Self { word: AtomicU64::new(word), ready_at: AtomicU64::new(0), one_clock, all, members }
    }

    /// A claim that waits in the queue of `child`, where it is ready, and has a parent ticket in another queue.
    pub(crate) fn of_parent_ticket(child: Weak<dyn Peer>, one_clock: bool) -> Self {
        let (all, word) = (CHILD | PARENT, AtomicU64::new(CHILD));
        Self { word, ready_at: AtomicU64::new(0), one_clock, all, members: Box::new([child]) }
    }

    /// The limiters that must serve their queues when the claim is decided.
    pub(crate) fn members(&self) -> &[Weak<dyn Peer>] {
        &self.members
    }

    /// The index of the first queue that is not ready.
    pub(crate) fn first_unready(&self) -> usize {
        (!self.word.load(Ordering::Acquire) & self.all).trailing_zeros() as usize % self.members.len().max(1)
    }

    /// Gives the claim up, unless it is committed.
    pub(crate) fn kill(&self) -> JointState {
        self.change(|_| DEAD)
    }

    /// Like [`kill`](Self::kill), after one queue has called the claim out with `outcome`.
    pub(crate) fn kill_as(&self, outcome: Outcome) -> JointState {
        if outcome == Outcome::Unreachable { self.change(|_| DEAD | CUT_OFF) } else { self.kill() }
    }

    /// The outcome of a dead claim that had a parent ticket: the parent has turned the ticket away.
    pub(crate) fn parent_outcome(&self) -> Outcome {
        let is_cut_off = self.word.load(Ordering::Acquire) & CUT_OFF != 0;
        if is_cut_off { Outcome::Unreachable } else { Outcome::JointEnded }
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> JointState {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == self.all {
                return JointState::Committed;
            }
            if word & DEAD != 0 {
                return JointState::Dead;
            }
            let next = to(word);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == self.all => return JointState::Committed,
                Ok(_) if next & DEAD != 0 => return JointState::Dead,
                Ok(_) => return JointState::Held,
                Err(now) => word = now,
            }
        }
    }
}

impl JointPart {
    pub(crate) fn new(joint: Arc<JointClaim>, index: usize, entered: i128) -> Self {
        Self { joint, bit: 1 << index, entered, parent_ticket: false }
    }

    /// The two parts of a [claim with a parent ticket](JointClaim::of_parent_ticket): the child's part, and the ticket.
    pub(crate) fn pair(joint: JointClaim, entered: i128, parent_entered: i128) -> (Self, Self) {
        let joint = Arc::new(joint);
        let child = Self { joint: Arc::clone(&joint), bit: CHILD, entered, parent_ticket: false };
        (child, Self { joint, bit: PARENT, entered: parent_entered, parent_ticket: true })
    }

    pub(crate) fn is_parent_ticket(&self) -> bool {
        self.parent_ticket
    }

    /// This queue has been ready to grant its part since `at`. The first call counts: a later one may only know that
    /// the queue became ready before it was last served.
    pub(crate) fn ready(&self, at: u64) -> JointState {
        // Only this queue sets this bit, under its lock.
        if self.joint.word.load(Ordering::Acquire) & self.bit == 0 {
            // Stored before the bit is set, so that a queue that sees all bits also sees the latest instant.
            self.joint.ready_at.fetch_max(clamp(at as i128 - self.entered), Ordering::AcqRel);
        }
        self.joint.change(|word| word | self.bit)
    }

    /// This queue is not ready, or not ready any more.
    pub(crate) fn unready(&self) -> JointState {
        self.joint.change(|word| word & !self.bit)
    }

    /// The instant at which all queues were ready, in this queue's time.
    pub(crate) fn committed_at(&self, now: u64) -> u64 {
        let ready_at = self.joint.ready_at.load(Ordering::Acquire);
        if self.joint.one_clock { clamp(self.entered + ready_at as i128) } else { now }
    }

    /// True if the caller that owns `last_decision` sees only now, in this queue, what became of the claim. It must
    /// then read the time again, because the reading that it has may be older than the decision. That another caller
    /// has read the time again does not help.
    pub(crate) fn is_new_decision(&self, last_decision: &mut LastDecision) -> bool {
        last_decision.is_new(&self.joint, self.bit)
    }
}

fn clamp(nanos: i128) -> u64 {
    nanos.clamp(0, u64::MAX as i128) as u64
}
