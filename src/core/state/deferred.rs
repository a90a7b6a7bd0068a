//! Callers that act on a queue that is behind: more is due than one batch of wakers holds, and the drivers serve the
//! rest.
//!
//! The supply then stands at the instant up to which the queue has been served, and the caller's action belongs to a
//! later instant. A cancellation can be applied at once: the claims behind it move up, and their grants are delivered
//! after the cancellation anyway.
//!
//! Other actions must not count as earlier ones. A new claim would be granted tokens at an instant before it arrived,
//! and the bucket would fill up again from that instant on. Tokens that are given back or added would be cut at a burst
//! that the claims already due still fill, or be granted before they were given. So these actions are noted, and take
//! effect once the queue has been served up to their instants.

use super::State;
use crate::core::classes::ClassId;
use crate::core::rovers::Rovers;
use crate::observe::GrantWord;

/// A caller's action while the queue was behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredCall {
    /// The instant of the action. It was read from the clock, so every later lock holder knows that this instant has
    /// passed.
    pub(super) at: u64,
    /// The number of the next claim. Waiters with this number or a higher one arrived at this instant or later.
    pub(super) from: u64,
    act: Act,
}

/// Tokens of a grant made in a class that were not used and are no longer in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund {
    pub(super) class: ClassId,
    pub(super) tokens: u64,
    /// The class has been charged for so many of them, and is not any more.
    pub(super) uncharged: u64,
    /// When the grant was made, if its word tells.
    pub(super) granted_at: Option<u64>,
    /// The word of the grant.
    pub(super) word: GrantWord,
}

impl Refund {
    /// A refund of `tokens` of the grant with this word.
    pub(crate) fn new(class: ClassId, tokens: u64, uncharged: u64, word: GrantWord) -> Self {
        Self { class, tokens, uncharged, granted_at: word.instant(), word }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A claim joined the queue.
    Arrive,
    /// Tokens came back. The class may be gone by now, but no other has its number: a class is added only to a queue that is
    /// not behind.
    Refund(Refund),
    /// Tokens were released from the in-flight cap.
    Release(u64),
    Replenish(u64),
}

impl State {
    /// Runs `act` at `now` while the queue may not have been served up to `now`.
    pub(crate) fn act_behind<R>(&mut self, now: u64, act: impl FnOnce(&mut Self) -> R) -> R {
        let from = self.next_number;
        self.rare().acts_at = Some(now);
        let result = act(self);
        self.rare().acts_at = None;
        if self.next_number != from {
            self.rare().deferred.push_back(DeferredCall { at: now, from, act: Act::Arrive });
        }
        result
    }

    /// Notes the action and returns true if the queue is behind. Otherwise the caller does it now.
    fn defer(&mut self, act: Act) -> bool {
        let from = self.next_number;
        let Some(rare) = &mut self.rare else { return false };
        let Some(at) = rare.acts_at else { return false };
        rare.deferred.push_back(DeferredCall { at, from, act });
        true
    }

    /// The first noted action: the queue must be served up to its instant before [anything else](Self::do_deferred).
    /// While there is one, the queue is not empty when the lock is released.
    #[inline]
    pub(super) fn next_deferred(&self) -> Option<DeferredCall> {
        self.rare.as_ref()?.deferred.front().copied()
    }

    /// Does the first noted action, once the queue has been [served up to it](Self::next_deferred).
    pub(super) fn do_deferred(&mut self, rovers: &Rovers) {
        // The forecasts made so far do not include this action.
        self.supply.note_change();
        let Some(first) = self.rare().deferred.pop_front() else { return };
        match first.act {
            Act::Arrive => {}
            Act::Refund(refund) => self.give_back_now(rovers, refund),
            Act::Release(tokens) => self.release_now(rovers, tokens),
            Act::Replenish(tokens) => self.replenish_now(rovers, tokens, Some(first.from)),
        }
    }

    /// Returns tokens of a grant.
    pub(crate) fn give_back(&mut self, rovers: &Rovers, refund: Refund) {
        if let Some((dry_run, now)) = self.dry_run_now().filter(|_| !refund.word.is_refused()) {
            dry_run.refund(refund.tokens, now, refund.granted_at);
        }
        if !self.defer(Act::Refund(refund)) {
            self.give_back_now(rovers, refund);
        }
    }

    /// Releases `tokens` from the in-flight cap.
    pub(crate) fn release(&mut self, rovers: &Rovers, tokens: u64) {
        if !self.defer(Act::Release(tokens)) {
            self.release_now(rovers, tokens);
        }
    }

    pub(crate) fn replenish(&mut self, rovers: &Rovers, tokens: u64) {
        if let Some((dry_run, now)) = self.dry_run_now() {
            dry_run.replenish(tokens, now);
            // The tokens are for manual quotas, and all of them are in dry run.
            if dry_run.supply.has_manual() && !self.supply.has_manual() {
                return;
            }
        }
        if !self.defer(Act::Replenish(tokens)) {
            self.replenish_now(rovers, tokens, None);
        }
    }
}
