//! One claim that waits in the queue of a child, where it is ready, and has a *parent ticket* in the queue of the parent
//! (see `core/parent.rs`): the state that both share. The parent alone decides, and the child can only withdraw the ticket.
//!
//! One atomic word holds that state, so that "the parent grants it" and "the child withdraws it" cannot both happen:
//!
//! | word | means | leads to |
//! |---|---|---|
//! | the child's bit, or none | waiting for the parent | both bits, dead |
//! | both bits | committed: the child grants the claim as soon as it sees this | nothing else |
//! | dead | each queue turns the claim away as soon as it sees this | nothing else |
//!
//! The caller that commits or kills a claim must have the child serve itself, after it has released its own lock.
//!
//! The instant of the grant is the one at which the parent granted the ticket. On different clocks the child counts the
//! grant from the instant at which it sees the commit. The instant at which a claim became dead is not kept: a queue that
//! learns of it reads the time again. So the claims behind can pass as of an earlier time only if the clock steps back
//! between the two readings.

use crate::core::outcome::{CutOff, Outcome};
use crate::core::wakes::{LastDecision, Peer};
use crate::error::QuotaConflict;
use crate::name::Name;
use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DEAD: u64 = 1 << 63;
/// Set together with [`DEAD`]: the parent turned the ticket away because its source of tokens is cut off.
const CUT_OFF: u64 = 1 << 62;
/// With [`CUT_OFF`], the bits from here on hold the number of the text of a quota conflict, or 0.
const CONFLICT_SHIFT: u32 = 32;
const CHILD: u64 = 1;
const PARENT: u64 = 2;
const BOTH: u64 = CHILD | PARENT;

#[derive(Debug)]
pub(crate) struct ParentClaim {
    /// The state of the claim: see the table in the head of this file.
    word: AtomicU64,
    /// The latest instant at which a queue became ready, in nanoseconds since the claim entered the parent's queue.
    ready_at: AtomicU64,
    /// Whether both queues read the same clock.
    one_clock: bool,
    child: Weak<dyn Peer>,
}

/// The part of such a claim that waits in one of the two queues.
#[derive(Debug)]
pub(crate) struct ParentPart {
    pub(crate) claim: Arc<ParentClaim>,
    /// The bit of this queue in `word`.
    bit: u64,
    /// When the claim entered the parent's queue, in this queue's time. Negative if the clock stepped back to before its
    /// own beginning.
    entered: i128,
}

/// How a queue treats a part at its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairState {
    /// Both queues are ready: grant it.
    Committed,
    /// The other queue is not ready: hold it at the front.
    Held,
    /// The claim was given up, or turned away in the other queue: turn it away.
    Dead,
}

impl ParentClaim {
    /// The child's part of a claim, and its ticket.
    pub(crate) fn with_ticket(
        child: Weak<dyn Peer>,
        one_clock: bool,
        entered: i128,
        parent_entered: i128,
    ) -> (ParentPart, ParentPart) {
        let (word, ready_at) = (AtomicU64::new(CHILD), AtomicU64::new(0));
        let claim = Arc::new(Self { word, ready_at, one_clock, child });
        let part = ParentPart { claim: Arc::clone(&claim), bit: CHILD, entered };
        (part, ParentPart { claim, bit: PARENT, entered: parent_entered })
    }

    /// The limiter of the queue in which the claim with the ticket waits.
    pub(crate) fn child(&self) -> Weak<dyn Peer> {
        self.child.clone()
    }

    /// Gives the claim up, unless it is committed.
    pub(crate) fn kill(&self) -> PairState {
        self.change(|_| DEAD)
    }

    /// Like [`kill`](Self::kill), after one queue has called the claim out with `outcome`.
    pub(crate) fn kill_as(&self, outcome: Outcome) -> PairState {
        let Outcome::CutOff(why) = outcome else { return self.kill() };
        let conflict = match why {
            CutOff::Unreachable => 0,
            CutOff::QuotaConflict(conflict) => u64::from(conflict.text.number()),
        };
        self.change(|_| DEAD | CUT_OFF | conflict << CONFLICT_SHIFT & (CUT_OFF - 1))
    }

    /// The outcome of a dead claim: the parent has turned the ticket away.
    pub(crate) fn parent_outcome(&self) -> Outcome {
        let word = self.word.load(Ordering::Acquire);
        if word & CUT_OFF == 0 {
            return Outcome::TicketEnded;
        }
        Outcome::CutOff(match ((word & (CUT_OFF - 1)) >> CONFLICT_SHIFT) as u32 {
            0 => CutOff::Unreachable,
            conflict => CutOff::QuotaConflict(QuotaConflict { text: Name::of_number(conflict) }),
        })
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> PairState {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == BOTH {
                return PairState::Committed;
            }
            if word & DEAD != 0 {
                return PairState::Dead;
            }
            let next = to(word);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == BOTH => return PairState::Committed,
                Ok(_) if next & DEAD != 0 => return PairState::Dead,
                Ok(_) => return PairState::Held,
                Err(now) => word = now,
            }
        }
    }
}

impl ParentPart {
    pub(crate) fn is_ticket(&self) -> bool {
        self.bit == PARENT
    }

    /// This queue has been ready to grant its part since `at`. The first call counts: a later one may only know that
    /// the queue became ready before it was last served.
    pub(crate) fn set_ready(&self, at: u64) -> PairState {
        // Only this queue sets its own bit, under its own lock.
        if self.claim.word.load(Ordering::Acquire) & self.bit == 0 {
            // Stored before the bit is set, so that a queue that sees both bits also sees the latest instant.
            self.claim.ready_at.fetch_max(clamp(at as i128 - self.entered), Ordering::AcqRel);
        }
        self.claim.change(|word| word | self.bit)
    }

    /// This queue is not ready, or not ready any more.
    pub(crate) fn set_unready(&self) -> PairState {
        self.claim.change(|word| word & !self.bit)
    }

    /// The instant at which both queues were ready, in this queue's time.
    pub(crate) fn committed_at(&self, now: u64) -> u64 {
        let ready_at = self.claim.ready_at.load(Ordering::Acquire);
        if self.claim.one_clock { clamp(self.entered + ready_at as i128) } else { now }
    }

    /// True if the caller that owns `last_decision` sees only now, in this queue, what became of the claim. It must
    /// then read the time again, because the reading that it has may be older than the decision. That another caller
    /// has read the time again does not help.
    pub(crate) fn is_new_decision(&self, last_decision: &mut LastDecision) -> bool {
        last_decision.is_new(&self.claim, self.is_ticket())
    }
}

pub(crate) fn clamp(nanos: i128) -> u64 {
    nanos.clamp(0, u64::MAX as i128) as u64
}
