//! The map: selects the shard of a key, and handles the cases that a shard cannot handle alone.
//!
//! Every call takes the same steps:
//!
//! 1. Hash the key and read the time. (If reading it runs no user code, the fast path reads it under the lock.)
//! 2. Lock the key's shard and act on the key's levels.
//! 3. If the key has a [live entry](super::live), release the shard's lock and act on the live entry.
//! 4. If the shard needs the quota of a new key, or space for it, release the lock, get that, and start again at step
//!    2.
//!
//! At most one shard is locked at a time, and no user code but `Eq`, `Hash` and `Clone` of keys runs under its lock
//! (see [`shard`](super::shard)). The calls are in `map/` and `limiter/`.

mod taking;

use super::driver_pool::{DriverPool, EntryOwner};
use super::key_limit::KeyLimit;
use super::live::{self, LiveTemplate};
use super::quotas::Quotas;
use super::rate::Left;
use super::rates::{Kind, Rates};
use super::shard::{Assigned, DeferredDrops, EntryRequest, Locked, Shard, ShardContext, Stop};
use super::top::SpaceSaving;
use super::{Hashed, ToKey};
use crate::core::classes::MAX_WEIGHT;
use crate::core::in_use::InUse;
use crate::core::state::ChildLimiter;
use crate::core::{Core, quietly};
use crate::error::ConfigError;
use crate::sync::{AtomicU64, Mutex, Ordering, ShardMutex};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// The number of slots after which a new key stops looking for a full one, beside the slots of the last shard it
/// visits. A slot counts once more for each change of the quotas that its shard has to catch up with.
const MAX_SLOTS: usize = 2_048;
/// The cost of visiting a shard counts as at least this many slots, because of its lock.
const LEAST_SLOTS: usize = 64;

/// The number of changes of the common quotas that may be pending in a shard, beside the last one. Each change makes
/// one shard in this many catch up. With more, the first call to a shard that had no calls would take longer.
const MAX_PENDING: usize = 4;

/// The user's function that chooses the quotas of a key.
pub(super) type QuotasBy<K> = Box<dyn Fn(&K) -> Quotas + Send + Sync>;
/// The user's function that chooses the weight of a key among the keys under a parent.
pub(super) type WeightBy<K> = Box<dyn Fn(&K) -> u64 + Send + Sync>;

/// The state that all clones of a keyed limiter share.
pub struct Map<K, S> {
    pub(super) hasher: S,
    pub(super) shards: Box<[Locked<K>]>,
    pub(super) key_limit: Arc<KeyLimit>,
    pub(super) template: LiveTemplate,
    pub(super) quota_by: Option<QuotasBy<K>>,
    /// The rates of the quotas that were used last, so that keys with equal quotas share their rates.
    pub(super) known: Mutex<Vec<Arc<Rates>>>,
    pub(super) pool: Arc<DriverPool>,
    /// By how many nanoseconds this limiter's time began after the parent's, if both read one clock.
    pub(super) after_parent: Option<i64>,
    pub(super) weight_by: Option<WeightBy<K>>,
    /// The version of the common quotas: how many times they were set.
    pub(super) versions: AtomicU64,
    /// The number of refused calls.
    pub(super) refused: AtomicU64,
    /// The keys with the most refusals since the limiter was built.
    pub(super) most_refused: ShardMutex<SpaceSaving<K>>,
    /// Whether a grant does more than take tokens of its key: it takes tokens of the parent too, is counted in the
    /// [ranks](super::top), or is in flight, or its cost is limited. In one flag, so that a limiter without any of them
    /// pays for one check.
    pub(super) has_extras: bool,
    /// Whether the shards keep the [ranks](super::top) of their keys.
    pub(super) is_ranked: bool,
}

/// The locks do not poison. `Hash`, `Eq` and `Clone` of keys run under them, and a panic there leaves the keys as they
/// were.
impl<K, S> UnwindSafe for Map<K, S> {}
impl<K, S> RefUnwindSafe for Map<K, S> {}

impl<K, S> fmt::Debug for Map<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

/// Tokens that were taken, and the tokens that remain.
pub(super) struct Taken {
    pub(super) left: Left,
    /// Present if a core settles and releases the tokens, and not the key's level: with an in-flight cap or a sliding quota.
    pub(super) live: InUse,
}

