//! Grants for a key.

use super::map::{Map, Taken};
use super::rate::Left;
use super::shard::Stop;
use super::to_key::MapRef;
use super::{Hashed, ToKey};
use crate::core::Core;
use crate::core::classes::ROOT;
use crate::core::grants::Settled;
use crate::core::in_use::InUse;
use crate::core::state::MAX_COST;
use crate::error::Bound;
use crate::observe::GrantWord;
use crate::permit::Permit;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// Proof that tokens of a key were granted: the keyed counterpart of [`Grant`](crate::Grant).
///
/// With [`max_in_flight`](super::KeyedBuilder::max_in_flight), the tokens are in flight until the grant is dropped:
/// keep it for as long as the work lasts. Without a cap, dropping it does nothing.
pub type KeyedGrant<'a, K, S = RandomState> = GrantOfKey<&'a Map<K, S>, ()>;

/// A [`KeyedGrant`] that owns the limiter and the key, for spawned tasks.
pub type OwnedKeyedGrant<K, S = RandomState> = GrantOfKey<Arc<Map<K, S>>, K>;

/// A grant, whether it borrows or owns the limiter, and the key if it owns that.
#[must_use = "dropping a grant releases its tokens if the limiter caps tokens in flight, and `let _ =` drops it at once: write \
              `let _grant =` for as long as the work lasts, or call `wait` if there is nothing to hold"]
pub struct GrantOfKey<M: MapRef, F> {
    map: M,
    key: F,
    hash: u64,
    cost: u64,
    left: Left,
    /// The core that settles and releases the grant, in the parent too; see [`Taken`].
    live: InUse,
    /// Otherwise the cost in the parent limiter, in tokens; 0 without a parent.
    parent: u64,
}

impl<M: MapRef, F> GrantOfKey<M, F> {
    #[inline(always)]
    pub(super) fn new(of: M, key: F, hash: u64, cost: u64, taken: Taken) -> Self {
        let Taken { mut left, live } = taken;
        let map = of.map();
        let parent = if map.template.parent.is_some() && live.get().is_none() { cost } else { 0 };
        if map.template.dry_run.is_on() {
            left = map.template.dry_run.counted(left);
        }
        Self { map: of, key, hash, cost, left, live, parent }
    }

    /// Returns the cost in tokens: the latest figure, if the grant was [settled](KeyedGrant::settle).
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns how many tokens this grant left for its key: the number that a response header would report. With a
    /// [sliding](crate::Quota::sliding) quota, or a calendar quota and an in-flight cap, it is the number at the instant
    /// of this call.
    pub fn remaining(&self) -> u64 {
        match self.live.get() {
            Some(live) if self.left.word().instant().is_some() => live.remaining(ROOT, self.left.word()),
            _ => self.left.tokens(),
        }
    }

    /// Returns how long the call would have waited if the limiter were not in dry run; see
    /// [`Grant::would_have_waited`](crate::Grant::would_have_waited).
    pub fn would_have_waited(&self) -> Option<Duration> {
        self.left.word().verdict()?.wait()
    }

    /// Returns what would have refused the call if the limiter were not in dry run; see
    /// [`Grant::would_have_been_refused`](crate::Grant::would_have_been_refused).
    pub fn would_have_been_refused(&self) -> Option<Bound> {
        self.left.word().verdict()?.refused_by()
    }

    /// Consumes the grant without releasing it: the caller then owes a [`release`](super::KeyedLimiter::release) of
    /// its cost. Without an in-flight cap, the same as dropping it.
    #[inline]
    pub fn forget(mut self) {
        self.end(true);
    }

    #[inline(never)]
    fn end(&mut self, is_forgotten: bool) {
        let (live, tokens) = (std::mem::take(&mut self.live), std::mem::take(&mut self.parent));
        if live.get().is_some() {
            let permit = Permit::new(live, self.cost, GrantWord::NOTHING);
            if is_forgotten { permit.forget() } else { drop(permit) }
        }
        if let Some(parent) = self.map.map().template.parent.as_ref().filter(|parent| tokens > 0 && parent.capped) {
            if is_forgotten { parent.forget(tokens) } else { parent.release(tokens) }
        }
    }
}

