//! What ties one claim together that stands in several lines.
//!
//! Each line marks its strand ready when it has come to the front and its tokens are there; the last one to do so
//! commits, and from then on every line grants its strand at sight. Until then a line holds its strand at the front,
//! as it would for the ceiling: nothing is granted in one line and awaited in another.
//!
//! One word carries it, so that "all are ready" and "one of them is not any more" cannot both happen:
//!
//! | word | means | leads to |
//! |---|---|---|
//! | some ready bits | waiting for the others | more or fewer bits, all bits, dead |
//! | all ready bits | committed: granted in every line, at sight | nothing else |
//! | dead | turned away in every line, at sight | nothing else |
//!
//! Whoever commits or kills must have the other lines look: [`JointClaim::members`], after leaving its own lock.
//!
//! A claim can also wait in one line and, once it is at the front there and ready, send an *envoy* into another (see
//! `core/parent_link.rs`): then the second line alone decides, and the first one can only call the envoy back.
//!
//! The instant of the grant is the latest of the instants at which the lines became ready, counted from the moment the
//! claim entered them all. Lines on different clocks have no instants in common: there the grant counts when each of them
//! sees it. The instant of a death is not kept: who learns of it reads the time anew, so only a clock that steps
//! back and forth between the two can let those behind pass as of an earlier time.

use crate::core::Core;
use crate::core::queue::Outcome;
use crate::core::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DEAD: u64 = 1 << 63;
/// Beside [`DEAD`]: it was turned away in a line that is shared and cannot be reached.
#[cfg(feature = "redis")]
const CUT_OFF: u64 = 1 << 62;

/// The bits of a claim that has an envoy.
#[cfg(feature = "keyed")]
const CHILD: u64 = 1;
#[cfg(feature = "keyed")]
const PARENT: u64 = 2;

/// How many lines one claim can stand in: one bit each, beside [`DEAD`].
pub(crate) const MAX_QUEUES: usize = 32;

#[derive(Debug)]
pub(crate) struct JointClaim {
    word: AtomicU64,
    /// The latest instant at which a line became ready, in nanoseconds since the claim entered.
    ready_at: AtomicU64,
    /// Whether all lines read the same clock.
    one_clock: bool,
    all: u64,
    /// Who must look when it is decided.
    members: Box<[Weak<Core>]>,
}

/// One line's part of a knot.
#[derive(Debug)]
pub(crate) struct JointPart {
    pub(crate) joint: Arc<JointClaim>,
    bit: u64,
    /// When the claim entered, in this line's time; before its beginning, if the clock stepped back.
    entered: i128,
    /// Stands here for a claim that is ready everywhere else: this line alone decides.
    parent_ticket: bool,
}

/// What one caller has heard last, before it read the time: of which claim it is decided, as one of its lines sees it.
#[derive(Debug, Default)]
pub(crate) struct LastDecision(Option<(Arc<JointClaim>, u64)>);

/// What a line does with a strand at its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JointState {
    /// All lines are ready: grant it.
    Committed,
    /// Others are not ready: hold it at the front.
    Held,
    /// It was given up or turned away elsewhere: turn it away.
    Dead,
}

impl JointClaim {
    /// A knot over the lines of `members`, of which those in `idle` have nothing to grant and are ready at once.
    pub(crate) fn new(members: Box<[Weak<Core>]>, idle: impl Iterator<Item = usize>, one_clock: bool) -> Self {
        let all = (1 << members.len()) - 1;
        let word = idle.fold(0, |word, index| word | 1 << index);
        Self { word: AtomicU64::new(word), ready_at: AtomicU64::new(0), one_clock, all, members }
    }

    /// The knot of a claim that waits in the line of `child`, where it is ready, and of the envoy it has in another line.
    #[cfg(feature = "keyed")]
    pub(crate) fn of_parent_ticket(child: Weak<Core>, one_clock: bool) -> Self {
        let (all, word) = (CHILD | PARENT, AtomicU64::new(CHILD));
        Self { word, ready_at: AtomicU64::new(0), one_clock, all, members: Box::new([child]) }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Arc<Core>> {
        self.members.iter().filter_map(Weak::upgrade)
    }

    /// Gives the claim up, unless it is committed.
    pub(crate) fn kill(&self) -> JointState {
        self.change(|_| DEAD)
    }

    /// The same where one line has called the claim out as `outcome`.
    pub(crate) fn kill_as(&self, outcome: Outcome) -> JointState {
        #[cfg(feature = "redis")]
        if outcome == Outcome::Unreachable {
            return self.change(|_| DEAD | CUT_OFF);
        }
        let _ = outcome;
        self.kill()
    }

    /// As what a dead claim is called out that had an envoy: it was the envoy that was turned away.
    pub(crate) fn parent_outcome(&self) -> Outcome {
        #[cfg(feature = "redis")]
        if self.word.load(Ordering::Acquire) & CUT_OFF != 0 {
            return Outcome::Unreachable;
        }
        Outcome::JointEnded
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

    /// The two strands of a [knot of an envoy](Knot::of_envoy): that of the claim, and that of the envoy.
    #[cfg(feature = "keyed")]
    pub(crate) fn pair(joint: JointClaim, entered: i128, parent_entered: i128) -> (Self, Self) {
        let joint = Arc::new(joint);
        let child = Self { joint: Arc::clone(&joint), bit: CHILD, entered, parent_ticket: false };
        (child, Self { joint, bit: PARENT, entered: parent_entered, parent_ticket: true })
    }

    pub(crate) fn is_parent_ticket(&self) -> bool {
        self.parent_ticket
    }

    /// This line has been ready to grant its strand since `at`. What it says first counts: later it may only know that
    /// it was ready before it last looked.
    pub(crate) fn ready(&self, at: u64) -> JointState {
        // Only this line sets this bit, under its lock.
        if self.joint.word.load(Ordering::Acquire) & self.bit == 0 {
            // Before the bit, so that whoever sees all bits sees the latest instant.
            self.joint.ready_at.fetch_max(clamp(at as i128 - self.entered), Ordering::AcqRel);
        }
        self.joint.change(|word| word | self.bit)
    }

    /// This line is not, or not any more, ready.
    pub(crate) fn unready(&self) -> JointState {
        self.joint.change(|word| word & !self.bit)
    }

    /// The instant at which all lines were ready, in this line's time.
    pub(crate) fn committed_at(&self, now: u64) -> u64 {
        let ready_at = self.joint.ready_at.load(Ordering::Acquire);
        if self.joint.one_clock { clamp(self.entered + ready_at as i128) } else { now }
    }

    /// True if the caller who has `last_decision` so much sees only now what became of the claim in this line: it must read the
    /// time again then, since the reading it has may be older than the decision. That others have done so is no help.
    pub(crate) fn is_new_decision(&self, last_decision: &mut LastDecision) -> bool {
        let is_known =
            last_decision.0.as_ref().is_some_and(|(joint, bit)| Arc::ptr_eq(joint, &self.joint) && *bit == self.bit);
        if !is_known {
            last_decision.0 = Some((Arc::clone(&self.joint), self.bit));
        }
        !is_known
    }
}

fn clamp(nanos: i128) -> u64 {
    nanos.clamp(0, u64::MAX as i128) as u64
}
