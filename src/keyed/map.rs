//! The map: which room a key is in, and what happens when a room says that it cannot go on by itself.
//!
//! The shape of every verb: hash the key and read the time, lock the key's room, act on its level; or, if it has a
//! [seat](super::seat), leave the room and act on that. At most one room is locked at a time, and nothing but `Eq`,
//! `Hash` and `Clone` of keys runs under its lock (see [`shard`](super::shard)). The verbs are in `map/`.

mod changes;
mod paying;
mod taking;
mod view;

use super::driver_pool::{DriverPool, EntryOwner};
use super::key_limit::KeyLimit;
use super::live::LiveTemplate;
use super::rate::{Left, Level, Rate};
use super::shard::{Deferred, EntryRequest, Locked, Shard, ShardContext, Stop};
use super::top::Top;
use crate::Quota;
use crate::core::sync::{AtomicU64, Mutex, ShardMutex};
use crate::core::{ChildLimiter, Core};
use crate::error::ConsumeError;
use crate::grant::Permit;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How far debts may go, as in a line.
const MAX_SPAN: i64 = 1 << 62;

/// How many slots of tables a newcomer goes through at most before it is turned away, beside those of the last room: no more
/// than one room has in a map without a bound on its keys, of which there are a million.
const MAX_SLOTS: usize = 4_096;
/// A room costs its lock, however few slots it has.
const LEAST_SLOTS: usize = 64;

pub(super) type QuotaBy<K> = Box<dyn Fn(&K) -> Quota + Send + Sync>;

pub(super) struct Map<K, S> {
    hasher: S,
    pub(super) shards: Box<[Locked<K>]>,
    pub(super) key_limit: KeyLimit,
    pub(super) template: LiveTemplate,
    quota_by: Option<QuotaBy<K>>,
    /// What quotas were asked for lately, so that keys of one quota share it.
    known: Mutex<Vec<Arc<Rate>>>,
    /// Where newcomers go when the map is full, if not away.
    pub(super) overflow: Option<Arc<Core>>,
    pub(super) pool: Arc<DriverPool>,
    /// A limiter above all keys, which has to grant too.
    pub(super) parent: Option<Arc<Core>>,
    /// Counts the quotas for all.
    versions: AtomicU64,
    pub(super) top: ShardMutex<Top<K>>,
}

impl<K, S> fmt::Debug for Map<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("rooms", &self.shards.len()).finish_non_exhaustive()
    }
}

/// What the builder has checked.
pub(super) struct Parts<K, S> {
    pub(super) hasher: S,
    pub(super) rate: Arc<Rate>,
    pub(super) quota_by: Option<QuotaBy<K>>,
    pub(super) shards: usize,
    pub(super) max_keys: Option<u64>,
    pub(super) template: LiveTemplate,
    pub(super) overflow: Option<Arc<Rate>>,
    pub(super) pool: Arc<DriverPool>,
}

/// What a room did.
enum Entered<R> {
    Done(R),
    /// The key has a seat, or a newcomer gets that of the overflow.
    Live(Arc<Core>),
    Full,
}

/// Tokens that were taken, and what is left behind them.
pub(super) enum Taken {
    /// From the key's level.
    Level { left: Left },
    /// From a seat.
    Live(Permit<Arc<Core>>),
}

impl Taken {
    fn whole(remaining: u64) -> Self {
        Self::Level { left: Left::whole(remaining) }
    }
}

/// How a claim begins.
pub(super) enum Arrival {
    Taken(Taken),
    /// Stand in this line.
    Wait(Arc<Core>),
    Refused(ConsumeError),
}

enum Verdict {
    Taken(u64),
    Refused(ConsumeError),
    Wait,
}

impl<K, S> Map<K, S> {
    pub(super) fn new(parts: Parts<K, S>) -> Self {
        let Parts { hasher, rate, quota_by, shards, max_keys, template, overflow, pool } = parts;
        let by_key = quota_by.is_some();
        let full = |rate: Arc<Rate>| template.live(&rate, Level { units: rate.full(), at: 0 }, 0, 0);
        Self {
            hasher,
            shards: (0..shards).map(|_| Locked::new(Arc::clone(&rate), by_key)).collect(),
            key_limit: KeyLimit::new(max_keys, shards),
            overflow: overflow.map(full),
            parent: template.parent.clone(),
            template,
            quota_by,
            known: Mutex::new(Default::default()),
            pool,
            versions: AtomicU64::new(0),
            top: ShardMutex::new(Top::default()),
        }
    }

