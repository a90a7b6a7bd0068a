//! The parts of joint claims in the queue: how they enter and leave, and how they are counted.

use super::parts::{Held, PartStage, Parts};
use super::{Queue, Waiter};
use crate::core::classes::ClassId;
use crate::core::joint::{JointClaim, JointPart};
use crate::core::outcome::Outcome;
use std::sync::Arc;
use std::task::Waker;

impl Queue {
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref()
    }

    pub(crate) fn parts_mut(&mut self) -> Option<&mut Parts> {
        self.parts.as_deref_mut()
    }

    #[inline]
    pub(crate) fn held(&self) -> Option<&Held> {
        self.parts.as_ref()?.held()
    }

    /// The first part that waits for claims ahead of it, if all of these have left.
    pub(crate) fn first_place(&self) -> Option<u64> {
        let parts = self.parts.as_ref().filter(|parts| parts.held.is_none())?;
        parts.first_place(self.list_front().map(|front| front.number))
    }

    /// A part of a joint claim enters behind all waiters with numbers below `place`.
    pub(crate) fn add_part(&mut self, place: u64, cost: u64, waker: Waker, part: Box<JointPart>) {
        self.parts.get_or_insert_default().add(place, cost, waker, part);
        self.len += 1;
    }

    /// A part of a joint claim enters the queue of a class of this queue's limiter, where another waiter stands for it.
    pub(crate) fn add_turn(&mut self, class: ClassId, cost: u64, waker: Waker, part: Box<JointPart>) {
        self.parts.get_or_insert_default().add_turn(class, cost, waker, part);
    }

    /// A part has its turn in its class, and waits aside from now on. `paid` was set aside for it in earlier turns.
    pub(crate) fn take_turn(&mut self, number: u64, paid: u64) {
        if let Some(parts) = &mut self.parts {
            parts.take_turn(number, paid);
            self.len += 1;
        }
    }

    /// Records a debt behind the held part. Returns false if no part is held.
    pub(crate) fn note_debt_behind_held(&mut self, tokens: u64) -> bool {
        let held = self.parts.as_mut().and_then(|parts| parts.held_mut());
        held.is_some_and(|held| {
            held.waiter.debt_after += tokens;
            true
        })
    }

    /// Puts a part at the front of the queue, with a debt behind it.
    pub(crate) fn hold(&mut self, number: u64, debt_after: u64, stays: bool) {
        let Some(cost) = self.parts.as_ref().and_then(|parts| parts.part(number)).map(|part| part.cost) else { return };
        self.note_cost(cost);
        let Some(parts) = &mut self.parts else { return };
        let Some((waker, part)) = parts.take_waker_and_part(number) else { return };
        parts.move_to(number, PartStage::Held);
        parts.tokens -= u128::from(cost);
        let waiter = Waiter { waker, number: 0, cost, debt_after, part: Some(part) };
        parts.held = Some(Held { waiter, number, stays, announced: None });
        self.tokens += cost;
    }

    #[inline]
    pub(super) fn take_held(&mut self) -> Option<Held> {
        let held = self.parts.as_mut()?.held.take()?;
        self.tokens -= held.waiter.cost;
        Some(held)
    }

    /// Moves the held part aside, and returns its cost and the debt behind it.
    pub(crate) fn set_held_aside(&mut self, stage: PartStage) -> Option<(u64, u64)> {
        let held = self.take_held()?;
        let left = (held.waiter.cost, held.waiter.debt_after);
        if let Some(parts) = &mut self.parts {
            parts.put_back(held, stage);
        }
        Some(left)
    }

    /// Calls out a part that is not held. The caller wakes the waker.
    pub(crate) fn call_part(&mut self, number: u64, outcome: Outcome) -> Option<(Waker, Arc<JointClaim>)> {
        let (waker, joint, is_counted) = self.parts.as_mut()?.call_out(number, outcome)?;
        self.len -= u32::from(is_counted);
        Some((waker, joint))
    }

    /// Takes the outcome of a part, or stores `waker` to be woken with it. Returns the waker that is not needed.
    pub(crate) fn poll_part(&mut self, number: u64, waker: Waker) -> (Option<Outcome>, Waker) {
        let Some(parts) = &mut self.parts else { return (None, waker) };
        if let Some(PartStage::Called(outcome)) = parts.stage(number) {
            self.remove_part(number);
            return (Some(outcome), waker);
        }
        match parts.waker_mut(number) {
            Some(kept) if !kept.will_wake(&waker) => (None, std::mem::replace(kept, waker)),
            _ => (None, waker),
        }
    }

    /// Removes a part, which must not be held, and returns its outcome or its waker.
    pub(crate) fn remove_part(&mut self, number: u64) -> Option<(Option<Outcome>, Option<Waker>)> {
        let parts = self.parts.as_mut()?;
        let (outcome, waker, is_counted) = parts.remove(number)?;
        self.len -= u32::from(is_counted);
        if parts.is_empty() {
            self.parts = None;
        }
        Some((outcome, waker))
    }
}
