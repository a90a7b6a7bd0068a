//! The tables of the distributed keyed limiter, in shards: keys that have a limiter, and cached replies of other keys.
//!
//! A cached reply may be dropped at any time, at the cost of a round trip, so no eviction order is needed. A limiter is
//! dropped only when it is at rest: its tokens are returned, and its debts are paid.
//!
//! Under a shard's lock, the only user code that runs is `Eq` and `Clone` of keys, before the first change that it
//! serves. Removed values are returned to the caller, which drops them after releasing the lock.

use super::cached_reply::CachedReply;
use crate::Limiter;
use crate::core::drop_quietly;
use crate::keyed::groups::Groups;
use crate::sync::{AtomicU64, Ordering, ShardMutex};

/// The largest number of shards, and the smallest number of keys for each.
const MAX_SHARDS: u64 = 64;
const KEYS_PER_SHARD: u64 = 64;
/// With fewer entries than this, a table is not searched.
const SMALL: usize = 64;
/// Entries in a group of the tables: with small keys a group fills three cache lines.
const SLOTS: usize = 5;

/// All shards, selected by the hashes of keys.
pub(super) struct RouteShards<K> {
    shards: Box<[ShardMutex<RouteShard<K>>]>,
    /// The largest number of limiters, and also of cached replies.
    most: u64,
    limiters: AtomicU64,
    /// Tokens granted by limiters that were forgotten. `refunded`: how many of these tokens came back.
    granted: AtomicU64,
    refunded: AtomicU64,
}

struct RouteShard<K> {
    limiters: Groups<Entry<K, Limiter>, SLOTS>,
    cached: Groups<Entry<K, CachedReply>, SLOTS>,
    /// When there are this many cached replies, the stale ones are removed.
    prune_at: usize,
}

struct Entry<K, V> {
    key: K,
    hash: u64,
    value: V,
}

/// A key's limiter, or its cached reply.
pub(super) enum Found {
    Limiter(Limiter),
    CachedReply(CachedReply),
    Nothing,
}

impl<K> RouteShards<K> {
    pub(super) fn new(most: u64) -> Self {
        let count = (most / KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shard = |_| ShardMutex::new(RouteShard { limiters: Groups::new(), cached: Groups::new(), prune_at: SMALL });
        Self {
            shards: (0..count).map(shard).collect(),
            most,
            limiters: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            refunded: AtomicU64::new(0),
        }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Returns how many keys have a limiter.
    pub(super) fn limiters(&self) -> u64 {
        self.limiters.load(Ordering::Acquire)
    }

    /// Returns how many keys have a cached reply.
    pub(super) fn cached(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().cached.len()).sum()
    }

    fn shard(&self, hash: u64) -> &ShardMutex<RouteShard<K>> {
        let number = (u128::from(crate::keyed::mix(hash)) * self.shards.len() as u128) >> 64;
        &self.shards[number as usize]
    }

    /// The largest number of cached replies in each shard.
    fn most_cached(&self) -> usize {
        usize::try_from(self.most / self.shards.len() as u64).unwrap_or(usize::MAX).max(1)
    }

    /// Visits all limiters, one shard at a time.
    pub(super) fn each_limiter(&self, mut act: impl FnMut(&Limiter)) {
        self.list(|entry| entry.value.clone()).for_each(|limiter| act(&limiter));
    }

    fn list<T>(&self, of: impl Fn(&Entry<K, Limiter>) -> T) -> impl Iterator<Item = T> {
        self.shards.iter().flat_map(move |shard| shard.lock().limiters.iter().map(&of).collect::<Vec<_>>())
    }

    /// Returns the tokens granted by limiters that were forgotten, and how many of these tokens came back.
    pub(super) fn forgotten(&self) -> (u64, u64) {
        (self.granted.load(Ordering::Relaxed), self.refunded.load(Ordering::Relaxed))
    }

    /// Forgets the limiters of shard `number` that are at rest. Returns false if there is no such shard.
    pub(super) fn tidy(&self, number: usize) -> bool {
        let Some(shard) = self.shards.get(number) else { return false };
        let mut shard = shard.lock();
        let mut gone = Vec::new();
        shard.limiters.extract(|entry| entry.value.core().is_spare(), |entry| gone.push(entry));
        for entry in &gone {
            // Under the lock, so that a snapshot counts each limiter here or there.
            let core = entry.value.core();
            let (granted, refunded) = core.look_at(|state, rovers, _| (state.granted(rovers), state.totals.refunded));
            self.granted.fetch_add(granted, Ordering::Relaxed);
            self.refunded.fetch_add(refunded, Ordering::Relaxed);
        }
        shard.limiters.shrink(SMALL, |entry| entry.hash);
        drop(shard);
        self.limiters.fetch_sub(gone.len() as u64, Ordering::AcqRel);
        drop_all(gone);
        true
    }
}

impl<K: Eq + Clone> RouteShards<K> {
    /// All keys that have a limiter, one shard at a time.
    pub(super) fn entries(&self) -> impl Iterator<Item = (K, Limiter)> {
        self.list(|entry| (entry.key.clone(), entry.value.clone()))
    }