impl<M: MapRef, F> Drop for GrantOfKey<M, F> {
    #[inline]
    fn drop(&mut self) {
        if self.live.get().is_some() || self.parent > 0 {
            self.end(false);
        }
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Map<K, S> {
    /// Settles a grant of `key` for `actual` tokens: changes what it costs the key and the parent.
    fn settle(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        actual: u64,
        cost: &mut u64,
        in_parent: &mut u64,
        left: Left,
        live: Option<&Core>,
    ) {
        if let Some(live) = live {
            live.weigh(|| self.weight(key.form));
            *cost = live.resettle(|live| Some(live.sample()), Settled::new(ROOT, *cost, left.word()), actual);
            return;
        }
        // First, because user code gives the weight, and may panic.
        let named = (actual > *in_parent).then(|| (self.template.key_name(key.hash), self.weight(key.form)));
        if actual != *cost {
            *cost = self.resettle(key, *cost, actual, left.word());
        }
        if let Some(parent) = &self.template.parent {
            // The key is settled already, so the parent must be settled even if its clock panics.
            let actual = actual.min(self.template.max_cost.max(*in_parent));
            *in_parent = parent.resettle(named, *in_parent, actual);
        }
    }

    /// Changes the cost of a grant of `key`, whose word this is, and returns its new cost.
    fn resettle(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>, cost: u64, actual: u64, word: GrantWord) -> u64 {
        let actual = actual.min(self.template.max_cost.max(cost));
        // A dry run took no tokens for the grant. Those that are charged after the dry run are not free.
        if word.is_refused() && (actual < cost || self.template.dry_run.is_on()) {
            return actual;
        }
        let grant = Settled::new(ROOT, cost, word);
        let on_live = |live: InUse| live.resettle_here(|live| Some(live.sample()), grant, actual);
        let settled = self.enter(key, true, |shard, request, context| {
            let settled = shard.at_levels(request, context, |rates, levels| {
                if rates.sliding.is_some() {
                    return None;
                }
                if actual < cost {
                    rates.refund(levels, cost - actual, word.instant());
                    return Some(actual);
                }
                let more = (actual - cost).min(MAX_COST).min(rates.space(levels));
                rates.charge(levels, more);
                Some(cost + more)
            })?;
            // Only a live entry counts windows.
            let Some(settled) = settled else { return Err(Stop::Live(shard.live(request, context)?)) };
            if settled < cost {
                shard.refunded = shard.refunded.wrapping_add(cost - settled);
            } else {
                shard.count_granted(settled - cost);
            }
            Ok(settled)
        });
        settled.map_or(cost, |settled| settled.unwrap_or_else(on_live))
    }
}

impl<M: MapRef, F> fmt::Debug for GrantOfKey<M, F> {
    /// Prints no key: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedGrant").field("cost", &self.cost).field("remaining", &self.remaining()).finish()
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedGrant<'_, K, S> {
    /// Sets the real cost, known afterwards, and refunds or charges the key with the difference at once, like
    /// [`Grant::settle`](crate::Grant::settle). The latest figure counts. The grant keeps no key, so `key` is the one
    /// for which it was granted.
    ///
    /// The difference is also settled in the [parent limiter](super::KeyedBuilder::parent), if there is one.
    ///
    /// Tokens that come back can be granted again at once, and a server may see the requests of both grants: see
    /// [`Grant::settle`](crate::Grant::settle).
    ///
    /// A charge is always recorded, even if the key was forgotten meanwhile or the map is full.
    ///
    /// # Panics
    ///
    /// Panics if `key` has another hash than the key of the grant.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(100)).clock(ManualClock::new());
    /// let users: KeyedLimiter<String> = builder.build()?;
    /// let mut grant = users.try_acquire("ann", 40)?;
    /// grant.settle("ann", 25);
    /// assert_eq!(users.available("ann"), 75);
    /// grant.settle("ann", 110);
    /// assert_eq!((users.available("ann"), users.deficiency("ann")), (0, 10));
    /// # Ok(()) }
    /// ```
    pub fn settle(&mut self, key: &(impl ToKey<K> + ?Sized), actual: u64) {
        let key = self.map.hashed(key);
        assert!(key.hash == self.hash, "a grant is settled with another key than its own");
        self.map.settle(key, actual, &mut self.cost, &mut self.parent, self.left, self.live.get());
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> OwnedKeyedGrant<K, S> {
    /// Sets the real cost, known afterwards; see [`KeyedGrant::settle`].
    pub fn settle(&mut self, actual: u64) {
        let key = Hashed { form: &self.key, hash: self.hash };
        self.map.settle(key, actual, &mut self.cost, &mut self.parent, self.left, self.live.get());
    }
}
