//! Callers that act on a queue that is behind: more is due than one batch of wakers, and the drivers serve the rest.
//!
//! The supply then stands at the instant up to which the queue has been served, and what the caller does belongs to a later
//! one. A cancelled claim can leave its place to those behind it at once, since they are granted nothing before it was
//! theirs anyway. Other acts cannot be taken for earlier ones: a newcomer would be granted tokens at an instant before it
//! came, at which the bucket fills up again; tokens that are given would be cut at a burst that those who are due still
//! fill, or be granted before they were given. Such acts are noted, and count once the queue has been served up to theirs.

use super::State;
use crate::core::rovers::Rovers;

/// What a caller did while the queue was behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferred {
    /// When. It was read from the clock, so whoever finds it knows that this time has come.
    pub(super) at: u64,
    /// Where the queue ended. Waiters that begin there or behind it came at this instant or later.
    pub(super) from: u64,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// It joined the queue.
    Come,
    Refund(u64),
    Replenish(u64),
}

impl State {
    /// Acts at `now` while the queue may not be served up to then.
    pub(crate) fn act_behind<R>(&mut self, rovers: &Rovers, now: u64, act: impl FnOnce(&mut Self) -> R) -> R {
        let end = rovers.tail();
        self.rare().acts_at = Some(now);
        let result = act(self);
        self.rare().acts_at = None;
        // While a waiter waits the tail moves under the lock only.
        if rovers.tail() != end {
            self.rare().deferred.push_back(Deferred { at: now, from: end, act: Act::Come });
        }
        result
    }

    /// Notes the act if the queue is behind; else it is to be done now.
    fn defer(&mut self, rovers: &Rovers, act: Act) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let Some(at) = rare.acts_at else { return false };
        rare.deferred.push_back(Deferred { at, from: rovers.tail(), act });
        true
    }

    /// The queue is to be served up to there before [anything else](Self::do_deferred). While there is something, the
    /// queue is not empty when the lock is left.
    pub(super) fn next_deferred(&self) -> Option<Deferred> {
        self.rare.as_ref()?.deferred.front().copied()
    }

    /// Does what was noted, now that the queue has been [served up to it](Self::next_deferred).
    pub(super) fn do_deferred(&mut self, rovers: &Rovers) {
        // It was not foreseen.
        self.supply.note_change();
        let Some(first) = self.rare().deferred.pop_front() else { return };
        match first.act {
            Act::Come => {}
            Act::Refund(tokens) => self.give_back_now(rovers, tokens),
            Act::Replenish(tokens) => self.replenish_now(tokens, Some(first.from)),
        }
    }

    /// `tokens` of a grant were not used, and are not in flight any more.
    pub(crate) fn give_back(&mut self, rovers: &Rovers, tokens: u64) {
        if !self.defer(rovers, Act::Refund(tokens)) {
            self.give_back_now(rovers, tokens);
        }
    }

    pub(crate) fn replenish(&mut self, rovers: &Rovers, tokens: u64) {
        if !self.defer(rovers, Act::Replenish(tokens)) {
            self.replenish_now(tokens, None);
        }
    }
}
