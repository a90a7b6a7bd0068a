//! The table of the distributed keyed limiter, in shards: keys that have a limiter, and cached replies of other keys.
//!
//! A cached reply may be dropped at any time, at the cost of a round trip, so no eviction order is needed. A limiter is
//! dropped only when it is at rest: its tokens are returned, and its debts are paid.
//!
//! Under a shard's lock, the only user code that runs is `Eq` and `Clone` of keys, before the first change that it
//! serves. Removed values are returned to the caller, which drops them after releasing the lock.

use super::cached_reply::CachedReply;
use crate::Limiter;
use crate::core::{drop_quietly, steps};
use crate::keyed::groups::Groups;
use crate::sync::{AtomicU64, Ordering, ShardMutex};

/// The largest number of shards, and the smallest number of keys for each. A search for limiters at rest locks one shard at a
/// time.
const MAX_SHARDS: u64 = 512;
const KEYS_PER_SHARD: u64 = 64;
/// A caller that finds no place goes on to the next shard until it has looked at so many keys. A shard counts as at least
/// [`KEYS_PER_SHARD`], because of its lock.
const MOST_LOOKS: usize = 2_048;
/// With fewer cached replies than this, a table is not searched for stale ones.
const SMALL: usize = 8;
/// Entries in a group of the tables.
const SLOTS: usize = 5;

/// All shards, selected by the hashes of keys.
pub(super) struct RouteShards<K> {
    shards: Box<[ShardMutex<RouteShard<K>>]>,
    /// The largest number of limiters, and also of cached replies.
    pub(super) most: u64,
    limiters: AtomicU64,
    /// The shard that is searched next for limiters at rest, counted on and on.
    next: AtomicU64,
    /// Tokens granted by single requests, and by limiters that were forgotten.
    pub(super) granted: AtomicU64,
    /// How many of these came back unused.
    pub(super) refunded: AtomicU64,
}

struct RouteShard<K> {
    keys: Groups<Entry<K>, SLOTS>,
    /// How many of the keys have a cached reply.
    cached: usize,
    /// When there are this many cached replies, the stale ones are removed.
    prune_at: usize,
}

struct Entry<K> {
    key: K,
    hash: u64,
    known: Known,
}

/// A key's limiter, or its cached reply.
#[derive(Clone)]
pub(super) enum Known {
    Limiter(Limiter),
    Reply(CachedReply),
}

impl Known {
    pub(super) fn limiter(&self) -> Option<&Limiter> {
        if let Self::Limiter(limiter) = self { Some(limiter) } else { None }
    }
}

impl<K> RouteShards<K> {
    pub(super) fn new(most: u64) -> Self {
        let count = (most / KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shard = |_| ShardMutex::new(RouteShard { keys: Groups::new(), cached: 0, prune_at: SMALL });
        Self {
            shards: (0..count).map(shard).collect(),
            most,
            limiters: AtomicU64::new(0),
            next: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            refunded: AtomicU64::new(0),
        }
    }

    /// Returns how many keys have a limiter.
    pub(super) fn limiters(&self) -> u64 {
        self.limiters.load(Ordering::Acquire)
    }

    /// Returns how many keys have a cached reply.
    pub(super) fn cached(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().cached).sum()
    }

    fn shard(&self, hash: u64) -> &ShardMutex<RouteShard<K>> {
        &self.shards[crate::keyed::shard_of(hash, self.shards.len())]
    }

    /// Visits all limiters, one shard at a time.
    pub(super) fn each_limiter(&self, mut act: impl FnMut(&Limiter)) {
        for shard in &self.shards {
            let limiter = |entry: &Entry<K>| entry.known.limiter().cloned();
            let limiters: Vec<_> = shard.lock().keys.iter().filter_map(limiter).collect();
            limiters.iter().for_each(&mut act);
        }
    }

    /// How many shards there are.
    pub(super) fn count(&self) -> usize {
        self.shards.len()
    }

    /// [Searches](Self::tidy_next) some shards.
    pub(super) fn tidy_some(&self) {
        let mut looks = 0;
        for _ in 0..self.shards.len() {
            looks += self.tidy_next().max(KEYS_PER_SHARD as usize);
            if looks >= MOST_LOOKS {
                break;
            }
        }
    }

