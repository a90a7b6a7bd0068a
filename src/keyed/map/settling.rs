//! After a grant: settling its real cost, and releasing it.

use super::{Entered, Map};
use crate::core::classes::ROOT;
use crate::core::state::MAX_COST;
use crate::error::ReleaseError;
use crate::keyed::ToKey;
use crate::keyed::shard::EntryRequest;
use crate::observe::Verdict;
use std::hash::{BuildHasher, Hash};

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Changes the cost of a grant of `key`, whose word this is, and returns its new cost.
    pub(in crate::keyed) fn resettle(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        hash: u64,
        cost: u64,
        actual: u64,
        word: u64,
    ) -> u64 {
        let actual = actual.min(self.template.max_cost.max(cost));
        let entered = self.enter(key, hash, true, |shard, request, context| {
            let settled = shard.at_levels(request, context, |rates, levels| {
                if actual < cost {
                    rates.refund(levels, cost - actual, Verdict::instant(word));
                    return actual;
                }
                let more = (actual - cost).min(MAX_COST).min(rates.space(levels));
                rates.charge(levels, more);
                cost + more
            })?;
            if settled < cost {
                shard.count_refunded(cost - settled);
            } else {
                shard.count_granted(settled - cost);
            }
            Ok(settled)
        });
        match entered {
            Entered::Done(cost) => cost,
            Entered::Live(live) => {
                let cost = live.resettle_in(ROOT, cost, actual, word, 0);
                self.let_go(hash, live);
                cost
            }
            Entered::Refused(_) => cost,
        }
    }

    /// Releases tokens of the key, if keys have a cap, and of the parent, if it has one: of both or of neither.
    pub(in crate::keyed) fn release(&self, key: &(impl ToKey<K> + ?Sized), tokens: u64) -> Result<(), ReleaseError> {
        let Some(parent) = self.parent.as_ref().filter(|parent| parent.capped) else {
            return self.release_own(key, tokens);
        };
        parent.take_owed(tokens)?;
        if self.template.cap.is_some() {
            if let Err(error) = self.release_own(key, tokens) {
                parent.forget(tokens);
                return Err(error);
            }
        }
        parent.release(tokens);
        Ok(())
    }

    fn release_own(&self, key: &(impl ToKey<K> + ?Sized), tokens: u64) -> Result<(), ReleaseError> {
        if self.template.cap.is_none() {
            return Err(ReleaseError::NotCapped);
        }
        let hash = self.hash(key);
        let request = EntryRequest { key, hash, now: 0, offered: None, forced: false };
        match self.in_shard(self.shard_of(hash), |shard, _| shard.find_live(&request)) {
            Some(live) => {
                let result = live.release_owed(tokens);
                self.let_go(hash, live);
                result
            }
            None if tokens == 0 => Ok(()),
            None => Err(ReleaseError::TooMuch { asked: tokens, owed: 0 }),
        }
    }
}
