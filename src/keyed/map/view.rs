//! Reading the state of a key.

use super::taking::most_claimable;
use super::{Entered, Map, wait};
use crate::Quota;
use crate::core::Core;
use crate::keyed::rate::{Level, Rate};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Reads a level or a live entry. A closed limiter returns `closed` instead, if that is set. The level of a new key
    /// is full, and is not stored.
    fn look<R>(
        &self,
        key: &K,
        at_level: impl Fn(&Rate, Level, u64) -> R,
        at_live: impl Fn(&Core) -> R,
        closed: Option<R>,
    ) -> R {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |shard, request, context, deferred| {
            let level =
                shard.at_level(request, context, deferred, |rate, level| at_level(rate, *level, request.now))?;
            Ok((level, shard.closed))
        });
        match entered {
            Entered::Done((level, is_closed)) => closed.filter(|_| is_closed).unwrap_or(level),
            Entered::Live(live) => {
                let result = at_live(&live);
                self.let_go(hash, live);
                result
            }
            Entered::Full => unreachable!("a read stores no key"),
        }
    }

    pub(in crate::keyed) fn available(&self, key: &K) -> u64 {
        let cap = self.template.cap.unwrap_or(u64::MAX);
        let at_level = |rate: &Rate, level: Level, _| (rate.tokens(level.units).max(0) as u64).min(cap);
        let own = self.look(key, at_level, |live| live.look_at(|state, rovers, _| state.available(rovers)), Some(0));
        let parent = self.parent.as_ref().map(|parent| parent.look_at(|state, rovers, _| state.available(rovers)));
        own.min(parent.unwrap_or(u64::MAX))
    }

    pub(in crate::keyed) fn deficiency(&self, key: &K) -> u64 {
        let at_level = |rate: &Rate, level: Level, _| rate.tokens(level.units).min(0).unsigned_abs();
        self.look(key, at_level, |live| live.look_at(|state, rovers, _| state.deficiency(rovers)), None)
    }

    pub(in crate::keyed) fn quota(&self, key: &K) -> Quota {
        let at_live = |live: &Core| live.look_at(|state, _, _| state.supply.quotas()[0].quota);
        self.look(key, |rate: &Rate, _, _| rate.quota, at_live, None)
    }

    pub(in crate::keyed) fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let cap = self.template.cap.unwrap_or(u64::MAX);
        let at_level = |rate: &Rate, level: Level, now| {
            if cost > most_claimable(rate, level).min(cap) {
                return None;
            }
            if cost == 0 {
                return Some(Duration::ZERO);
            }
            rate.reached(level, cost).map(|at| wait(at, level, now))
        };
        let at_live = |live: &Core| live.look_at(|state, rovers, sample| state.estimate(rovers, cost, sample.now));
        let own = self.look(key, at_level, at_live, Some(None))?;
        self.parent.as_ref().map_or(Some(own), |parent| parent.estimate_later(cost, own))
    }
}
