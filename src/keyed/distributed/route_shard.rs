//! Who is here: keys that have a limiter, and what was said of others.
//!
//! What was said may be thrown away at any time, at the price of a round trip; so it needs no order in which to be thrown away.
//! A limiter is let go of only when it is at rest: what it held has gone back, and what it owes is paid.
//!
//! Under a shelf's lock runs no user code but `Eq` and `Clone` of keys, before the first change of what they are for. What
//! leaves is handed out, to be dropped without the lock.

use super::cached_reply::CachedReply;
use crate::Limiter;
use crate::core::drop_quietly;
use crate::core::sync::{AtomicU64, Ordering, ShardMutex};
use crate::keyed::groups::Groups;

/// So many shelves at most, and each for so many keys.
const MAX_SHARDS: u64 = 64;
const KEYS_PER_SHARD: u64 = 64;
/// With fewer than so many entries a shelf is not worth going through.
const SMALL: usize = 64;
/// Entries in a group of its tables: those of small keys fill three cache lines.
const SLOTS: usize = 5;

/// All of them, by the hashes of keys.
pub(super) struct RouteShards<K> {
    shards: Box<[ShardMutex<RouteShard<K>>]>,
    /// How many limiters there may be, and as many keys of which something was said.
    most: u64,
    limiters: AtomicU64,
}

struct RouteShard<K> {
    limiters: Groups<Entry<K, Limiter>, SLOTS>,
    cached: Groups<Entry<K, CachedReply>, SLOTS>,
    /// Once so many are remembered, those that need not be are looked for.
    crowd: usize,
}

struct Entry<K, V> {
    key: K,
    hash: u64,
    value: V,
}

/// A key's limiter, or what was said of the key.
pub(super) enum Found {
    Limiter(Limiter),
    CachedReply(CachedReply),
    Nothing,
}

impl<K> RouteShards<K> {
    pub(super) fn new(most: Option<u64>) -> Self {
        let most = most.unwrap_or(u64::MAX);
        let count = (most / KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shard = |_| ShardMutex::new(RouteShard { limiters: Groups::new(), cached: Groups::new(), crowd: SMALL });
        Self { shards: (0..count).map(shard).collect(), most, limiters: AtomicU64::new(0) }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// How many keys have a limiter.
    pub(super) fn limiters(&self) -> u64 {
        self.limiters.load(Ordering::Acquire)
    }

    /// How many keys something was said of.
    pub(super) fn remembered(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().cached.len()).sum()
    }

    fn shard(&self, hash: u64) -> &ShardMutex<RouteShard<K>> {
        let number = (u128::from(crate::keyed::mix(hash)) * self.shards.len() as u128) >> 64;
        &self.shards[number as usize]
    }

    /// How many keys each shelf may remember.
    fn most_cached(&self) -> usize {
        usize::try_from(self.most / self.shards.len() as u64).unwrap_or(usize::MAX).max(1)
    }

    /// All limiters, a shelf at a time.
    pub(super) fn each_limiter(&self, mut act: impl FnMut(&Limiter)) {
        for shard in &self.shards {
            let limiters: Vec<Limiter> = shard.lock().limiters.iter().map(|entry| entry.value.clone()).collect();
            limiters.iter().for_each(&mut act);
        }
    }

    /// Forgets the limiters of one shelf that are at rest. False if there is no such shelf.
    pub(super) fn tidy(&self, number: usize) -> bool {
        let Some(shard) = self.shards.get(number) else { return false };
        let mut shard = shard.lock();
        let mut gone = Vec::new();
        shard.limiters.extract(|entry| entry.value.is_spare(), |entry| gone.push(entry));
        shard.limiters.shrink(SMALL, |entry| entry.hash);
        drop(shard);
        self.limiters.fetch_sub(gone.len() as u64, Ordering::AcqRel);
        drop_all(gone);
        true
    }
}

impl<K: Eq + Clone> RouteShards<K> {
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

    /// Changes what was said of a key that has no limiter, and remembers it.
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

    /// The key's limiter; this one, if it has none and there is a place, or with `must` in any case.
    pub(super) fn put(&self, key: &K, hash: u64, limiter: Limiter, must: bool) -> Option<Limiter> {
        let mut shard = self.shard(hash).lock();
        if let Some(entry) = shard.limiters.find(hash, |entry| entry.key == *key) {
            let found = entry.value.clone();
            drop(shard);
            return Some(found);
        }
        let cached = shard.cached.place(hash, |entry| entry.key == *key);
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

/// Keys are the user's: nobody's claim is lost by a drop that panics, nor the task that tidies. Each by itself, since two that
/// panic on their way out of one vector would abort the process.
fn drop_all<K, V>(gone: Vec<Entry<K, V>>) {
    gone.into_iter().for_each(drop_quietly);
}

impl<K> RouteShard<K> {
    /// Sees to it that something may be said of one key more.
    fn make_space(&mut self, now: u64, most: usize, gone: &mut Vec<Entry<K, CachedReply>>) {
        if self.cached.len() >= self.crowd.min(most) {
            self.cached.extract(|entry| entry.value.is_stale(now), |entry| gone.push(entry));
            // Where little was, all goes: else the next one would have to look again.
            if self.cached.len() > most / 2 {
                self.cached.extract(|_| true, |entry| gone.push(entry));
            }
            self.crowd = (2 * self.cached.len()).max(SMALL);
            self.cached.shrink(SMALL, |entry| entry.hash);
        }
        self.cached.make_space(|entry| entry.hash);
    }
}
