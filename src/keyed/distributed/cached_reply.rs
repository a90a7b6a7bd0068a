//! The last reply of a key's store. Pure: no lock, no clock, no network.
//!
//! The reply contains the number of tokens in the store. Since then the store has minted at its rate, and other nodes
//! have taken tokens, or given back some that they kept. Tokens that cannot be available by minting are not worth a
//! request, except for a caller that may only wait for a limited time: see [`CachedReply::not_before`]. A wrong or
//! forgotten reply costs a round trip or the time of a token, and never grants anything.

use crate::distributed::{LeaseGrant, Pace, QuotaTerms};

/// With this many requests within [`BUSY_WINDOW`] nanoseconds, a key gets a limiter of its own, which takes about three
/// requests to start and end.
const BUSY_REQUESTS: u32 = 8;
const BUSY_WINDOW: u64 = 1_000_000_000;

/// The cached state of one key. Instants are in the limiter's nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedReply {
    level: Option<Level>,
    /// How many requests the key has had since `began`.
    asks: u32,
    /// The beginning of the [`BUSY_WINDOW`] in which requests are counted.
    began: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// The instants of the request and of the reply: the store answered between them.
    asked: u64,
    replied: u64,
    /// The tokens in the store. If there are none, how many it has promised that are not minted yet.
    remaining: u64,
    owed: u64,
    /// The progress towards the next token: see [`LeaseGrant::phase`].
    phase: u64,
    /// No other node has tokens that it may return.
    is_alone: bool,
    /// The instant at which the bucket is full if no node takes tokens.
    full: u64,
}

impl Level {
    /// The instant at which there are `tokens` if nodes neither take nor return any, and the store answered `at` this instant;
    /// 0 if they were there.
    fn minted(&self, terms: &QuotaTerms, tokens: u64, at: u64) -> u64 {
        let need = tokens.saturating_sub(self.remaining);
        let wait = || Pace::of(terms, self.phase).wait(self.owed.checked_add(need)?);
        if need == 0 { 0 } else { wait().map_or(u64::MAX, |wait| at.saturating_add(wait)) }
    }
}

impl CachedReply {
    /// The state of a key without a reply.
    pub(super) fn nothing(now: u64) -> Self {
        Self { level: None, asks: 0, began: now }
    }

    /// Records the store's answer, which arrived at `now`, `took` nanoseconds after the request. The store computed it
    /// in between.
    pub(super) fn record_answer(&mut self, terms: &QuotaTerms, answer: &LeaseGrant, now: u64, took: u64) {
        let &LeaseGrant { remaining, queued_before, phase, nodes, .. } = answer;
        let (asked, owed) = (now.saturating_sub(took), if remaining > 0 { 0 } else { queued_before });
        let level = Level { asked, replied: now, remaining, owed, phase, is_alone: nodes == 0, full: 0 };
        self.level = Some(Level { full: level.minted(terms, terms.burst(), now), ..level });
    }

    /// Counts a request. Returns false if the key is requested so often that it should have a limiter.
    pub(super) fn count(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.began) >= BUSY_WINDOW {
            (self.asks, self.began) = (0, now);
        }
        self.asks += 1;
        self.asks < BUSY_REQUESTS
    }

    /// Whether `cost` tokens may be there, if other nodes give none back: it is worth a request.
    pub(super) fn may_have(&self, terms: &QuotaTerms, cost: u64, now: u64) -> bool {
        let is_old = self.level.is_none_or(|level| now.saturating_sub(level.replied) >= terms.reliance());
        is_old || self.earliest(terms, cost) <= now
    }

    /// The instant at which `cost` tokens are available if other nodes give none back; 0 if they are available by the
    /// last reply, or if there is no reply. It counts from the arrival of the reply, so it is late rather than early: a
    /// caller that is denied and retries at this instant finds its tokens.
    pub(super) fn earliest(&self, terms: &QuotaTerms, cost: u64) -> u64 {
        self.level.map_or(0, |level| level.minted(terms, cost, level.replied))
    }

    /// The instant before which `cost` tokens cannot be available if other nodes give none back; 0 as above.
    pub(super) fn minted(&self, terms: &QuotaTerms, cost: u64) -> u64 {
        self.level.map_or(0, |level| level.minted(terms, cost, level.asked))
    }

    /// The instant before which `cost` tokens cannot be available, whatever other nodes do; 0 if they may be available. Other
    /// nodes may return what they keep and what they were promised.
    pub(super) fn not_before(&self, terms: &QuotaTerms, cost: u64) -> u64 {
        self.level.filter(|level| level.is_alone).map_or(0, |level| level.minted(terms, cost, level.asked))
    }

    /// How many tokens there were by the last reply.
    pub(super) fn remaining(&self) -> u64 {
        self.level.map_or(0, |level| level.remaining)
    }

    /// Whether the reply is no longer useful: the bucket is full by now, and the key has few requests.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        self.level.is_none_or(|level| level.full <= now) && now.saturating_sub(self.began) >= BUSY_WINDOW
    }
}

#[cfg(test)]
mod tests;
