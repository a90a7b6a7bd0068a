//! The state shared by all clones of a distributed keyed limiter: routing claims, creating limiters and forgetting
//! them.

use super::cached_reply::CachedReply;
use super::route_shard::{Found, RouteShards};
use crate::clock::{Time, whole_nanos};
use crate::distributed::{QuotaTerms, Store, StoreError, Stores};
use crate::error::{Bound, ConfigError, Denied, TryAcquireError};
use crate::keyed::quotas::{NamedQuota, Quotas};
use crate::name::Name;
use crate::observe::Observers;
use crate::sync::{AtomicU64, Ordering};
use crate::{Limiter, Quota};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

/// The interval between searches for limiters to forget, while there are any.
const TIDY_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest interval, in nanoseconds, between the extra searches that run when a new key finds no place.
const MIN_TIDY_INTERVAL: u64 = 20_000_000;

/// The number of pauses that are kept; see `pauses`.
const PAUSES: usize = 64;

/// Returns the text of a key, which names its store.
pub(super) type Namer<K> = Box<dyn Fn(&K) -> String + Send + Sync>;
/// Chooses the quota of a key.
pub(super) type QuotaBy<K> = Box<dyn Fn(&K) -> Quota + Send + Sync>;

pub(super) struct DistributedMap<K> {
    hasher: RandomState,
    quota: NamedQuota,
    quota_by: Option<QuotaBy<K>>,
    max_waiting: u64,
    pub(super) stores: Arc<dyn Stores>,
    name: Namer<K>,
    pub(super) shards: RouteShards<K>,
    pub(super) time: Time,
    /// When the stores of an unreachable shard are tried again; 0 if they can be reached. Shards with numbers that
    /// differ by a multiple of [`PAUSES`] share an element.
    pauses: [AtomicU64; PAUSES],
    /// The runtime on which the limiter's tasks run.
    host: Handle,
    /// True while a task searches for limiters to forget.
    is_tidied: AtomicBool,
    /// The instant of the last extra search, in nanoseconds; see [`MIN_TIDY_INTERVAL`].
    tidied_at: AtomicU64,
    closed: AtomicBool,
    /// Tells callers with unsent requests that the limiter was closed.
    closing: Notify,
    /// How many callers were refused by a cached reply.
    pub(super) spared: AtomicU64,
    /// Tokens granted by single requests. The limiters of keys count their own.
    pub(super) granted: AtomicU64,
    /// How many calls were refused.
    pub(super) refused: AtomicU64,
    /// The end of the pause of all keys on this node, in nanoseconds; 0 if it was ended.
    pub(super) paused_until: AtomicU64,
    /// The observers of waits and refusals, for all keys together.
    pub(super) observers: Observers,
}

/// The route of a claim.
pub(super) enum Route {
    /// The key's limiter serves the claim.
    Limiter(Limiter),
    /// No route: by the cached reply, the tokens are there at `at`, and `remaining` tokens are left. They come before
    /// `minted` only if other nodes give tokens back, and never before `not_before`.
    Later { at: u64, minted: u64, not_before: u64, remaining: u64 },
    /// The claim sends its own request to the store.
    Request,
    /// All keys are paused: the key's limiter, which is created, keeps the claim until the pause is over.
    Paused,
}

impl<K> DistributedMap<K> {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.shards.each_limiter(Limiter::close);
    }

    /// Waits until the limiter is closed.
    pub(super) async fn closing(&self) {
        let closing = self.closing.notified();
        if !self.is_closed() {
            closing.await;
        }
    }

    pub(super) fn pause(&self, shard: u64) -> &AtomicU64 {
        &self.pauses[(shard % PAUSES as u64) as usize]
    }

    /// Forgets the limiters that are at rest, until there are none.
    async fn tidy(mut guard: TidyGuard<K>) {
        let map = guard.0.clone();
        loop {
            sleep(TIDY_INTERVAL).await;
            let mut number = 0;
            // Yield between shards, so that other tasks run.
            while map.upgrade().is_some_and(|map| map.shards.tidy(number)) {
                number += 1;
                yield_now().await;
            }
            let Some(map) = map.upgrade() else { return };
            if map.shards.limiters() == 0 {
                drop(guard);
                // A caller may have created a limiter at this moment and still have seen this task running.
                if map.shards.limiters() == 0 || map.is_tidied.swap(true, Ordering::SeqCst) {
                    return;
                }
                guard = TidyGuard(Arc::downgrade(&map));
            }
        }
    }
}

/// Held by the task that forgets limiters. When it is dropped, for example with its runtime, the next caller that
/// creates a limiter spawns a new task.
struct TidyGuard<K>(Weak<DistributedMap<K>>);

