//! Reading the state of a key.

use super::taking::most_claimable;
use super::{Entered, Map, wait};
use crate::core::Core;
use crate::core::classes::ROOT;
use crate::core::parent::Parent;
use crate::keyed::ToKey;
use crate::keyed::rate::{Level, Rate};
use crate::keyed::rates::{Levels, Rates};
use crate::keyed::shard::{ListedKey, Listing};
use crate::keyed::{KeyedTop, Quotas};
use crate::snapshot::{QuotaSnapshot, Snapshot};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Reads levels or a live entry. A closed limiter returns `closed` instead, if that is set. The levels of a new key
    /// are full, and are not stored.
    fn look<R: Default>(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        at_levels: impl Fn(&Rates, &Levels, u64) -> R,
        at_live: impl Fn(&Core) -> R,
        closed: Option<R>,
    ) -> R {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |shard, request, context| {
            let levels = shard.at_levels(request, context, |rates, levels| at_levels(rates, levels, request.now))?;
            Ok((levels, shard.is_closed()))
        });
        match entered {
            Entered::Done((levels, is_closed)) => closed.filter(|_| is_closed).unwrap_or(levels),
            Entered::Live(live) => {
                let result = at_live(&live);
                self.let_go(hash, live);
                result
            }
            // A read stores no key, so a full map does not matter: the quotas of the key are bad, and it is granted nothing.
            Entered::Refused(_) => R::default(),
        }
    }

    /// The keys of shard `number`, and the instant until which all keys are paused. Lists some hundred keys under each
    /// lock, so a key that comes or goes meanwhile may be listed or not. If it goes and comes again, it may be listed
    /// twice, and the second listing is the later one.
    pub(in crate::keyed) fn list_shard(&self, number: usize) -> (Vec<ListedKey<K>>, u64) {
        let (mut listing, mut listed) = (Listing::default(), Vec::new());
        loop {
            let now = self.now();
            let (piece, gate) =
                self.in_shard(number, |shard, context| (shard.list(&mut listing, now, context), shard.gate(context)));
            if listing.begins_anew {
                listed.clear();
            }
            listed.extend(piece);
            if listing.is_complete {
                return (listed, gate);
            }
        }
    }

    /// The first `n` keys of each rank.
    pub(in crate::keyed) fn top(&self, n: usize) -> KeyedTop<K> {
        let mut top = KeyedTop::default();
        if self.is_ranked {
            let now = self.now();
            for shard in &self.shards {
                shard.lock().ranks().into_iter().for_each(|ranks| ranks.add_to(&mut top, now));
            }
            top.keep(n);
        }
        top
    }

    pub(in crate::keyed) fn available(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        self.own_available(key).min(self.parent.as_ref().map_or(u64::MAX, Parent::available))
    }

    /// What the key could get without the parent.
    fn own_available(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        let cap = self.template.cap().unwrap_or(u64::MAX);
        let at_levels = |rates: &Rates, levels: &Levels, _| rates.available(levels).min(cap);
        let at_live =
            |live: &Core| live.look_at(|state, rovers, sample| state.shown_available(rovers, ROOT, sample.now));
        self.look(key, at_levels, at_live, Some(0))
    }

    pub(in crate::keyed) fn deficiency(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        let at_levels = |rates: &Rates, levels: &Levels, _| rates.tokens(levels).min(0).unsigned_abs();
        self.look(
            key,
            at_levels,
            |live| live.look_at(|state, rovers, sample| state.shown_deficiency(rovers, sample.now)),
            None,
        )
    }

    pub(in crate::keyed) fn quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Quotas {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |shard, request, context| shard.rates_of(request, context));
        match entered {
            Entered::Done(rates) => rates.quotas.clone(),
            Entered::Refused(_) => Quotas::default(),
            Entered::Live(_) => unreachable!("a read of the quotas needs no live entry"),
        }
    }

    pub(in crate::keyed) fn quota_snapshots(&self, key: &(impl ToKey<K> + ?Sized)) -> Vec<QuotaSnapshot> {
        let at_live =
            |live: &Core| live.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now).quotas);
        self.look(key, quota_snapshots, at_live, None)
    }

    pub(in crate::keyed) fn reported_quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Vec<QuotaSnapshot> {
        let at_levels = |rates: &Rates, levels: &Levels, now: u64| {
            let mut quotas = quota_snapshots(rates, levels, now);
            // Without a pause, and unless the clock has stepped back, this is what the snapshot says.
            if let [only] = &mut quotas[..] {
                if levels.is_paused() || levels.at > now {
                    only.available = rates.available(levels);
                    let one_more = rates.reached(levels, only.available.saturating_add(1));
                    only.more_in = one_more.map(|at| wait(at, levels, now));
                }
            }
            (quotas, self.template.cap.is_none())
        };
        let at_live =
            |live: &Core| (live.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now).quotas), false);
        let (mut quotas, is_all) = self.look(key, at_levels, at_live, Some((Vec::new(), false)));
        if quotas.is_empty() {
            // The limiter is closed.
            quotas = self.quota_snapshots(key);
        }
        if let [only] = &mut quotas[..] {
            if !is_all {
                only.available = self.own_available(key);
                only.more_in = self.own_estimate(key, only.available.saturating_add(1));
            }
        }
        quotas
    }

    pub(in crate::keyed) fn estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        let own = self.own_estimate(key, cost)?;
        self.parent.as_ref().map_or(Some(own), |parent| parent.estimate_later(cost, own))
    }

    /// How long a claim would wait without the parent.
    fn own_estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        let cap = self.template.cap().unwrap_or(u64::MAX).min(self.template.max_cost);
        let at_levels = |rates: &Rates, levels: &Levels, now| {
            if cost > most_claimable(rates, levels).min(cap) {
                return None;
            }
            if cost == 0 {
                return Some(Duration::ZERO);
            }
            rates.reached(levels, cost).map(|at| wait(at, levels, now))
        };
        let at_live =
            |live: &Core| live.look_at(|state, rovers, sample| state.shown_estimate(rovers, cost, sample.now));
        self.look(key, at_levels, at_live, Some(None))
    }
}

