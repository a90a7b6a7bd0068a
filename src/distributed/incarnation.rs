//! Whether a store still has the state of its last answer. Pure: no lock, no clock, no network.

use super::{LeaseGrant, LeaseRequest, Pace, QuotaTerms};

/// A step of the server's clock that counts as a leap, in microseconds: it may end the leases of nodes.
const LEAP: u64 = 1_000_000;

/// What the last answer said of the store's state. Instants are in the limiter's nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Incarnation {
    /// For how long the store had kept its state, in microseconds.
    clock: u64,
    /// When the answer came.
    at: Option<u64>,
    /// Before this instant the store cannot have forgotten its bucket as full.
    full_at: u64,
}

impl Incarnation {
    /// Whether the store has begun anew since the last answer, although its bucket could not be full: its state was lost. Also
    /// a node that asks seldom notices that.
    pub(super) fn is_lost(&self, answer: &LeaseGrant, sent: u64) -> bool {
        let silence = self.at.map_or(0, |at| sent.saturating_sub(at) / 1_000);
        let begins_anew = answer.clock < self.clock || answer.clock + LEAP / 1_000 < silence - silence / 64;
        begins_anew && sent < self.full_at && answer.terms.is_none()
    }

    /// Whether the server's clock has leapt ahead since the last answer. A store forgets nodes then, and has lost nothing.
    pub(super) fn has_leapt(&self, answer: &LeaseGrant, now: u64) -> bool {
        self.at.is_some_and(|at| answer.clock > self.clock.saturating_add(now.saturating_sub(at) / 1_000 + LEAP))
    }

    /// Records an answer to a request that was sent at `sent`. Within the horizon, other nodes can return `promised` tokens.
    pub(super) fn note(&mut self, ask: &LeaseRequest, answer: &LeaseGrant, sent: u64, now: u64, promised: u64) {
        let terms: QuotaTerms = answer.terms.unwrap_or(ask.terms);
        let has_others = answer.nodes > u64::from(!ask.leave);
        let returned = if has_others { terms.burst / 2 + promised } else { 0 };
        let missing = terms.burst.saturating_sub(answer.remaining).saturating_sub(returned);
        let fills_in = || Pace::of(&terms, answer.phase).wait(missing).unwrap_or(u64::MAX);
        let full_at = if missing > 0 { sent.saturating_add(fills_in()) } else { 0 };
        *self = Self { clock: answer.clock, at: Some(now), full_at };
    }
}