impl<K> Drop for TidyGuard<K> {
    fn drop(&mut self) {
        if let Some(map) = self.0.upgrade() {
            map.is_tidied.store(false, Ordering::SeqCst);
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedMap<K> {
    /// Creates the map from checked settings.
    pub(super) fn new(
        stores: Arc<dyn Stores>,
        name: Namer<K>,
        quota: NamedQuota,
        quota_by: Option<QuotaBy<K>>,
        max_keys: u64,
        max_waiting: u64,
        host: Handle,
    ) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: RouteShards::new(max_keys),
            quota,
            quota_by,
            max_waiting,
            stores,
            name,
            time: Time::tokio(),
            pauses: std::array::from_fn(|_| AtomicU64::new(0)),
            host,
            is_tidied: AtomicBool::new(false),
            tidied_at: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            spared: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
            observers: Observers::default(),
        }
    }

    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn store(&self, key: &K) -> Arc<dyn Store> {
        self.stores.named(&(self.name)(key))
    }

    /// The quota of a key, with its name if it has one.
    pub(super) fn named_quota(&self, key: &K) -> NamedQuota {
        self.quota_by.as_ref().map_or_else(|| self.quota.clone(), |quota_by| (None, quota_by(key)))
    }

    /// The name of the quota of all keys, for a refusal.
    pub(super) fn quota_name(&self) -> Name {
        self.quota.0.as_ref().map_or(Name::NONE, |name| Name::of(name))
    }

    /// The terms of a key's quota. The error is about what `quota_by` has returned.
    pub(super) fn terms(&self, key: &K) -> Result<QuotaTerms, ConfigError> {
        Ok(terms(&self.named_quota(key).1)?.with_version(self.stores.quota_version()))
    }

    /// Chooses the route of a claim of `cost` made at `now`.
    pub(super) fn route(&self, key: &K, hash: u64, terms: &QuotaTerms, cost: u64, now: u64) -> Route {
        match self.shards.find(key, hash) {
            Found::Limiter(limiter) => Route::Limiter(limiter),
            _ if now < self.paused_until.load(Ordering::Acquire) => Route::Paused,
            Found::CachedReply(cached) => self.route_by(&cached, terms, cost, now).unwrap_or(Route::Request),
            Found::Nothing => Route::Request,
        }
    }

    fn route_by(&self, cached: &CachedReply, terms: &QuotaTerms, cost: u64, now: u64) -> Option<Route> {
        let at = cached.earliest(terms, cost);
        let (minted, not_before) = (cached.minted(terms, cost), cached.not_before(terms, cost));
        (at > now).then(|| Route::Later { at, minted, not_before, remaining: cached.remaining() })
    }

    /// Returns the key's limiter, if it has one.
    pub(super) fn limiter_here(&self, key: &K, hash: u64) -> Option<Limiter> {
        if let Found::Limiter(limiter) = self.shards.find(key, hash) { Some(limiter) } else { None }
    }

    /// Returns the key's limiter, and creates it if there is none. Returns `None` if the key's name is too long or its
    /// quota is bad, or, unless `must` is set, if the map already has the largest number of limiters.
    pub(super) fn place(self: &Arc<Self>, key: &K, hash: u64, must: bool) -> Option<Limiter> {
        if let here @ Some(_) = self.limiter_here(key, hash) {
            return here;
        }
        if !must && self.shards.limiters() >= self.shards.most() && !self.tidy_out_of_turn() {
            return None;
        }
        if self.excess_length(key).is_some() {
            return None;
        }
        let entered = self.host.enter();
        let builder = match self.named_quota(key) {
            (Some(name), quota) => Limiter::builder().quota_named(name, quota),
            (None, quota) => Limiter::builder().quota(quota),
        };
        let builder = builder.shared_through(self.store(key)).observed_by(self.observers.clone());
        let builder = builder.max_waiting(self.max_waiting);
        // Only a quota from `quota_by` can be bad: the common quota was checked, and the runtime is the host's.
        let limiter = builder.build().ok()?;
        drop(entered);
        let limiter = self.shards.put(key, hash, limiter, must)?;
        if self.is_closed() {
            limiter.close();
        }
        // Read after the limiter was put where a call on all keys finds it.
        if self.paused_until.load(Ordering::Acquire) > 0 {
            self.refresh_pause(&limiter);
        }
        // If the host runtime is gone, the guard is dropped at once, and the current runtime is used.
        for host in [Some(self.host.clone()), Handle::try_current().ok()].into_iter().flatten() {
            if !self.is_tidied.swap(true, Ordering::SeqCst) {
                host.spawn(Self::tidy(TidyGuard(Arc::downgrade(self))));
            }
        }
        Some(limiter)
    }

    /// Forgets limiters at rest, for a caller that found no place. Returns false if this frees no place, or if it was
    /// tried just before.
    fn tidy_out_of_turn(&self) -> bool {
        let (now, last) = (self.time.now(), self.tidied_at.load(Ordering::Acquire));
        let is_mine = now >= last.saturating_add(MIN_TIDY_INTERVAL)
            && self.tidied_at.compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_mine {
            (0..).take_while(|number| self.shards.tidy(*number)).for_each(drop);
        }
        self.shards.limiters() < self.shards.most()
    }

    /// The length of the key's name, if it is too long.
    pub(super) fn excess_length(&self, key: &K) -> Option<usize> {
        Some((self.name)(key).len()).filter(|length| *length > StoreError::MAX_NAME)
    }

    /// The reason why [`place`](Self::place) returned `None`.
    pub(super) fn no_place(&self, key: &K) -> ConfigError {
        match (self.excess_length(key), self.terms(key)) {
            (Some(length), _) => ConfigError::KeyTooLong { length, most: StoreError::MAX_NAME },
            (None, Err(error)) => error,
            (None, Ok(_)) => ConfigError::TooManyKeys { most: self.shards.most() },
        }
    }

    /// The limiter that a `try_acquire` of `cost` asks; `None` if nothing is asked for.
    pub(super) fn try_route(
        self: &Arc<Self>,
        key: &K,
        hash: u64,
        cost: u64,
    ) -> Result<Option<Limiter>, TryAcquireError> {
        if self.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(None);
        }
        let terms = self.terms(key).map_err(|error| TryAcquireError::of_key(&error))?;
        if cost > terms.most_held() {
            let (most, quota_name) = (terms.most_held(), self.quota_name().text());
            return Err(TryAcquireError::TooLarge { cost, most, by: Bound::Quota(0), quota_name });
        }
        let now = self.time.now();
        let limiter = match self.route(key, hash, &terms, cost, now) {
            Route::Limiter(limiter) => Some(limiter),
            Route::Later { at, remaining, .. } => {
                self.count_spared();
                let retry_after = Some(Duration::from_nanos(at - now));
                let name = self.quota_name();
                return Err(Denied { retry_after, remaining, by: Bound::Quota(0), name }.into());
            }
            Route::Request | Route::Paused => self.place(key, hash, false),
        };
        limiter.map(Some).ok_or_else(|| TryAcquireError::of_key(&self.no_place(key)))
    }
    /// Records that the deadline of a claim of `cost` tokens came before the answer of the store.
    pub(super) fn missed(&self, key: &K, hash: u64, cost: u64) {
        let limiter = self.limiter_here(key, hash);
        if let Some(limiter) = limiter.filter(|_| self.terms(key).is_ok_and(|terms| cost <= terms.most_held())) {
            limiter.core().miss(cost);
        }
    }

