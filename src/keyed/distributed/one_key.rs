//! One key of a distributed keyed limiter: its store, its route and its limiter.

use super::map::DistributedMap;
use super::route_shard::Known;
use crate::Limiter;
use crate::distributed::{QuotaTerms, Store, StoreError};
use crate::error::ConfigError;
use crate::keyed::ToKey;
use crate::keyed::quotas::NamedQuota;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A key, and the limiter on keys that it belongs to.
pub(super) struct OneKey<K> {
    pub(super) map: Arc<DistributedMap<K>>,
    pub(super) key: K,
    pub(super) hash: u64,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> OneKey<K> {
    pub(super) fn new(map: &Arc<DistributedMap<K>>, form: &(impl ToKey<K> + ?Sized)) -> Self {
        let key = form.to_key();
        let hash = map.hasher.hash_one(&key);
        Self { map: Arc::clone(map), key, hash }
    }

    /// The key's store, if its name is not too long.
    pub(super) fn store(&self) -> Result<Arc<dyn Store>, ConfigError> {
        let (name, most) = ((self.map.name)(&self.key), StoreError::MAX_NAME);
        if name.len() > most {
            return Err(ConfigError::KeyTooLong { length: name.len(), most });
        }
        Ok(self.map.stores.named(&name))
    }

    /// The quota of the key, with its name if it has one.
    pub(super) fn quota(&self) -> NamedQuota {
        let map = &self.map;
        map.quota_by.as_ref().map_or_else(|| map.quota.clone(), |quota_by| (None, quota_by(&self.key)))
    }

    /// The terms of the key's quota. The error is about what `quota_by` has returned.
    pub(super) fn terms(&self) -> Result<QuotaTerms, ConfigError> {
        Ok(super::map::terms(&self.quota().1)?.with_version(self.map.stores.quota_version()))
    }

    /// What this node knows of the key. A closed limiter grants nothing, whatever a cached reply says.
    pub(super) fn find(&self) -> Option<Known> {
        let known = self.map.shards.find(&self.key, self.hash);
        known.filter(|known| known.limiter().is_some() || !self.map.is_closed())
    }

    /// What answers a claim of `cost` made at `now` without a request: the key's limiter, or a cached reply by which the tokens
    /// are not there yet.
    pub(super) fn known(&self, terms: &QuotaTerms, cost: u64, now: u64) -> Option<Known> {
        self.find().filter(|known| !matches!(known, Known::Reply(cached) if cached.may_have(terms, cost, now)))
    }

    /// How many tokens of the key are on this node, or were in its store at the last reply.
    pub(super) fn available(&self) -> u64 {
        match self.find() {
            Some(Known::Limiter(limiter)) => limiter.available(),
            Some(Known::Reply(cached)) => cached.remaining(),
            None => 0,
        }
    }

    /// Returns the key's limiter, if it has one.
    pub(super) fn limiter_here(&self) -> Option<Limiter> {
        self.find()?.limiter().cloned()
    }

    /// Returns the key's limiter, and creates it if there is none. Fails if the key's name is too long or its quota is
    /// bad, or, unless `must` is set, if the map already has the largest number of limiters.
    pub(super) fn place(&self, must: bool) -> Result<Limiter, ConfigError> {
        if let Some(here) = self.limiter_here() {
            return Ok(here);
        }
        let (map, store) = (&self.map, self.store()?);
        // A bad quota is the error even if the map is full.
        self.terms()?;
        let full = ConfigError::TooManyKeys { most: map.shards.most };
        if !must && map.shards.limiters() >= map.shards.most && !map.tidy_out_of_turn() {
            return Err(full);
        }
        let entered = map.host.enter();
        let builder = match self.quota() {
            (Some(name), quota) => Limiter::builder().quota_named(name, quota),
            (None, quota) => Limiter::builder().quota(quota),
        };
        let builder = builder.shared_through(store).observed_by(map.observers.clone());
        let limiter = builder.max_waiting(map.max_waiting).build()?;
        drop(entered);
        let limiter = map.shards.put(&self.key, self.hash, limiter, must).ok_or(full)?;
        if map.is_closed() {
            limiter.close();
        }
        map.tidy_from_now_on();
        Ok(limiter)
    }
}
