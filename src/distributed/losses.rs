//! Whether a store has lost the state of its last answers, and how many tokens with it. Pure: no lock, no clock, no network.

use super::{LeaseGrant, LeaseRequest, Pace};
use std::collections::VecDeque;

/// A step of the server's clock that counts as a leap, in microseconds: it may end the leases of nodes.
const LEAP: u64 = 1_000_000;

/// The tokens of answers within such a part of the time for which they are remembered are added up.
const MOST_GRANTS: u64 = 16;

/// What the last answers said of the store's state. Instants are in the limiter's nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// For how long the store had kept its state, in microseconds.
    clock: u64,
    /// When the answer came.
    at: Option<u64>,
    /// Before this instant the store cannot have forgotten its bucket as full.
    full_at: u64,
    /// What the store may lose, oldest first.
    grants: VecDeque<Granted>,
}

/// The tokens of one answer, or of several.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// The number of the request.
    number: u64,
    tokens: u64,
    /// From this instant on a bucket that has forgotten them is no fuller than one that has not.
    until: u64,
    /// `until` of the first of them, if they are those of several answers.
    first_until: u64,
}

impl Losses {
    /// Whether the store has begun anew since the last answer, although its bucket could not be full: its state was lost. Also
    /// a node that asks seldom notices that.
    pub(super) fn begins_anew(&self, answer: &LeaseGrant, sent: u64) -> bool {
        let silence = self.at.map_or(0, |at| sent.saturating_sub(at) / 1_000);
        let begins_anew = answer.clock < self.clock || answer.clock + LEAP / 1_000 < silence - silence / 64;
        begins_anew && sent < self.full_at && answer.terms.is_none()
    }

    /// Records an answer to a request that was sent at `sent`. Within the horizon, other nodes can return `promised` tokens.
    pub(super) fn note_state(&mut self, ask: &LeaseRequest, answer: &LeaseGrant, sent: u64, now: u64, promised: u64) {
        let terms = answer.terms.unwrap_or(ask.terms);
        let has_others = answer.nodes > u64::from(!ask.leave);
        let returned = if has_others { terms.burst / 2 + promised } else { 0 };
        let missing = terms.burst.saturating_sub(answer.remaining).saturating_sub(returned);
        let fills_in = || Pace::of(&terms, answer.phase).wait(missing).unwrap_or(u64::MAX);
        self.full_at = if missing > 0 { sent.saturating_add(fills_in()) } else { 0 };
        (self.clock, self.at) = (answer.clock, Some(now));
    }

    /// Remembers the `tokens` granted by the answer to request `number`. From `until` on a bucket is as full without them.
    pub(super) fn note_grant(&mut self, number: u64, tokens: u64, until: u64, now: u64) {
        self.grants.retain(|grant| grant.until > now);
        if tokens == 0 || self.grants.back().is_some_and(|last| last.number == number) {
            return;
        }
        let step = until.saturating_sub(now) / MOST_GRANTS;
        if let Some(last) = self.grants.back_mut().filter(|last| until.saturating_sub(last.first_until) < step) {
            last.tokens += tokens;
            (last.number, last.until) = (number, last.until.max(until));
            return;
        }
        self.grants.push_back(Granted { number, tokens, until, first_until: until });
    }

    /// The store does not know this node as it did. Returns how many of the tokens granted to requests after the last one that
    /// it knows a bucket could still lack, and forgets them. `None` if the server's clock has leapt ahead since the last answer:
    /// a store forgets nodes then, and has lost nothing.
    pub(super) fn take(&mut self, answer: &LeaseGrant, now: u64) -> Option<u64> {
        let leap = |at: u64| self.clock.saturating_add(now.saturating_sub(at) / 1_000 + LEAP);
        if answer.before == 0 && self.at.is_some_and(|at| answer.clock > leap(at)) {
            return None;
        }
        let grants = self.grants.drain(..).filter(|grant| grant.number > answer.before && grant.until > now);
        Some(grants.map(|grant| grant.tokens).sum())
    }
}