impl<K, S> Map<K, S> {
    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        super::shard_of(hash, self.shards.len())
    }

    pub(super) fn now(&self) -> u64 {
        self.template.time.now()
    }

    /// Whether dropping a grant releases tokens, of the key or of the parent.
    pub(super) fn holds_in_flight(&self) -> bool {
        self.template.cap.is_some() || self.template.parent.as_ref().is_some_and(|parent| parent.capped)
    }

    /// The weight of a key among the keys under a parent.
    pub(super) fn weight(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        self.weight_by.as_ref().map_or(1, |weight_by| weight_by(&key.to_key()).clamp(1, MAX_WEIGHT))
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Map<K, S> {
    pub(super) fn hashed<'a, Q: ToKey<K> + ?Sized>(&self, form: &'a Q) -> Hashed<'a, Q> {
        Hashed { form, hash: self.hasher.hash_one(form) }
    }

    /// Calls `act` under the lock of shard `number`, and drops what left the shard after unlocking.
    pub(super) fn in_shard<R>(
        &self,
        number: usize,
        act: impl FnOnce(&mut Shard<K>, &mut ShardContext<'_, K>) -> R,
    ) -> R {
        let hash_of = |key: &K| self.hasher.hash_one(key);
        let (key_limit, template) = (&self.key_limit, &self.template);
        let deferred = DeferredDrops { keys: Vec::new(), live_entries: Vec::new() };
        let mut context = ShardContext { key_limit, number, template, hash_of: &hash_of, deferred };
        // Unlocked before the context is dropped.
        act(&mut self.shards[number].lock(), &mut context)
    }

    /// Calls `act` on the live entry of `key`, which is created for it and retired at once if it is not needed. A key that
    /// is not in memory is skipped, unless it has to be stored, and always if the limiter is closed.
    pub(super) fn at_live(&self, key: &(impl ToKey<K> + ?Sized), is_stored: bool, act: impl FnOnce(&Core)) {
        let key = self.hashed(key);
        let live = self.enter(key, is_stored, |shard, request, context| {
            if (!is_stored || shard.is_closed()) && shard.index(request).is_none() {
                return Ok(());
            }
            Err(Stop::Live(shard.live(request, context)?))
        });
        if let Ok(Err(live)) = live {
            act(&live);
            self.retire_unused(key.hash, live);
        }
    }

    /// Retires the live entry at this address if it is not needed any more. Returns true if it is not in the map any
    /// more.
    fn retire(&self, hash: u64, live: *const Core, now: u64) -> bool {
        // `Hash` of a key may panic when the shard catches up. The panic must not end the driver, which tries again
        // later.
        let retire = || self.in_shard(self.shard_of(hash), |shard, context| shard.retire(hash, live, now, context));
        quietly(retire).unwrap_or(false)
    }

    /// Retires the live entry if the caller alone uses it.
    fn retire_unused(&self, hash: u64, live: InUse) {
        let address: *const Core = &raw const *live;
        drop(live);
        // Without a reading of the clock, which may panic: the call is done.
        self.retire(hash, address, 0);
    }

    /// Calls `act` in the shard of `key`, and again after asking for a quota or making space. The inner error is the
    /// live entry of the key, if it has one. The outer error is that of a new key: the map is full, or `quota_by`
    /// returned quotas that no key can have.
    pub(super) fn enter<Q: ToKey<K> + ?Sized, R>(
        &self,
        key: Hashed<'_, Q>,
        forced: bool,
        act: impl Fn(&mut Shard<K>, &EntryRequest<'_, Q>, &mut ShardContext<'_, K>) -> Result<R, Stop>,
    ) -> Result<Result<R, InUse>, ConfigError> {
        let number = self.shard_of(key.hash);
        let mut request = EntryRequest { key, now: self.now(), offered: None, forced };
        loop {
            let (result, synced) =
                self.in_shard(number, |shard, context| (act(shard, &request, context), shard.synced));
            match result {
                Ok(result) => return Ok(Ok(result)),
                Err(Stop::Live(live)) => return Ok(Err(live)),
                Err(Stop::AskQuota) => {
                    let quota_by = self.quota_by.as_ref().expect("a shard asks for quotas only if `quota_by` is set");
                    let quotas = quota_by(&key.form.to_key());
                    quotas.check()?;
                    request.offered = Some(self.rates(quotas));
                }
                // Use the shard's time: after a clock has stepped back, keys would still owe tokens at `now`.
                Err(Stop::NoSpace) if self.make_space(number, synced) => {}
                Err(Stop::NoSpace) => {
                    return Err(ConfigError::TooManyKeys { most: self.key_limit.most });
                }
                Err(Stop::Refused(error)) => return Err(*error),
            }
            request.now = self.now();
        }
    }

    /// Returns the rates of checked quotas: the same `Arc` for equal quotas, as far as these are in `known`.
    pub(super) fn rates(&self, quotas: Quotas) -> Arc<Rates> {
        const REMEMBERED: usize = 16;
        let mut known = self.known.lock();
        if let Some(rates) = known.iter().find(|rates| rates.quotas == quotas) {
            return Arc::clone(rates);
        }
        let rates = Arc::new(Rates::new(quotas, Some(&self.template.calendars)));
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(Arc::clone(&rates));
        rates
    }

    /// The common rates; `None` if `quota_by` chooses the quotas of each key.
    pub(super) fn common_rates(&self) -> Option<Arc<Rates>> {
        self.in_shard(0, |shard, context| {
            shard.catch_up(context);
            Some(Arc::clone(&shard.rates)).filter(|rates| rates.kind != Kind::QuotaBy)
        })
    }

    /// Forgets full keys in some shard. Returns false if all keys owe tokens, or if no full key was found in the
    /// [`MAX_SLOTS`] slots that one call visits: the next call continues where this one ended.
    fn make_space(&self, from: usize, now: u64) -> bool {
        let mut slots = 0;
        while slots < MAX_SLOTS {
            let Some(number) = self.key_limit.find_idle(from, now) else { break };
            slots += self.in_shard(number, |shard, context| {
                let visits = 1 + shard.pending();
                shard.sweep_at(now, context);
                visits * shard.slots.groups.slots().max(LEAST_SLOTS)
            });
            if self.key_limit.has_place() {
                return true;
            }
        }
        self.key_limit.has_place()
    }

    /// Sets checked quotas as the common quotas from now on. Each shard only records the change, and the next call
    /// there applies it to the keys. So this costs a short lock for each shard, and a visit to each live entry.
    pub(super) fn set_quotas(&self, quotas: Quotas) {
        let rates = self.rates(quotas);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        let now = self.now();
        for number in 0..self.shards.len() {
            let (live_entries, quota_version) = self.in_shard(number, |shard, context| {
                let live_entries = shard.set_quotas(Arc::clone(&rates), version, now, context);
                (live_entries, shard.quota_version())
            });
            for live in live_entries {
                live::set_quotas(&live, &rates, quota_version);
            }
            // Under the new quotas a key may be full earlier.
            self.key_limit.idle_now(number);
        }
        // Let some shards catch up, so that a shard without calls does not collect pending changes without a bound.
        for number in (version as usize % MAX_PENDING..self.shards.len()).step_by(MAX_PENDING) {
            self.in_shard(number, |shard, context| {
                if shard.pending() > 1 {
                    shard.catch_up(context)
                }
            });
        }
    }

    /// Gives `key` the assigned quotas, and so its live entry, if it has one. `forced`: even if the map is full.
    pub(super) fn assign(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        assigned: &Assigned<'_>,
        forced: bool,
    ) -> Result<(), ConfigError> {
        let key = self.hashed(key);
        let stale =
            self.enter(key, forced, |shard, request, context| shard.set_quotas_for(request, assigned, context))?;
        if let Ok(Some((live, rates, quota_version))) = stale {
            live::set_quotas(&live, &rates, quota_version);
            self.retire_unused(key.hash, live);
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        // Some keys are closed already: a panic of the clock must not leave the waiters of the other keys.
        self.visit_all(Shard::close).for_each(|live| live.close_anyway());
    }

    /// Calls `in_shard` under the lock of each shard, and then passes on the shard's live entries without that lock.
    pub(super) fn visit_all(&self, in_shard: impl Fn(&mut Shard<K>)) -> impl Iterator<Item = InUse> {
        (0..self.shards.len()).flat_map(move |number| {
            self.in_shard(number, |shard, _| {
                in_shard(shard);
                shard.in_use().collect::<Vec<_>>()
            })
        })
    }
}

impl<K, S> EntryOwner for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn retire(&self, live: *const Core, hash: u64, now: u64) -> bool {
        Map::retire(self, hash, live, now)
    }

    fn live_entries(&self) -> Vec<InUse> {
        self.visit_all(|_| {}).collect()
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::EntryOwner;
    use crate::{KeyedLimiter, Limiter, ManualClock, Quota};
    use tokio_test::task::spawn;

    #[test]
    fn a_live_entry_knows_the_parent_limiter() {
        let clock = ManualClock::new();
        let parent = Limiter::builder().quota(Quota::per_second(1)).clock(clock.clone()).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).clock(clock);
        let keyed = builder.parent(&parent).build().unwrap();
        drop(keyed.try_acquire(&1, 1).unwrap());
        let mut waiting = spawn(keyed.consume(&1, 1));
        assert!(waiting.poll().is_pending());
        let live_entries = keyed.map.live_entries();
        assert!(live_entries[0].parent().is_some_and(|it| std::ptr::eq(&**it, parent.core())));
    }
}
