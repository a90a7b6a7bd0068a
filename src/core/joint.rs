//! One claim that waits in several queues: the state that its parts share.
//!
//! Each queue marks its part ready when the part has come to the front and its tokens are available. The last queue to
//! do so commits the claim, and from then on every queue grants its part as soon as it sees it. Until then a queue
//! holds its part at the front, as it would for the ceiling: no part is granted while another one still waits. When a part
//! is at the front, and when it lets others pass, is decided in `core/state/joint.rs`, by the instants that the queues
//! store here.
//!
//! One atomic word holds that state, so that "all are ready" and "one of them is not ready any more" cannot both
//! happen:
//!
//! | word | means | leads to |
//! |---|---|---|
//! | some ready bits | waiting for the others | more or fewer bits, all bits, dead |
//! | all ready bits | committed: each queue grants its part as soon as it sees this | nothing else |
//! | dead | each queue turns its part away as soon as it sees this | nothing else |
//!
//! The caller that commits or kills a claim must have the other queues (`members`) serve themselves, after it has
//! released its own lock.
//!
//! A claim can also wait in one queue and, once it is at the front there and ready, enter another queue with a *parent
//! ticket* (see `core/parent.rs`): the second queue alone then decides, and the first one can only withdraw the ticket.
//!
//! The instant of the grant is the latest of the instants at which the queues became ready, counted from the moment the
//! claim entered them all. Queues on different clocks have no instants in common, so each of them counts the grant from
//! the instant at which it sees the commit. The instant at which a claim became dead is not kept: a queue that learns
//! of it reads the time again. So the claims behind can pass as of an earlier time only if the clock steps back between
//! the two readings.

use crate::core::outcome::{CutOff, Outcome};
use crate::core::wakes::{LastDecision, Peer, TiedClaim};
use crate::error::QuotaConflict;
use crate::name::Name;
use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DEAD: u64 = 1 << 63;
/// A due instant that no clock can tell.
const UNKNOWN: u64 = u64::MAX;
/// The number of the next claim. Taken while all its queues are locked.
static NEXT_NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
/// Set together with [`DEAD`]: a limiter turned the claim away because its source of tokens is cut off.
const CUT_OFF: u64 = 1 << 62;
/// With [`CUT_OFF`], the bits from here on hold the number of the text of a quota conflict, or 0.
const CONFLICT_SHIFT: u32 = 32;

/// The bits of a claim with a parent ticket.
const CHILD: u64 = 1;
const PARENT: u64 = 2;

/// How many queues one claim can wait in: one bit each, beside [`DEAD`] and `CUT_OFF`.
pub(crate) const MAX_QUEUES: usize = 32;

#[derive(Debug)]
pub(crate) struct JointClaim {
    /// If two claims share a queue, the one that entered first has the lower number.
    number: u64,
    /// One bit for each queue in which no claim is ahead of this one any more.
    arrived: AtomicU64,
    /// For each queue the instant at which it can grant its part, in nanoseconds since the claim entered;
    /// [`UNKNOWN`] if no clock can tell.
    due_instants: Box<[AtomicU64]>,
    /// The state of the claim: see the table in the head of this file.
    word: AtomicU64,
    /// The latest instant at which a queue became ready, in nanoseconds since the claim entered.
    ready_at: AtomicU64,
    /// Whether all queues read the same clock.
    one_clock: bool,
    /// Whether one of the limiters has classes, in which the claim waits for its turn.
    has_turns: bool,
    /// The ready bits of all queues.
    all_bits: u64,
    /// The limiters that must serve their queues when the claim is decided.
    members: Box<[Weak<dyn Peer>]>,
}

/// The part of a joint claim that waits in one queue.
#[derive(Debug)]
pub(crate) struct JointPart {
    pub(crate) claim: Arc<JointClaim>,
    /// The bit of this queue in `word` and `arrived`.
    bit: u64,
    /// When the claim entered, in this queue's time. Negative if the clock stepped back to before its own beginning.
    entered: i128,
    /// This part is a parent ticket: the claim is ready everywhere else, so this queue alone decides.
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
    /// A claim over the queues of `members`, which the caller has locked. The queues in `idle` have nothing to grant to
    /// it and are ready at once.
    pub(crate) fn new(
        members: Box<[Weak<dyn Peer>]>,
        idle: impl Iterator<Item = usize>,
        one_clock: bool,
        has_turns: bool,
    ) -> Self {
        let all_bits = (1 << members.len()) - 1;
        let word = idle.fold(0, |word, index| word | 1 << index);
        Self {
            number: NEXT_NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            arrived: AtomicU64::new(word),
            due_instants: members.iter().map(|_| AtomicU64::new(0)).collect(),
            word: AtomicU64::new(word),
            ready_at: AtomicU64::new(0),
            one_clock,
            has_turns,
            all_bits,
            members,
        }
    }

