//! The queue of waiters.
//!
//! A waiter may be dropped at any moment: before it is first polled, while it waits in the queue, or after it was
//! granted but before it saw the grant. Its node in the queue, the [`Place`], lives inside its future. So the queue
//! must never keep a link to a place that no longer exists.
//!
//! `pin-list` ensures this without any `unsafe` code in this crate. A place is pinned. It is linked and read only under
//! the lock that owns the [`Queue`]. And it aborts the process if it is dropped while it is still linked or still holds
//! an outcome. This gives the one rule of this file: **the owner of a [`Place`] calls [`Queue::leave`] before it drops
//! the place.**
//!
//! | place | linked? | may be dropped? |
//! |---|---|---|
//! | never entered, or emptied | no | yes |
//! | waiting | yes | after `leave`: the claim becomes a gap |
//! | called out (outcome stored) | no | after `leave`, `look` or `take_outcome`, which take the outcome |
//!
//! This is the only file that names `pin-list`. Everything here runs under the limiter's lock. No waker is woken,
//! cloned or dropped here: wakers are returned to the caller, which handles them after it has released the lock.

use crate::core::joint::JointPart;
use crate::core::outcome::Outcome;
use crate::core::rovers::ahead;
use crate::core::supply::Stretch;
use pin_list::{Node, NodeData, PinList};
use pin_project::pin_project;
use std::pin::Pin;
use std::task::Waker;

/// A claim that waits in the queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) waker: Waker,
    /// The position at which the claim ends.
    pub(crate) ticket: u64,
    pub(crate) cost: u64,
    /// The gap after this claim: tokens of cancelled claims just behind it. Granting this claim moves past them. In the
    /// queue of a class, whose claims have no positions: the debt of the class that is paid after this claim.
    pub(crate) skip: u64,
    /// Connects the claim to its parts in other queues, if it waits in several.
    pub(crate) part: Option<Box<JointPart>>,
}

impl Waiter {
    /// The position at which the claim begins.
    pub(crate) fn start(&self) -> u64 {
        self.ticket.wrapping_sub(self.cost)
    }

    /// True if other queues take part in deciding when this claim is granted.
    fn is_joint(&self) -> bool {
        self.part.as_ref().is_some_and(|part| !part.is_parent_ticket())
    }

    pub(crate) fn stretch(&self) -> Stretch {
        Stretch { start: self.start(), cost: self.cost, skip: self.skip }
    }
}

type Types = dyn pin_list::Types<Id = pin_list::id::Checked, Protected = Waiter, Removed = Outcome, Unprotected = ()>;

/// A waiter's node in the queue, kept pinned inside its future.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Place {
    #[pin]
    node: Node<Types>,
}

impl Place {
    pub(crate) const fn new() -> Self {
        Self { node: Node::new() }
    }

    /// True if the place must be emptied before it is dropped: it waits, or holds an outcome that was not taken.
    pub(crate) fn is_entered(&self) -> bool {
        !self.node.is_initial()
    }
}

/// The result of [`Queue::leave`].
#[derive(Debug)]
pub(crate) enum Left {
    /// The place was never entered.
    Nothing,
    /// It had been called out, and its outcome had not been taken.
    Called(Outcome),
    /// It waited at the front. The caller has to account for the gap that the claim leaves.
    Front(Waiter),
    /// It waited further back. The gap was added to the waiter before it, which begins at `before`. The waiter is
    /// returned for its waker.
    Behind { waiter: Waiter, before: u64 },
}

/// The result of [`Queue::withdraw`].
#[derive(Debug)]
pub(crate) enum Withdrawn {
    /// The place was never entered.
    Nothing,
    /// It had been called out, and its outcome had not been taken.
    Called(Outcome),
    /// It waited at the front. The caller has to account for its debt too.
    Front(Waiter),
    /// It waited further back. Its debt was added to that of the waiter before it.
    Behind(Waiter),
}

/// The most waiters of one queue. Their futures alone would take more than 300 GB.
pub(crate) const MAX_WAITERS: usize = u32::MAX as usize;

