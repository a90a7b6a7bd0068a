//! The line of waiters.
//!
//! A waiter may be dropped at any moment: before it is first polled, while it stands in the line, after it was granted
//! but before it saw that. Its place in the line lives inside its future, so the line must never be left with a place
//! that is gone. What keeps it safe, without any `unsafe` of ours, is `pin-list`: a place is pinned, is linked and
//! looked at only under the lock that owns the [`Line`], and aborts the process if it is dropped while it remembers a
//! line. Hence the one rule: **whoever holds a [`Place`] calls [`Line::leave`] before dropping it.**
//!
//! | place | linked? | may be dropped? |
//! |---|---|---|
//! | never entered, or left | no | yes |
//! | waiting | yes | after `leave`: the claim becomes a hole |
//! | called out (outcome stored) | no | after `leave` or `look`, which take the outcome |
//!
//! This is the only file that names `pin-list`. Everything here happens under the limiter's lock, and no waker is
//! woken, cloned or dropped here: wakers travel out to be handled after the lock.

mod joint;

pub(crate) use joint::{Part, Parts, Stand};

use crate::error::ConsumeError;
use crate::knot::Strand;
use crate::supply::Stretch;
use pin_list::{Node, NodeData, PinList};
use pin_project::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

/// A claim that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) waker: Waker,
    /// Where the claim ends.
    pub(crate) ticket: u64,
    pub(crate) cost: u64,
    /// Cancelled claims just behind this one: jumped when this one is granted.
    pub(crate) skip: u64,
    /// Ties it to the roof's line, or to the line that it is the envoy of.
    pub(crate) strand: Option<Box<Strand>>,
}

impl Waiter {
    /// Where the claim begins.
    pub(crate) fn start(&self) -> u64 {
        self.ticket.wrapping_sub(self.cost)
    }

    /// True if other lines have a say in when this claim is granted.
    fn is_tied(&self) -> bool {
        self.strand.as_ref().is_some_and(|strand| !strand.is_envoy())
    }

    pub(crate) fn stretch(&self) -> Stretch {
        Stretch { start: self.start(), cost: self.cost, skip: self.skip }
    }
}

/// Why a waiter was called out of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted {
        /// What is left behind it.
        remaining: u64,
    },
    Closed,
    /// The line of the roof cannot hold so many tokens beside those that wait there.
    #[cfg(feature = "keyed")]
    TooLarge {
        cost: u64,
        most: u64,
    },
    /// The quota is shared through a line that cannot be reached, and who waits is to be told so.
    #[cfg(feature = "redis")]
    Unreachable,
    /// Another line that the claim stands in has closed, or its caller gave it up.
    Untied,
}

type Types = dyn pin_list::Types<Id = pin_list::id::Checked, Protected = Waiter, Removed = Outcome, Unprotected = ()>;

impl Outcome {
    /// What is left behind the claim, or why there is none.
    pub(crate) fn into_result(self) -> Result<u64, ConsumeError> {
        match self {
            Self::Granted { remaining } => Ok(remaining),
            Self::Closed | Self::Untied => Err(ConsumeError::Closed),
            #[cfg(feature = "keyed")]
            Self::TooLarge { cost, most } => Err(ConsumeError::TooLarge { cost, most }),
            #[cfg(feature = "redis")]
            Self::Unreachable => Err(ConsumeError::Unreachable),
        }
    }
}

/// A waiter's place, kept pinned inside its future.
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

    /// True if there is something to leave: the place waits, or holds an outcome nobody took.
    pub(crate) fn is_entered(&self) -> bool {
        !self.node.is_initial()
    }
}

/// What [`Line::leave`] found.
#[derive(Debug)]
pub(crate) enum Left {
    /// The place was never entered.
    Nothing,
    /// It had been called out, and nobody had looked.
    Called(Outcome),
    /// It waited at the front: the caller owns the hole.
    Front(Waiter),
    /// It waited further back: the hole was noted on the waiter before it. The waiter is returned for its waker.
    Behind(Waiter),
}

#[derive(Debug)]
pub(crate) struct Line {
    list: PinList<Types>,
    /// With the parts.
    len: usize,
    tokens: u64,
    /// How many of the waiters wait for other lines too.
    tied: usize,
    /// Of joint claims; kept once there was one.
    parts: Option<Box<Parts>>,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { list: PinList::new(pin_list::id::Checked::new()), len: 0, tokens: 0, tied: 0, parts: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of what the waiters claim, without the parts of joint claims.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The sum of what joint claims wait for here.
    pub(crate) fn part_tokens(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.tokens())
    }