    /// Settles a grant of `cost` that the store made without a limiter of the key. Returns its new cost.
    pub(super) fn resettle(self: &Arc<Self>, key: &K, hash: u64, cost: u64, actual: u64) -> u64 {
        if actual > cost {
            let limiter = self.place(key, hash, true);
            return cost + limiter.map_or(0, |limiter| limiter.core().resettle(0, actual - cost));
        }
        if let Some(limiter) = self.limiter_here(key, hash).filter(|_| actual < cost) {
            limiter.core().resettle(cost, actual);
        }
        actual
    }

    pub(super) fn pause_all_for(&self, duration: Duration) {
        let gate = self.time.now().saturating_add(whole_nanos(duration));
        // First, so that a limiter that is created meanwhile is paused too.
        self.paused_until.fetch_max(gate, Ordering::AcqRel);
        self.shards.each_limiter(|limiter| self.refresh_pause(limiter));
    }

    pub(super) fn resume_all(&self) {
        self.paused_until.store(0, Ordering::Release);
        self.shards.each_limiter(|limiter| self.refresh_pause(limiter));
    }

    /// Gives the limiter of a key the pause of all keys as it is now. Its end is read under the limiter's lock, so
    /// after several concurrent changes the limiter has the last one.
    fn refresh_pause(&self, limiter: &Limiter) {
        let core = limiter.core();
        core.with(|state, rovers, _| {
            let gate = core.time.translate(&self.time, self.paused_until.load(Ordering::Acquire));
            state.pause_in_common(rovers, u64::try_from(gate.max(0)).unwrap_or(u64::MAX));
        });
    }

    /// Counts a caller that was refused by a cached reply.
    pub(super) fn count_spared(&self) {
        self.spared.fetch_add(1, Relaxed);
    }

    /// Counts a call that was refused.
    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}

/// The locks do not poison. `Eq` and `Clone` of keys run under them, and a panic there leaves the keys as they were.
impl<K> UnwindSafe for DistributedMap<K> {}
impl<K> RefUnwindSafe for DistributedMap<K> {}

impl<K> fmt::Debug for DistributedMap<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedMap")
            .field("stores", &self.stores)
            .field("limiters", &self.shards.limiters())
            .finish_non_exhaustive()
    }
}

/// Converts and checks the quota of a key.
pub(super) fn terms(quota: &Quota) -> Result<QuotaTerms, ConfigError> {
    Quotas::from(*quota).check()?;
    QuotaTerms::of(quota, 0)
}