    /// The room of a hash. By its upper bits mixed: tables use the others, and hashes of a fast hasher may have few.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        ((super::mix(hash) as u128 * self.shards.len() as u128) >> 64) as usize
    }

    pub(super) fn now(&self) -> u64 {
        self.template.time.now()
    }

    /// A seat of this key may not be needed any more.
    pub(super) fn may_be_idle(&self, hash: u64) {
        self.key_limit.idle_now(self.shard_of(hash));
    }

    /// A seat of this key was let go of, or its tokens have landed.
    pub(super) fn let_go(&self, hash: u64, live: Arc<Core>) {
        drop(live);
        self.key_limit.idle_now(self.shard_of(hash));
    }
}

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Acts in the room of `number`, whose trash is dropped after its lock.
    pub(super) fn in_shard<R>(
        &self,
        number: usize,
        act: impl FnOnce(&mut Shard<K>, &ShardContext<'_, K>, &mut Deferred<K>) -> R,
    ) -> R {
        let mut deferred = Deferred::default();
        let hash_of = |key: &K| self.hasher.hash_one(key);
        let context = ShardContext { key_limit: &self.key_limit, number, template: &self.template, hash_of: &hash_of };
        let mut shard = self.shards[number].lock();
        act(&mut shard, &context, &mut deferred)
    }

    /// Acts on `key` in its room, again if something had to be asked or made room for first.
    fn enter<R>(
        &self,
        key: &K,
        hash: u64,
        must: bool,
        act: impl Fn(&mut Shard<K>, &EntryRequest<'_, K>, &ShardContext<'_, K>, &mut Deferred<K>) -> Result<R, Stop>,
    ) -> Entered<R> {
        let number = self.shard_of(hash);
        let mut ask = EntryRequest { key, hash, now: self.now(), offered: None, must };
        loop {
            let (result, synced) =
                self.in_shard(number, |shard, context, deferred| (act(shard, &ask, context, deferred), shard.synced()));
            match result {
                Ok(result) => return Entered::Done(result),
                Err(Stop::Live(live)) => return Entered::Live(live),
                Err(Stop::AskQuota) => ask.offered = Some(self.ask_quota(key)),
                // By the room's time: a clock that stepped back has nobody owe again.
                Err(Stop::NoSpace) if self.make_space(number, synced) => {}
                Err(Stop::NoSpace) => return self.overflow.clone().map_or(Entered::Full, Entered::Live),
            }
            ask.now = self.now();
        }
    }

    /// What `quota_by` says of a key.
    ///
    /// # Panics
    /// If no limiter could be built from it.
    fn ask_quota(&self, key: &K) -> Arc<Rate> {
        let quota_by = self.quota_by.as_ref().expect("only asked for if there is one");
        let quota = quota_by(key);
        if let Err(error) = super::builder::check(&quota) {
            panic!("quota_by gave a key a quota that makes no sense: {error}");
        }
        self.rate(quota)
    }

    /// The rate of a checked quota; the same one for those who ask for the same.
    fn rate(&self, quota: Quota) -> Arc<Rate> {
        const REMEMBERED: usize = 16;
        let mut known = self.known.lock();
        if let Some(rate) = known.iter().find(|rate| rate.quota == quota) {
            return Arc::clone(rate);
        }
        let rate = Arc::new(Rate::new(quota));
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(Arc::clone(&rate));
        rate
    }

    /// Forgets somebody who is full, in whatever room. False if everybody owes, or if nobody who does not was found in the
    /// [`MAX_SLOTS`] that one call goes through: the next call goes on where this one ended.
    fn make_space(&self, from: usize, now: u64) -> bool {
        let mut slots = 0;
        while slots < MAX_SLOTS
            && let Some(number) = self.key_limit.find_idle(from, now)
        {
            slots += self.in_shard(number, |shard, context, deferred| {
                shard.sweep_at(now, context, deferred);
                shard.slots().max(LEAST_SLOTS)
            });
            if self.key_limit.has_place() {
                return true;
            }
        }
        self.key_limit.has_place()
    }
}

impl<K, S> EntryOwner for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn retire(&self, live: *const Core, hash: u64, now: u64) -> bool {
        let retire = || {
            self.in_shard(self.shard_of(hash), |shard, context, deferred| {
                shard.retire(hash, live, now, context, deferred)
            })
        };
        // A key's `Hash` that panics where the room catches up must not end the attendant: it comes again later.
        catch_unwind(AssertUnwindSafe(retire)).unwrap_or(false)
    }

    fn live_entries(&self) -> Vec<Arc<Core>> {
        let shards = (0..self.shards.len())
            .flat_map(|number| self.in_shard(number, |shard, _, _| shard.live_entries().cloned().collect::<Vec<_>>()));
        shards.chain(self.overflow.clone()).collect()
    }

    fn let_go(&self, hash: u64) {
        self.may_be_idle(hash);
    }
}

impl<K, S> ChildLimiter for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn close(&self) {
        Map::close(self);
    }
}

impl<K, S> Drop for Map<K, S> {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// How long it is until `at`. What could pass by now need not wait until a clock that stepped back has caught up.
fn wait(at: u64, level: Level, now: u64) -> Duration {
    Duration::from_nanos(if at <= level.at { 0 } else { at.saturating_sub(now) })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::EntryOwner;
    use crate::{KeyedLimiter, Limiter, ManualClock, Quota};
    use tokio_test::task::spawn;

    #[test]
    fn a_seat_knows_the_limiter_above() {
        let clock = ManualClock::new();
        let parent = Limiter::builder().quota(Quota::per_second(1)).clock(clock.clone()).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).clock(clock);
        let keyed = builder.parent(&parent).build().unwrap();
        drop(keyed.try_acquire(&1, 1).unwrap());
        let mut waiting = spawn(keyed.consume(&1, 1));
        assert!(waiting.poll().is_pending());
        let live_entries = keyed.map.live_entries();
        assert!(live_entries[0].parent().is_some_and(|limiter| std::ptr::eq(&**limiter, parent.core())));
    }
}