    /// The parts of joint claims, if any wait here.
    #[inline]
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref().filter(|parts| parts.tokens() > 0)
    }

    /// The parts of joint claims that wait here, or wait to be looked at.
    pub(crate) fn parts_mut(&mut self) -> Option<&mut Parts> {
        self.parts.as_deref_mut()
    }

    /// A joint claim comes, and is told the number of its part.
    pub(crate) fn push_part(&mut self, part: Part) -> u64 {
        self.len += 1;
        self.parts.get_or_insert_default().push(part)
    }

    /// Takes a part out that waits, of a claim over the limiters of `set`.
    pub(crate) fn remove_part(&mut self, number: u64, set: &[usize]) -> Option<Part> {
        let part = self.parts.as_mut()?.remove(number, set)?;
        self.len -= 1;
        Some(part)
    }

    /// Calls a head out. Its claim will find the outcome.
    pub(crate) fn call_part(&mut self, number: u64, outcome: Outcome) -> Option<Part> {
        let set = Arc::clone(self.parts()?.head(number)?.strand.knot.set());
        let part = self.remove_part(number, &set);
        self.parts.as_mut()?.call(number, outcome);
        part
    }

    /// True if somebody here also waits for another line, so that this line alone cannot tell when it moves.
    pub(crate) fn is_tied(&self) -> bool {
        self.tied > 0 || self.parts().is_some()
    }

    pub(crate) fn front(&self) -> Option<&Waiter> {
        self.list.cursor_front().protected()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        let mut cursor = self.list.cursor_ghost();
        std::iter::from_fn(move || {
            cursor.move_next();
            cursor.protected()
        })
    }

    pub(crate) fn push(&mut self, place: Pin<&mut Place>, waiter: Waiter) {
        self.len += 1;
        self.tokens += waiter.cost;
        self.tied += usize::from(waiter.is_tied());
        self.list.push_back(place.project().node, waiter, ());
    }

    /// The front waiter waits for another line from now on.
    #[cfg(feature = "keyed")]
    pub(crate) fn tie_front(&mut self, strand: Box<Strand>) {
        if let Some(front) = self.list.cursor_front_mut().protected_mut() {
            front.strand = Some(strand);
            self.tied += 1;
        }
    }

    /// The front waiter does not wait for another line any more.
    pub(crate) fn untie_front(&mut self) {
        if let Some(front) = self.list.cursor_front_mut().protected_mut()
            && front.strand.take().is_some()
        {
            self.tied -= 1;
        }
    }

    /// Calls the front waiter out. Its future will find the outcome; its waker is the caller's to wake.
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

    /// Takes the outcome, or leaves `waker` to be woken with it; the waker that need not be woken comes back.
    pub(crate) fn look(&mut self, place: Pin<&mut Place>, waker: Waker) -> (Option<Outcome>, Waker) {
        let node = place.project().node.initialized_mut().expect("a place is looked at while it is entered");
        match node.take_removed(&self.list) {
            Ok((outcome, ())) => (Some(outcome), waker),
            Err(node) => {
                let waiter = node.protected_mut(&mut self.list).expect("a place is linked or called out");
                if waiter.waker.will_wake(&waker) {
                    return (None, waker);
                }
                (None, std::mem::replace(&mut waiter.waker, waker))
            }
        }
    }

    /// Empties the place, whatever its state; see [`Left`].
    pub(crate) fn leave(&mut self, mut place: Pin<&mut Place>) -> Left {
        if let Some(waiter) = self.leave_behind(place.as_mut()) {
            return Left::Behind(waiter);
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

    /// Empties the place if it waits, and not at the front; else leaves it as it is.
    pub(crate) fn leave_behind(&mut self, place: Pin<&mut Place>) -> Option<Waiter> {
        let node = place.project().node.initialized_mut()?;
        let waiter = node.protected(&self.list)?;
        let hole = waiter.cost + waiter.skip;
        let mut cursor = node.cursor_mut(&mut self.list)?;
        cursor.move_previous();
        cursor.protected_mut()?.skip += hole;
        let NodeData::Linked(waiter) = node.reset(&mut self.list).0 else { unreachable!("it was linked above") };
        self.forget(&waiter);
        Some(waiter)
    }

    /// Takes everybody's waker; who is woken this way polls again and leaves a new one.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.len);
        let mut cursor = self.list.cursor_front_mut();
        while let Some(waiter) = cursor.protected_mut() {
            wakers.push(std::mem::replace(&mut waiter.waker, Waker::noop().clone()));
            cursor.move_next();
        }
        let parts = self.parts.iter_mut().flat_map(|parts| parts.wakers());
        wakers.extend(parts.map(|waker| std::mem::replace(waker, Waker::noop().clone())));
        wakers
    }

    fn forget(&mut self, waiter: &Waiter) {
        self.len -= 1;
        self.tokens -= waiter.cost;
        self.tied -= usize::from(waiter.is_tied());
    }
}