fn quota_snapshots(rates: &Rates, levels: &Levels, now: u64) -> Vec<QuotaSnapshot> {
    let each = rates.iter().zip(rates.quotas.named()).enumerate();
    each.map(|(index, (rate, (name, _)))| quota_snapshot(name.clone(), rate, levels.level(index), now)).collect()
}

fn quota_snapshot(name: Option<Arc<str>>, rate: &Rate, level: Level, now: u64) -> QuotaSnapshot {
    let tokens = rate.tokens(level.units);
    let available = tokens.max(0) as u64;
    let more_in =
        rate.reached(level, available.saturating_add(1)).map(|at| Duration::from_nanos(at.saturating_sub(now)));
    QuotaSnapshot {
        name,
        quota: rate.quota,
        head: tokens as u64,
        level: tokens,
        available,
        more_in,
        dry_run: false,
        would_refuse: 0,
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::keyed::shard::Listing;
    use crate::{KeyedLimiter, ManualClock, Quota};

    #[test]
    fn keys_are_listed_in_pieces_and_anew_after_the_table_was_rebuilt() {
        let builder = KeyedLimiter::builder().quota(Quota::per_hour(9)).clock(ManualClock::new()).shards(1);
        let keyed = builder.build().unwrap();
        let owe = |keys: std::ops::Range<u64>| keys.for_each(|key| drop(keyed.try_acquire(&key, 1).unwrap()));
        let next = |listing: &mut Listing| {
            let list = keyed.map.in_shard(0, |shard, context| shard.list(listing, 0, context));
            list.into_iter().map(|listed| listed.key).collect::<Vec<u64>>()
        };
        owe(0..3_000);
        let mut listing = Listing::default();
        let mut listed = next(&mut listing);
        assert!((100..=448).contains(&listed.len()), "{}", listed.len());
        listed.extend(next(&mut listing));
        // No rebuild: nothing is listed twice.
        assert!(!listing.begins_anew && !listing.is_complete);
        owe(3_000..6_000);
        listed = next(&mut listing);
        assert!(listing.begins_anew);
        while !listing.is_complete {
            listed.extend(next(&mut listing));
            assert!(!listing.begins_anew);
        }
        listed.sort_unstable();
        assert_eq!(listed, (0..6_000).collect::<Vec<_>>());
    }
}
