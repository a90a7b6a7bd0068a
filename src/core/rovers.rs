//! The rovers: positions in an endless sequence of tokens. Atomic operations move them; `tail` and `published` never move
//! back.
//!
//! ```text
//!  0 ------------ tail ............ published ------------> tokens (u64, wrapping)
//!                   |<- available ->|
//!  0 ------------ published ........ tail ---------------->  more is claimed than there is: tail - published
//! ```
//!
//! * `tail` moves when tokens are claimed. A claim's *ticket* is the tail just behind it.
//! * `published` is the position up to which claims may go without the lock. It is stored only under the lock of the
//!   state that owns these rovers, and only moves forward.
//! * `released` counts the tokens handed back. The owner turns this count into the ceiling.
//! * `owed` counts the tokens of forgotten grants. It is no position. It is here because a caller that forgets each grant
//!   writes it with each claim.
//!
//! **What this file guarantees:** a claim made by [`Rovers::try_claim`] ends at or before `published`. A claim reads
//! `published` and then swaps `tail`. Since `published` never moves back, an old reading of `published` can only refuse
//! too much, and an old reading of `tail` makes the swap fail.
//!
//! Positions are compared by wrapping difference ([`ahead`]). The owner keeps all of them within 2^62 of each other.

use crate::core::denial::{Denial, LastDenial};
use crate::sync::{AtomicU64, Ordering};

/// How far position `a` is ahead of position `b`; negative if it is behind.
#[inline]
pub(crate) fn ahead(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

/// `a` or `b`, whichever is further along.
#[inline]
pub(crate) fn later(a: u64, b: u64) -> u64 {
    if ahead(a, b) > 0 { a } else { b }
}

/// `a` or `b`, whichever is less far along.
#[inline]
pub(crate) fn earlier(a: u64, b: u64) -> u64 {
    if ahead(a, b) < 0 { a } else { b }
}

/// The bit of `released` that is set while a waiter waits for releases.
const WATCHED: u64 = 1;

/// Without padding. In a [`Core`](super::Core), which a heap allocation aligns to 16 bytes, the first two words share one
/// cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Rovers {
    /// Written by every claim and every release: a grant and its release touch one cache line, not two.
    claims: Claims,
    /// Read by every claim, and written after the time is read. It is not on the cache line of `claims`, so that claims
    /// do not invalidate it. The denial fills the space between the two, so no padding is needed.
    supply: Supply,
}

#[derive(Debug)]
#[repr(C)]
struct Claims {
    tail: AtomicU64,
    /// Tokens released, times two, plus [`WATCHED`]. Count and flag share one atomic, so a release either sees the flag
    /// or is seen by the thread that sets it: read-modify-writes of one atomic have one total order, and no fence is
    /// needed.
    ///
    /// The count of tokens wraps at 2^63. So two readings are never compared for their order, only
    /// [subtracted](Rovers::tokens_between). The number of tokens in flight, which bounds the number of unread
    /// releases, is below 2^63: the largest cap is 2^61, and debts exceed it by at most 2^62.
    released: AtomicU64,
    /// Tokens of forgotten grants: the amount that may be released by hand.
    owed: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
struct Supply {
    /// Published too: the denial for a caller that finds nothing to claim.
    denial: LastDenial,
    published: AtomicU64,
    /// The earliest of all heads and the ceiling, even while it is not published. Grants report their remaining tokens
    /// from it.
    limit: AtomicU64,
}

impl Rovers {
    pub(crate) fn new(at: u64) -> Self {
        Self {
            claims: Claims { tail: AtomicU64::new(at), released: AtomicU64::new(0), owed: AtomicU64::new(0) },
            supply: Supply { denial: LastDenial::new(), published: AtomicU64::new(at), limit: AtomicU64::new(at) },
        }
    }

    // Acquire, paired with the Release in `try_claim_below`: a thread that reads the tail and then the clock must not
    // read a time before the claims that the tail counts. (Otherwise these claims would count as made earlier than they
    // were, and the burst would fill up again. The other writes of the tail, under the lock, continue the release
    // sequence or begin one that follows it.)
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.claims.tail.load(Ordering::Acquire)
    }

