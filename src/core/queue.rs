//! The queue of waiters.
//!
//! A waiter may be dropped at any moment: before it is first polled, while it waits in the queue, or after it was
//! granted but before it saw the grant. Its node in the queue, the [`Place`], lives inside its future. So the queue
//! must never keep a link to a place that no longer exists.
//!
//! The waiters in the queue are the list of these nodes, in the order of service. Joint claims are not among them: see
//! `core/joint.rs`. They are only counted here.
//!
//! `pin-list` ensures this without any `unsafe` code in this crate. A place is pinned. It is linked and read only under
//! the lock that owns the [`Queue`]. And it aborts the process if it is dropped while it is still linked or still holds
//! an outcome. This gives the one rule of this file: **the owner of a [`Place`] calls [`Queue::leave`] before it drops
//! the place.**
//!
//! | place | linked? | may be dropped? |
//! |---|---|---|
//! | never entered, or emptied | no | yes |
//! | waiting | yes | after `leave` |
//! | called out (outcome stored) | no | after `leave`, `poll` or `take_outcome`, which take the outcome |
//!
//! This is the only file that names `pin-list`. Everything here runs under the limiter's lock. No waker is woken,
//! cloned or dropped here: wakers are returned to the caller, which handles them after it has released the lock.

use crate::core::Core;
use crate::core::forecast::Claim;
use crate::core::outcome::Outcome;
use crate::core::steps;
use pin_list::{Node, NodeData, PinList};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Weak;
use std::task::Waker;

/// A claim that waits in the queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) waker: Waker,
    /// The arrival number of the claim: a limiter numbers its claims, in all classes, in the order in which they arrive.
    pub(crate) number: u64,
    pub(crate) cost: u64,
    /// The debt that is paid after this claim: tokens that were charged while it was the last one in its queue.
    pub(crate) debt_after: u64,
    /// Set if this is a proxy, which stands for the front claim of a child: that child. See `core/parent.rs`.
    pub(crate) child: Option<Weak<Core>>,
}

impl Waiter {
    pub(crate) fn as_claim(&self) -> Claim {
        (self.number, self.cost, self.debt_after)
    }

    /// The child for which this is a proxy, if it still exists.
    pub(crate) fn living_child(&self) -> Option<Weak<Core>> {
        self.child.clone().filter(|child| child.strong_count() > 0)
    }
}

type Types = dyn pin_list::Types<Id = pin_list::id::Checked, Protected = Waiter, Removed = Outcome, Unprotected = ()>;

