//! When tokens can come that the store has not promised to this node. Pure: no lock, no clock, no network.

use super::{Lease, LeaseGrant, Pace, QuotaTerms};

/// What an answer says about the tokens that are not promised to the asking node.
///
/// The store mints at the rate, and promised instants are fixed: tokens that nodes give back while the store owes tokens are
/// lost. So no node gets another token before all promised ones have come. After that, other nodes can give back what they
/// keep, and nothing if there are no other nodes. After a change of the quota they may keep more than half of the burst.
/// But the store cuts returned tokens to the burst less the allowances that remain, so all returns together bring at most
/// one burst: see docs/distributed.md. All other tokens have to be minted. So the instants here are lower bounds, as long
/// as the store keeps its state, this node gives nothing back, and the quota is not replaced by one with a higher rate or
/// a larger burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    /// When the store answered, or earlier, in the limiter's nanoseconds.
    at: u64,
    /// The tokens in the store; below 0, tokens promised that are not minted yet.
    level: i64,
    /// The progress towards the next token: see [`LeaseGrant::phase`].
    part: u64,
    /// The most tokens that other nodes may give back, one after the other.
    others: u64,
}

impl Horizon {
    /// By an answer, not a repeated one, that was made at `at` or later. `is_remembered` tells whether the store counts the
    /// asking node.
    pub(crate) fn new(answer: &LeaseGrant, terms: &QuotaTerms, at: u64, is_remembered: bool) -> Self {
        // While tokens are promised, returned ones can be there.
        let owed = (answer.queued_before + answer.promised) as i64;
        let level = if answer.remaining > 0 { answer.remaining as i64 } else { -owed };
        let is_alone = answer.nodes <= u64::from(is_remembered);
        let others = if is_alone { 0 } else { terms.burst };
        Self { at, level, part: answer.phase, others }
    }

    /// The same, as if the store had answered `nanos` nanoseconds later.
    pub(crate) fn later_by(self, nanos: u64) -> Self {
        Self { at: self.at.saturating_add(nanos), ..self }
    }

    /// The tokens in the store, as of the answer.
    pub(crate) fn remaining(&self) -> u64 {
        self.level.max(0) as u64
    }

    /// The instant before which this node cannot have `tokens` more than it was promised; 0 if it may have them now.
    pub(crate) fn earliest(&self, terms: &QuotaTerms, tokens: u64) -> u64 {
        self.minted(terms, tokens.saturating_sub(self.others))
    }

    /// The same if other nodes give nothing back.
    pub(crate) fn minted(&self, terms: &QuotaTerms, tokens: u64) -> u64 {
        let owed = (-self.level).max(0) as u64;
        let need = tokens.saturating_sub(self.level.max(0) as u64);
        if owed + need == 0 {
            return 0;
        }
        let lease = Lease::new(self.at, Pace::of(terms, self.part), owed, need);
        lease.instant(need).unwrap_or(u64::MAX)
    }
}