    // Acquire, paired with the Release in `publish`: a claim that is granted because of a release also sees everything
    // that the releasing thread did before the release.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.supply.published.load(Ordering::Acquire)
    }

    pub(crate) fn last_denial(&self) -> &LastDenial {
        &self.supply.denial
    }

    /// The last published denial, if it answers a claim of `cost` tokens from `tail` on.
    #[inline]
    pub(crate) fn denial_of(&self, cost: u64, tail: u64) -> Option<Denial> {
        self.supply.denial.about(cost, tail, self.claims.released.load(Ordering::Acquire))
    }

    /// The number of tokens left after a claim that ends at `ticket`.
    #[inline]
    pub(crate) fn remaining_after(&self, ticket: u64) -> u64 {
        ahead(self.supply.limit.load(Ordering::Relaxed), ticket).max(0) as u64
    }

    /// Claims `n` tokens if they are published, and returns where the claim ends. Never `Some` for `n == 0`.
    #[inline]
    pub(crate) fn try_claim(&self, n: u64) -> Option<u64> {
        self.try_claim_below(n, self.published())
    }

    /// Claims `n` tokens under the owner's lock, up to `limit`, whether published or not.
    #[inline]
    pub(crate) fn try_claim_owned(&self, n: u64, limit: u64) -> Option<u64> {
        let tail = self.tail();
        if ahead(self.supply.published.load(Ordering::Relaxed), tail) > 0 {
            return self.try_claim_below(n, limit);
        }
        // Everything published is claimed. So only the lock holder can move the tail until it publishes more: a claim
        // that read an older tail, below the published position of that time, fails in its swap. A plain store is
        // enough, and cheaper than a swap.
        let ticket = tail.wrapping_add(Self::fit(n, limit, tail)?);
        self.claims.tail.store(ticket, Ordering::Release);
        Some(ticket)
    }

    #[inline]
    fn try_claim_below(&self, n: u64, limit: u64) -> Option<u64> {
        let mut tail = self.claims.tail.load(Ordering::Relaxed);
        loop {
            let ticket = tail.wrapping_add(Self::fit(n, limit, tail)?);
            match self.claims.tail.compare_exchange_weak(tail, ticket, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(ticket),
                Err(now) => tail = now,
            }
        }
    }

    /// Returns `n` if that many tokens are free between `tail` and `limit`, and `n` is not 0.
    #[inline]
    fn fit(n: u64, limit: u64, tail: u64) -> Option<u64> {
        let free = ahead(limit, tail);
        // For `n == 0`, `n - 1` wraps, so this one comparison also refuses a claim of nothing.
        (free > 0 && n.wrapping_sub(1) < free as u64).then_some(n)
    }

    /// Claims `n` tokens whether they are available or not, and returns where the claim ends.
    pub(crate) fn claim(&self, n: u64) -> u64 {
        // Release, as in `try_claim_below`: a thread that reads a tail with this claim also sees what was recorded
        // about the claim before.
        self.claims.tail.fetch_add(n, Ordering::Release).wrapping_add(n)
    }

    /// Lets claims go up to `to`. Called under the owner's lock. Never takes back a position that is already published.
    #[inline]
    pub(crate) fn publish(&self, to: u64, limit: u64) {
        self.supply.limit.store(limit, Ordering::Relaxed);
        if ahead(to, self.supply.published.load(Ordering::Relaxed)) > 0 {
            self.supply.published.store(to, Ordering::Release);
        }
    }

    /// Takes back the tokens that are published and not claimed, under the owner's lock: moves the tail up to
    /// `published` and returns the distance. The owner moves every other position by the same distance, so the levels
    /// of all quotas stay as they are.
    pub(crate) fn retract(&self) -> u64 {
        let published = self.published();
        let mut tail = self.tail();
        while ahead(published, tail) > 0 {
            match self.claims.tail.compare_exchange_weak(tail, published, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return published.wrapping_sub(tail),
                Err(now) => tail = now,
            }
        }
        0
    }

    /// Hands `n` tokens back. Returns false, and does nothing, while a claim waits for releases: the release then has to be
    /// [counted](Self::count_release) under the owner's lock, and the queue to be served.
    #[inline]
    pub(crate) fn try_release(&self, n: u64) -> bool {
        let mut word = self.claims.released.load(Ordering::Relaxed);
        while word & WATCHED == 0 {
            let counted = word.wrapping_add(n << 1);
            match self.claims.released.compare_exchange_weak(word, counted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Counts `n` released tokens, under the owner's lock.
    pub(crate) fn count_release(&self, n: u64) {
        self.claims.released.fetch_add(n << 1, Ordering::AcqRel);
    }

    /// Counts `n` tokens that the caller owes a release for.
    // AcqRel, here and in `take_owed`: a release by hand comes after everything that the thread did that forgot the grant.
    pub(crate) fn add_owed(&self, n: u64) {
        self.claims.owed.fetch_add(n, Ordering::AcqRel);
    }

    /// Takes `n` tokens off that count. The error is the count, if it is smaller.
    pub(crate) fn take_owed(&self, n: u64) -> Result<(), u64> {
        let mut owed = self.claims.owed.load(Ordering::Acquire);
        loop {
            let left = owed.checked_sub(n).ok_or(owed)?;
            match self.claims.owed.compare_exchange_weak(owed, left, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => owed = now,
            }
        }
    }

    /// Returns the number of tokens released since `seen`, and updates `seen`.
    pub(crate) fn released_since(&self, seen: &mut u64) -> u64 {
        Self::count_since(self.claims.released.load(Ordering::Acquire), seen)
    }

    /// Makes [`try_release`](Self::try_release) return false from now on, and returns the number of tokens released since
    /// `seen`.
    pub(crate) fn watch_releases(&self, seen: &mut u64) -> u64 {
        Self::count_since(self.claims.released.fetch_or(WATCHED, Ordering::AcqRel), seen)
    }

    pub(crate) fn ignore_releases(&self) {
        self.claims.released.fetch_and(!WATCHED, Ordering::AcqRel);
    }

    fn count_since(word: u64, seen: &mut u64) -> u64 {
        let count = word & !WATCHED;
        // Below 2^63, the limit for tokens in flight.
        let new = count.wrapping_sub(*seen) >> 1;
        *seen = count;
        new
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