    /// Forgets the limiters at rest in the shard behind the one that was searched last. Returns how many keys it had.
    pub(super) fn tidy_next(&self) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len() as u64;
        let mut shard = self.shards[number as usize].lock();
        let (looks, mut gone) = (shard.keys.len(), Vec::new());
        let is_spare = |entry: &mut Entry<K>| {
            steps::count();
            entry.known.limiter().is_some_and(|limiter| limiter.core().is_spare())
        };
        shard.keys.extract(is_spare, |entry| gone.push(entry));
        for limiter in gone.iter().filter_map(|entry| entry.known.limiter()) {
            // Under the lock, so that a snapshot counts each limiter here or there.
            let core = limiter.core();
            let (granted, refunded) = core.look_at(|state, rovers, _| (state.granted(rovers), state.totals.refunded));
            self.granted.fetch_add(granted, Ordering::Relaxed);
            self.refunded.fetch_add(refunded, Ordering::Relaxed);
        }
        shard.keys.shrink(SMALL, |entry| entry.hash);
        drop(shard);
        self.limiters.fetch_sub(gone.len() as u64, Ordering::AcqRel);
        drop_all(gone);
        looks
    }
}

impl<K: Eq + Clone> RouteShards<K> {
    pub(super) fn find(&self, key: &K, hash: u64) -> Option<Known> {
        let keys = &self.shard(hash).lock().keys;
        Some(keys.at(keys.index_of(hash, |entry| entry.key == *key)?)?.known.clone())
    }

    /// Changes the cached reply of a key that has no limiter, and keeps it.
    pub(super) fn note<R>(&self, key: &K, hash: u64, now: u64, act: impl FnOnce(&mut CachedReply) -> R) -> R {
        let (mut gone, mut reply) = (Vec::new(), CachedReply::nothing(now));
        let mut shard = self.shard(hash).lock();
        let index = shard.keys.index_of(hash, |entry| entry.key == *key);
        let known = index.and_then(|index| Some(&mut shard.keys.at_mut(index)?.known));
        let has_limiter = known.as_ref().is_some_and(|known| known.limiter().is_some());
        if let Some(Known::Reply(reply)) = known {
            return act(reply);
        }
        let result = act(&mut reply);
        if !has_limiter {
            let entry = Entry { key: key.clone(), hash, known: Known::Reply(reply) };
            let most = usize::try_from(self.most / self.shards.len() as u64).unwrap_or(usize::MAX);
            shard.make_space(now, most, &mut gone);
            shard.keys.insert(hash, entry);
            shard.cached += 1;
        }
        drop(shard);
        drop_all(gone);
        result
    }

    /// Returns the key's limiter. If it has none, inserts `limiter` if there is a place, or in any case if `must` is
    /// set.
    pub(super) fn put(&self, key: &K, hash: u64, limiter: Limiter, must: bool) -> Option<Limiter> {
        let mut shard = self.shard(hash).lock();
        let index = shard.keys.index_of(hash, |entry| entry.key == *key);
        if let Some(found) = index.and_then(|index| shard.keys.at(index)?.known.limiter().cloned()) {
            return Some(found);
        }
        let new_key = if index.is_none() { Some(key.clone()) } else { None };
        let most = if must { u64::MAX } else { self.most };
        let taken = self
            .limiters
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        if taken.is_err() {
            drop(shard);
            drop_quietly(new_key);
            return None;
        }
        let known = Known::Limiter(limiter.clone());
        if let Some(key) = new_key {
            shard.keys.make_space(|entry| entry.hash);
            shard.keys.insert(hash, Entry { key, hash, known });
        } else if let Some(entry) = index.and_then(|index| shard.keys.at_mut(index)) {
            entry.known = known;
            shard.cached -= 1;
        }
        Some(limiter)
    }
}

/// Drops the entries one by one. Keys are user types, and a panic of their drop must not lose a claim or end the task
/// that forgets limiters. Two panics from one vector would abort the process.
fn drop_all<K>(gone: Vec<Entry<K>>) {
    gone.into_iter().for_each(drop_quietly);
}

impl<K> RouteShard<K> {
    /// Makes space for one more cached reply. What is removed comes to `gone`, which is empty.
    fn make_space(&mut self, now: u64, most: usize, gone: &mut Vec<Entry<K>>) {
        if self.cached >= self.prune_at.min(most) {
            let is_stale = |entry: &mut Entry<K>| matches!(&entry.known, Known::Reply(reply) if reply.is_stale(now));
            self.keys.extract(is_stale, |entry| gone.push(entry));
            // If few were stale, remove all: otherwise the next insertion would search again.
            if self.cached - gone.len() > most / 2 {
                self.keys.extract(|entry| entry.known.limiter().is_none(), |entry| gone.push(entry));
            }
            self.cached -= gone.len();
            self.prune_at = (2 * self.cached).max(SMALL);
            self.keys.shrink(SMALL, |entry| entry.hash);
        }
        self.keys.make_space(|entry| entry.hash);
    }
}