    /// A claim that waits in the queue of `child`, where it is ready, and has a parent ticket in another queue.
    pub(crate) fn of_parent_ticket(child: Weak<dyn Peer>, one_clock: bool) -> Self {
        Self {
            number: 0,
            arrived: AtomicU64::new(0),
            due_instants: Box::default(),
            word: AtomicU64::new(CHILD),
            ready_at: AtomicU64::new(0),
            one_clock,
            has_turns: false,
            all_bits: CHILD | PARENT,
            members: Box::new([child]),
        }
    }

    /// The latest of the due instants, without those of the queues with bits in `but`.
    fn latest_due(&self, but: u64) -> u64 {
        let others = self.due_instants.iter().enumerate().filter(|(index, _)| but & (1 << index) == 0);
        others.map(|(_, due)| due.load(Ordering::SeqCst)).max().unwrap_or(0)
    }

    /// The index of the queue that will be ready last, by the instants that the queues have stored; of several, the first.
    pub(crate) fn slowest(&self) -> usize {
        let (word, arrived) = (self.word.load(Ordering::Acquire), self.arrived.load(Ordering::Acquire));
        let is_unready = |index: &usize| word & (1 << index) == 0;
        let due = |index: &usize| match self.due_instants.get(*index) {
            Some(due) if arrived & (1 << index) != 0 => due.load(Ordering::SeqCst),
            _ => UNKNOWN,
        };
        // The last of several maxima is returned.
        (0..self.members.len()).rev().filter(is_unready).max_by_key(due).unwrap_or(0)
    }

    /// The limiter of the queue in which the claim with the parent ticket waits.
    pub(crate) fn child(&self) -> Weak<dyn Peer> {
        self.members[0].clone()
    }

    /// Gives the claim up, unless it is committed.
    pub(crate) fn kill(&self) -> JointState {
        self.change(|_| DEAD)
    }

    /// Like [`kill`](Self::kill), after one queue has called the claim out with `outcome`.
    pub(crate) fn kill_as(&self, outcome: Outcome) -> JointState {
        let Outcome::CutOff(why) = outcome else { return self.kill() };
        let conflict = match why {
            CutOff::Unreachable => 0,
            CutOff::QuotaConflict(conflict) => u64::from(conflict.text.number()),
        };
        self.change(|_| DEAD | CUT_OFF | conflict << CONFLICT_SHIFT & (CUT_OFF - 1))
    }

    /// The outcome of a dead claim that had a parent ticket: the parent has turned the ticket away.
    pub(crate) fn parent_outcome(&self) -> Outcome {
        let word = self.word.load(Ordering::Acquire);
        if word & CUT_OFF == 0 {
            return Outcome::JointEnded;
        }
        Outcome::CutOff(match ((word & (CUT_OFF - 1)) >> CONFLICT_SHIFT) as u32 {
            0 => CutOff::Unreachable,
            conflict => CutOff::QuotaConflict(QuotaConflict { text: Name::of_number(conflict) }),
        })
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> JointState {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == self.all_bits {
                return JointState::Committed;
            }
            if word & DEAD != 0 {
                return JointState::Dead;
            }
            let next = to(word);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == self.all_bits => return JointState::Committed,
                Ok(_) if next & DEAD != 0 => return JointState::Dead,
                Ok(_) => return JointState::Held,
                Err(now) => word = now,
            }
        }
    }
}

impl TiedClaim for JointClaim {
    fn number(&self) -> u64 {
        self.number
    }

    fn members(&self) -> &[Weak<dyn Peer>] {
        &self.members
    }
}

impl JointPart {
    pub(crate) fn new(claim: Arc<JointClaim>, index: usize, entered: i128) -> Self {
        Self { claim, bit: 1 << index, entered, parent_ticket: false }
    }

    /// The two parts of a [claim with a parent ticket](JointClaim::of_parent_ticket): the child's part, and the ticket.
    pub(crate) fn with_parent_ticket(claim: JointClaim, entered: i128, parent_entered: i128) -> (Self, Self) {
        let claim = Arc::new(claim);
        let child = Self { claim: Arc::clone(&claim), bit: CHILD, entered, parent_ticket: false };
        (child, Self { claim, bit: PARENT, entered: parent_entered, parent_ticket: true })
    }