pin_project! {
    /// A waiter's node in the queue, kept pinned inside its future.
    #[derive(Debug)]
    pub(crate) struct Place {
        #[pin]
        node: Node<Types>,
    }
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
pub(crate) enum LeaveResult {
    /// The place was never entered.
    Nothing,
    /// It had been called out, and its outcome had not been taken.
    Called(Outcome),
    /// It waited at the front. The caller has to account for its debt too.
    Front(Waiter),
    /// It waited further back. Its debt was added to that of the waiter before it.
    Behind(Waiter),
}

#[derive(Debug)]
pub(crate) struct Queue {
    list: PinList<Types>,
    tokens: u64,
    /// How many claims wait. In 32 bits, like `max_waiting`, because every limiter has these fields, and a test bounds the
    /// size of a limiter. The futures of so many waiters would take more than 300 GB.
    len: u32,
    /// The most claims that may wait.
    max_waiting: u32,
    /// An upper bound for the cost of any waiter in the queue, in tokens.
    largest: u64,
    /// How many joint claims wait. They count in `len`.
    joint: u32,
    /// How many of them are not in the queue of a class. The others count as claims there.
    aside: u32,
}

impl Queue {
    pub(crate) fn new() -> Self {
        let list = PinList::new(pin_list::id::Checked::new());
        Self { list, tokens: 0, len: 0, max_waiting: u32::MAX, largest: 0, joint: 0, aside: 0 }
    }

    /// Limits how many waiters may wait.
    pub(crate) fn limit_to(&mut self, waiters: u64) {
        self.max_waiting = u32::try_from(waiters).unwrap_or(u32::MAX);
    }

    /// How many claims may wait.
    pub(crate) fn max_waiting(&self) -> u64 {
        self.max_waiting.into()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.max_waiting
    }

    /// How many claims wait, joint claims too.
    pub(crate) fn len(&self) -> u64 {
        self.len.into()
    }

    /// Whether a claim waits, or a joint claim.
    #[inline]
    pub(crate) fn has_claims(&self) -> bool {
        self.len > 0
    }

    /// Whether a joint claim waits.
    #[inline]
    pub(crate) fn has_joint(&self) -> bool {
        self.joint > 0
    }

    /// True if no claim waits in the queue, or in that of a class. Joint claims may wait beside it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == self.aside
    }

    /// What the claims in the queue lack: the sum of their costs. With classes, what was set aside for them is counted out
    /// of the limiter's own queue already.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// An upper bound for the cost of each waiter: the largest claim since the queue was last empty.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Waiter> {
        self.list.cursor_front().protected()
    }

    /// The waiters in the queue.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.iter_from(0)
    }

    /// The waiters with this number or a higher one. The search starts at the end that is nearer.
    pub(crate) fn iter_from(&self, number: u64) -> impl Iterator<Item = &Waiter> {
        let mut cursor = self.list.cursor_back();
        let last = cursor.protected().map_or(0, |last| last.number);
        if self.front().is_none_or(|front| number.saturating_sub(front.number) < last.saturating_sub(number)) {
            cursor = self.list.cursor_front();
            while cursor.protected().is_some_and(|waiter| waiter.number < number) {
                steps::count();
                cursor.move_next();
            }
            cursor.move_previous();
        } else {
            while cursor.protected().is_some_and(|waiter| waiter.number >= number) {
                steps::count();
                cursor.move_previous();
            }
        }
        // Behind the last waiter the cursor would begin anew.
        let waiters = std::iter::from_fn(move || {
            cursor.move_next();
            cursor.protected()
        });
        waiters.fuse()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, place: Pin<&mut Place>, waiter: Waiter) {
        self.largest = if self.is_empty() { waiter.cost } else { self.largest.max(waiter.cost) };
        self.len += 1;
        self.tokens += waiter.cost;
        self.list.push_back(place.project().node, waiter, ());
    }

    /// Removes the front waiter and stores `outcome` for its future to find. The caller wakes the returned waiter's
    /// waker.
    #[inline(always)]
    pub(crate) fn call_front(&mut self, outcome: Outcome) -> Option<Waiter> {
        let waiter = self.list.cursor_front_mut().remove_current(outcome).ok()?;
        self.count_out(waiter.cost);
        Some(waiter)
    }

    /// Takes the outcome, if the place was called out.
    pub(crate) fn take_outcome(&mut self, place: Pin<&mut Place>) -> Option<Outcome> {
        let node = place.project().node.initialized_mut()?;
        node.take_removed(&self.list).ok().map(|(outcome, ())| outcome)
    }

    /// Takes the outcome, or stores `waker` to be woken with it. Returns the waker that is not needed.
    pub(crate) fn poll(&mut self, place: Pin<&mut Place>, waker: Waker) -> (Option<Outcome>, Waker) {
        let node = place.project().node.initialized_mut().expect("only an entered place is polled");
        match node.take_removed(&self.list) {
            Ok((outcome, ())) => (Some(outcome), waker),
            Err(node) => {
                let waiter = node.protected_mut(&mut self.list).expect("an entered place is linked or called out");
                (None, std::mem::replace(&mut waiter.waker, waker))
            }
        }
    }

    /// The number of the claim in `place`, if it waits.
    pub(crate) fn number(&mut self, place: Pin<&mut Place>) -> Option<u64> {
        Some(place.project().node.initialized_mut()?.protected(&self.list)?.number)
    }

    /// Empties the place, whatever its state; see [`LeaveResult`].
    pub(crate) fn leave(&mut self, mut place: Pin<&mut Place>) -> LeaveResult {
        if let Some(waiter) = self.leave_behind_front(place.as_mut()) {
            return LeaveResult::Behind(waiter);
        }
        let Some(node) = place.project().node.initialized_mut() else { return LeaveResult::Nothing };
        match node.reset(&mut self.list).0 {
            NodeData::Removed(outcome) => LeaveResult::Called(outcome),
            NodeData::Linked(waiter) => {
                self.count_out(waiter.cost);
                LeaveResult::Front(waiter)
            }
        }
    }

    /// Empties the place if it waits behind another one; otherwise leaves it as it is.
    pub(crate) fn leave_behind_front(&mut self, place: Pin<&mut Place>) -> Option<Waiter> {
        let node = place.project().node.initialized_mut()?;
        let debt = node.protected(&self.list)?.debt_after;
        let mut cursor = node.cursor_mut(&mut self.list)?;
        cursor.move_previous();
        cursor.protected_mut()?.debt_after += debt;
        let NodeData::Linked(waiter) = node.reset(&mut self.list).0 else { unreachable!("the place was linked above") };
        self.count_out(waiter.cost);
        Some(waiter)
    }

    /// A joint claim begins to wait.
    pub(crate) fn count_joint_in(&mut self) {
        self.len += 1;
        self.joint += 1;
        self.aside += 1;
    }

    /// A joint claim, which is aside, does not wait any more.
    pub(crate) fn count_joint_out(&mut self) {
        self.len -= 1;
        self.joint -= 1;
        self.aside -= 1;
    }

    /// A joint claim of `cost` tokens enters the queue of a class of this queue's limiter.
    pub(crate) fn count_from_aside(&mut self, cost: u64) {
        self.aside -= 1;
        self.tokens += cost;
    }

    /// A joint claim leaves the queue of its class. Its [tokens](Self::count_tokens_out) may stay.
    pub(crate) fn count_aside(&mut self) {
        self.aside += 1;
    }

    /// Claims in the queue of a class lack `tokens` less.
    #[inline]
    pub(crate) fn count_tokens_out(&mut self, tokens: u64) {
        self.tokens -= tokens;
    }

    /// Counts a claim that waits in the queue of a class of this queue's limiter.
    pub(crate) fn count_in(&mut self, cost: u64) {
        self.len += 1;
        self.tokens += cost;
    }

    /// A claim that lacked `tokens` does not wait any more.
    #[inline]
    pub(crate) fn count_out(&mut self, tokens: u64) {
        self.len -= 1;
        self.tokens -= tokens;
    }

    /// Records a debt behind the last waiter, whose number is returned; `None` if no claim waits here.
    pub(crate) fn note_debt(&mut self, tokens: u64) -> Option<u64> {
        let mut cursor = self.list.cursor_back_mut();
        let last = cursor.protected_mut()?;
        last.debt_after += tokens;
        Some(last.number)
    }

    /// Takes the wakers of all waiters. A waiter woken with its waker polls again and stores a new one.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.len as usize);
        let mut cursor = self.list.cursor_front_mut();
        while let Some(waiter) = cursor.protected_mut() {
            wakers.push(std::mem::replace(&mut waiter.waker, Waker::noop().clone()));
            cursor.move_next();
        }
        wakers
    }
}