    pub(super) fn find(&self, key: &K, hash: u64) -> Found {
        let shard = self.shard(hash).lock();
        if let Some(entry) = shard.limiters.find(hash, |entry| entry.key == *key) {
            return Found::Limiter(entry.value.clone());
        }
        shard
            .cached
            .find(hash, |entry| entry.key == *key)
            .map_or(Found::Nothing, |entry| Found::CachedReply(entry.value))
    }

    /// Changes the cached reply of a key that has no limiter, and keeps it.
    pub(super) fn note<R>(&self, key: &K, hash: u64, now: u64, act: impl FnOnce(&mut CachedReply) -> R) -> R {
        let mut gone = Vec::new();
        let mut shard = self.shard(hash).lock();
        let result = if let Some(entry) = shard.cached.find_mut(hash, |entry| entry.key == *key) {
            act(&mut entry.value)
        } else {
            let mut value = CachedReply::nothing(now);
            let result = act(&mut value);
            if shard.limiters.find(hash, |entry| entry.key == *key).is_none() {
                let key = key.clone();
                shard.make_space(now, self.most_cached(), &mut gone);
                shard.cached.insert(hash, Entry { key, hash, value });
            }
            result
        };
        drop(shard);
        drop_all(gone);
        result
    }

    /// Returns the key's limiter. If it has none, inserts `limiter` if there is a place, or in any case if `must` is
    /// set.
    pub(super) fn put(&self, key: &K, hash: u64, limiter: Limiter, must: bool) -> Option<Limiter> {
        let mut shard = self.shard(hash).lock();
        if let Some(entry) = shard.limiters.find(hash, |entry| entry.key == *key) {
            let found = entry.value.clone();
            drop(shard);
            return Some(found);
        }
        let cached = shard.cached.index_of(hash, |entry| entry.key == *key);
        let key = key.clone();
        shard.limiters.make_space(|entry| entry.hash);
        let most = if must { u64::MAX } else { self.most };
        let taken = self
            .limiters
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        if taken.is_err() {
            drop(shard);
            drop_quietly(key);
            return None;
        }
        let cached = cached.and_then(|place| shard.cached.take(place));
        shard.limiters.insert(hash, Entry { key, hash, value: limiter.clone() });
        drop(shard);
        drop_quietly(cached);
        Some(limiter)
    }
}

/// Drops the entries one by one. Keys are user types, and a panic of their drop must not lose a claim or end the task
/// that forgets limiters. Two panics from one vector would abort the process.
fn drop_all<K, V>(gone: Vec<Entry<K, V>>) {
    gone.into_iter().for_each(drop_quietly);
}

impl<K> RouteShard<K> {
    /// Makes space for one more cached reply.
    fn make_space(&mut self, now: u64, most: usize, gone: &mut Vec<Entry<K, CachedReply>>) {
        if self.cached.len() >= self.prune_at.min(most) {
            self.cached.extract(|entry| entry.value.is_stale(now), |entry| gone.push(entry));
            // If few entries were stale, remove all: otherwise the next insertion would search again.
            if self.cached.len() > most / 2 {
                self.cached.extract(|_| true, |entry| gone.push(entry));
            }
            self.prune_at = (2 * self.cached.len()).max(SMALL);
            self.cached.shrink(SMALL, |entry| entry.hash);
        }
        self.cached.make_space(|entry| entry.hash);
    }
}