    /// A second part for the same queue: that of the waiter that stands for the claim in its class.
    pub(crate) fn for_class_queue(&self) -> Self {
        Self { claim: Arc::clone(&self.claim), ..*self }
    }

    /// Whether this queue must not hold its part before no claim is ahead of the claim in any queue. Otherwise, of two
    /// claims, each could hold a queue in which the other one waits for the turn of its class.
    pub(crate) fn must_not_hold(&self) -> bool {
        self.claim.has_turns && !self.has_arrived()
    }

    pub(crate) fn is_parent_ticket(&self) -> bool {
        self.parent_ticket
    }

    pub(crate) fn number(&self) -> u64 {
        self.claim.number
    }

    pub(crate) fn has_one_clock(&self) -> bool {
        self.claim.one_clock
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.claim.word.load(Ordering::Acquire) & DEAD != 0
    }

    /// No claim is ahead of the part in this queue any more. Returns true if that holds in all queues now.
    pub(crate) fn set_arrived(&self) -> bool {
        self.claim.arrived.fetch_or(self.bit, Ordering::AcqRel) | self.bit == self.claim.all_bits
    }

    /// Whether no claim is ahead of the claim in any queue.
    pub(crate) fn has_arrived(&self) -> bool {
        self.claim.arrived.load(Ordering::Acquire) == self.claim.all_bits
    }

    /// Stores when this queue can grant its part. Returns true if that changes anything for the other queues.
    pub(crate) fn set_due(&self, due: Option<u64>) -> bool {
        let due = due.map_or(UNKNOWN, |at| self.since_entered(at).min(UNKNOWN - 1));
        // Stored before the other dues are read, and all in one order: of two queues that change theirs at once, one at
        // least sees both changes.
        let old = self.claim.due_instants[self.bit.trailing_zeros() as usize].swap(due, Ordering::SeqCst);
        let others = self.claim.latest_due(self.bit);
        (old == UNKNOWN) != (due == UNKNOWN) || old.max(others) != due.max(others)
    }

    /// The instant at which the last of the other queues can grant its part; `None` if no clock can tell.
    pub(crate) fn others_due(&self) -> Option<u64> {
        Some(self.claim.latest_due(self.bit)).filter(|due| *due != UNKNOWN).map(|due| self.instant(due))
    }

    /// The joint due instant: the one at which all queues can grant their parts; `None` if no clock can tell.
    pub(crate) fn joint_due(&self) -> Option<u64> {
        Some(self.claim.latest_due(0)).filter(|due| *due != UNKNOWN).map(|due| self.instant(due))
    }

    /// Translates an instant of this queue's time to nanoseconds since the claim entered.
    pub(crate) fn since_entered(&self, at: u64) -> u64 {
        clamp(at as i128 - self.entered)
    }

    /// Translates nanoseconds since the claim entered to this queue's time.
    pub(crate) fn instant(&self, since_entered: u64) -> u64 {
        clamp(self.entered + since_entered as i128)
    }

    /// This queue has been ready to grant its part since `at`. The first call counts: a later one may only know that
    /// the queue became ready before it was last served.
    pub(crate) fn set_ready(&self, at: u64) -> JointState {
        // Only this queue sets its own bit, under its own lock.
        if self.claim.word.load(Ordering::Acquire) & self.bit == 0 {
            // Stored before the bit is set, so that a queue that sees all bits also sees the latest instant.
            self.claim.ready_at.fetch_max(clamp(at as i128 - self.entered), Ordering::AcqRel);
        }
        self.claim.change(|word| word | self.bit)
    }

    /// This queue is not ready, or not ready any more.
    pub(crate) fn set_unready(&self) -> JointState {
        self.claim.change(|word| word & !self.bit)
    }

    /// The instant at which all queues were ready, in this queue's time.
    pub(crate) fn committed_at(&self, now: u64) -> u64 {
        let ready_at = self.claim.ready_at.load(Ordering::Acquire);
        if self.claim.one_clock { clamp(self.entered + ready_at as i128) } else { now }
    }

    /// True if the caller that owns `last_decision` sees only now, in this queue, what became of the claim. It must
    /// then read the time again, because the reading that it has may be older than the decision. That another caller
    /// has read the time again does not help.
    pub(crate) fn is_new_decision(&self, last_decision: &mut LastDecision) -> bool {
        last_decision.is_new(&self.claim, self.bit)
    }
}

fn clamp(nanos: i128) -> u64 {
    nanos.clamp(0, u64::MAX as i128) as u64
}