#[derive(Debug)]
pub(crate) struct Queue {
    list: PinList<Types>,
    tokens: u64,
    /// At most [`MAX_WAITERS`]. In 32 bits, as `tied`: every limiter has these fields, and a test holds its size.
    len: u32,
    /// How many of the waiters also wait for other queues.
    tied: u32,
    /// An upper bound for the cost of each waiter.
    largest: u64,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { list: PinList::new(pin_list::id::Checked::new()), tokens: 0, len: 0, tied: 0, largest: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of the waiters' costs.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// An upper bound for the cost of each waiter: the largest claim since the queue was last empty.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    /// True if a waiter here also waits for another queue, so that this queue alone cannot tell when it moves.
    pub(crate) fn is_joint(&self) -> bool {
        self.tied > 0
    }

    pub(crate) fn front(&self) -> Option<&Waiter> {
        self.list.cursor_front().protected()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.iter_from(None)
    }

    /// The waiters that begin at `position` or behind it, or all of them. The search for `position` starts at the end.
    pub(crate) fn iter_from(&self, position: Option<u64>) -> impl Iterator<Item = &Waiter> {
        let mut cursor = self.list.cursor_ghost();
        if let Some(position) = position {
            cursor.move_previous();
            while cursor.protected().is_some_and(|waiter| ahead(waiter.start(), position) >= 0) {
                cursor.move_previous();
            }
        }
        std::iter::from_fn(move || {
            cursor.move_next();
            cursor.protected()
        })
    }

    pub(crate) fn push(&mut self, place: Pin<&mut Place>, waiter: Waiter) {
        self.largest = if self.len == 0 { waiter.cost } else { self.largest.max(waiter.cost) };
        self.len += 1;
        self.tokens += waiter.cost;
        self.tied += u32::from(waiter.is_joint());
        self.list.push_back(place.project().node, waiter, ());
    }

    /// Records that the front waiter also waits for another queue from now on.
    pub(crate) fn join_front(&mut self, part: Box<JointPart>) {
        if let Some(front) = self.list.cursor_front_mut().protected_mut() {
            front.part = Some(part);
            self.tied += 1;
        }
    }

    /// Records that the front waiter does not wait for another queue any more.
    pub(crate) fn unjoin_front(&mut self) {
        if let Some(front) = self.list.cursor_front_mut().protected_mut()
            && front.part.take().is_some()
        {
            self.tied -= 1;
        }
    }

    /// Removes the front waiter and stores `outcome` for its future to find. The caller wakes the returned waiter's
    /// waker.
    pub(crate) fn call_front(&mut self, outcome: Outcome) -> Option<Waiter> {
        let waiter = self.list.cursor_front_mut().remove_current(outcome).ok()?;
        self.forget(&waiter);
        Some(waiter)
    }

    /// Takes the outcome, if the place was called out.
    pub(crate) fn take_outcome(&mut self, place: Pin<&mut Place>) -> Option<Outcome> {
        let node = place.project().node.initialized_mut()?;
        node.take_removed(&self.list).ok().map(|(outcome, ())| outcome)
    }

    /// Takes the outcome, or stores `waker` to be woken with it. Returns the waker that is not needed.
    pub(crate) fn look(&mut self, place: Pin<&mut Place>, waker: Waker) -> (Option<Outcome>, Waker) {
        let node = place.project().node.initialized_mut().expect("only an entered place is looked at");
        match node.take_removed(&self.list) {
            Ok((outcome, ())) => (Some(outcome), waker),
            Err(node) => {
                let waiter = node.protected_mut(&mut self.list).expect("an entered place is linked or called out");
                if waiter.waker.will_wake(&waker) {
                    return (None, waker);
                }
                (None, std::mem::replace(&mut waiter.waker, waker))
            }
        }
    }

    /// Empties the place, whatever its state; see [`Left`].
    pub(crate) fn leave(&mut self, mut place: Pin<&mut Place>) -> Left {
        if let Some((waiter, before)) = self.leave_behind(place.as_mut()) {
            return Left::Behind { waiter, before };
        }
        let Some(node) = place.project().node.initialized_mut() else { return Left::Nothing };
        match node.reset(&mut self.list).0 {
            NodeData::Removed(outcome) => Left::Called(outcome),
            NodeData::Linked(waiter) => {
                self.forget(&waiter);
                Left::Front(waiter)
            }
        }
    }

    /// Empties the place if it waits behind the front; otherwise leaves it as it is. Also returns where the waiter
    /// before it begins.
    pub(crate) fn leave_behind(&mut self, place: Pin<&mut Place>) -> Option<(Waiter, u64)> {
        let node = place.project().node.initialized_mut()?;
        let waiter = node.protected(&self.list)?;
        let hole = waiter.cost + waiter.skip;
        let mut cursor = node.cursor_mut(&mut self.list)?;
        cursor.move_previous();
        let previous = cursor.protected_mut()?;
        previous.skip += hole;
        let before = previous.start();
        let NodeData::Linked(waiter) = node.reset(&mut self.list).0 else { unreachable!("the place was linked above") };
        self.forget(&waiter);
        Some((waiter, before))
    }

    /// Counts a claim that waits in the queue of a class of this queue's limiter.
    pub(crate) fn count_in(&mut self, cost: u64) {
        self.len += 1;
        self.tokens += cost;
    }

    /// The claim does not wait any more.
    pub(crate) fn count_out(&mut self, cost: u64) {
        self.len -= 1;
        self.tokens -= cost;
    }

    /// Notes a debt behind the last waiter. Returns false if no claim waits here.
    pub(crate) fn note_debt(&mut self, tokens: u64) -> bool {
        let mut cursor = self.list.cursor_back_mut();
        let last = cursor.protected_mut();
        last.is_some_and(|last| {
            last.skip += tokens;
            true
        })
    }

    /// Empties the place of a waiter of a class, whatever its state; see [`Withdrawn`].
    pub(crate) fn withdraw(&mut self, place: Pin<&mut Place>) -> Withdrawn {
        let Some(node) = place.project().node.initialized_mut() else { return Withdrawn::Nothing };
        let mut is_front = true;
        if let Some(debt) = node.protected(&self.list).map(|waiter| waiter.skip)
            && let Some(mut cursor) = node.cursor_mut(&mut self.list)
        {
            cursor.move_previous();
            if let Some(previous) = cursor.protected_mut() {
                previous.skip += debt;
                is_front = false;
            }
        }
        match node.reset(&mut self.list).0 {
            NodeData::Removed(outcome) => Withdrawn::Called(outcome),
            NodeData::Linked(waiter) => {
                self.forget(&waiter);
                if is_front { Withdrawn::Front(waiter) } else { Withdrawn::Behind(waiter) }
            }
        }
    }

    /// Takes the wakers of all waiters. A waiter woken with its waker polls again and stores a new one.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.len());
        let mut cursor = self.list.cursor_front_mut();
        while let Some(waiter) = cursor.protected_mut() {
            wakers.push(std::mem::replace(&mut waiter.waker, Waker::noop().clone()));
            cursor.move_next();
        }
        wakers
    }

    fn forget(&mut self, waiter: &Waiter) {
        self.len -= 1;
        self.tokens -= waiter.cost;
        self.tied -= u32::from(waiter.is_joint());
    }
}
