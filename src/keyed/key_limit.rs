//! The bound on the number of keys in memory, and where and when to look for keys to forget.
//!
//! For each shard, `idle` is an instant before which no key of the shard can be full. It is never too late, because
//! every event that can make a key full earlier lowers it. So if no shard's instant has come, every key owes tokens,
//! and a new key is refused at the cost of reading these instants. A shard that was swept in vain is not swept again
//! before its instant has come.

use super::ToKey;
use crate::sync::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The bound on the number of keys. Shared by all shards, and changed under the lock of any of them.
#[derive(Debug)]
pub(super) struct KeyLimit {
    /// The bound; `u64::MAX` if there is none.
    pub(super) most: u64,
    /// The number of keys. Not counted without a bound.
    keys: AtomicU64,
    /// For each shard, the instant before which no key in it is full.
    idle: Box<[AtomicU64]>,
}

impl KeyLimit {
    pub(super) fn new(most: u64, shards: usize) -> Self {
        Self { most, keys: AtomicU64::new(0), idle: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    /// Counts one more key and makes it, if the bound allows it or the key is `forced`. Called under the shard's lock.
    #[inline]
    pub(super) fn take_place<K>(&self, form: &(impl ToKey<K> + ?Sized), forced: bool) -> Option<K> {
        if self.most < u64::MAX {
            let take = |keys| (forced || keys < self.most).then(|| keys + 1);
            self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        }
        // Only now: a caller that cycles through keys while the map is full must not cause clones. It may panic.
        let key = catch_unwind(AssertUnwindSafe(|| form.to_key()));
        Some(key.unwrap_or_else(|panic| {
            self.give_back(1);
            resume_unwind(panic)
        }))
    }

    pub(super) fn has_place(&self) -> bool {
        self.keys.load(Ordering::Relaxed) < self.most
    }

    pub(super) fn give_back(&self, places: usize) {
        if self.most < u64::MAX {
            self.keys.fetch_sub(places as u64, Ordering::Relaxed);
        }
    }

    /// Records that a key of this shard may be full at this instant. Called under the shard's lock.
    pub(super) fn idle_no_later_than(&self, shard: usize, at: u64) {
        // Most new keys are full later than others: then nothing is written.
        if self.idle[shard].load(Ordering::Relaxed) > at {
            self.idle[shard].fetch_min(at, Ordering::AcqRel);
        }
    }

    /// Records that a key with this hash may be full already.
    pub(super) fn may_be_idle_now(&self, hash: u64) {
        self.idle_now(super::shard_of(hash, self.idle.len()));
    }

    /// Records that a key of this shard may be full already.
    pub(super) fn idle_now(&self, shard: usize) {
        self.idle[shard].swap(0, Ordering::AcqRel);
    }

    /// Resets the shard's instant before its sweep. What other threads record from now on is combined with what the
    /// sweep finds.
    pub(super) fn begin_sweep(&self, shard: usize) {
        // Pairs with the Release of a thread that dropped a live entry and then called `idle_now`: the sweep sees the
        // drop.
        self.idle[shard].swap(u64::MAX, Ordering::AcqRel);
    }

    /// Whether a key of this shard may be full by `now`.
    pub(super) fn may_be_idle(&self, shard: usize, now: u64) -> bool {
        self.idle[shard].load(Ordering::Acquire) <= now
    }

    /// Finds a shard in which a key may be full by `now`, starting at shard `from`.
    pub(super) fn find_idle(&self, from: usize, now: u64) -> Option<usize> {
        let shards = self.idle.len();
        (from..shards).chain(0..from.min(shards)).find(|shard| self.may_be_idle(*shard, now))
    }
}
