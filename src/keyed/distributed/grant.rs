//! A grant for a distributed key.

use super::claim::Tokens;
use super::one_key::OneKey;
use crate::handle::Limiter;
use crate::observe::GrantWord;
use crate::permit::Permit;
use std::fmt;
use std::hash::Hash;

/// Proof that tokens of a distributed key were granted. Dropping it does nothing: a distributed key has no in-flight
/// cap.
pub struct DistributedKeyedGrant<K> {
    pub(super) key: OneKey<K>,
    pub(super) tokens: Tokens,
}

impl<K> DistributedKeyedGrant<K> {
    /// Returns the cost in tokens: the latest figure, if the grant was [settled](Self::settle).
    pub fn cost(&self) -> u64 {
        match &self.tokens {
            Tokens::OfLimiter(permit) => permit.cost,
            Tokens::OfStore { cost, .. } => *cost,
        }
    }

    /// Returns how many tokens this grant left for its key on this node, or in the store if the store granted it.
    pub fn remaining(&self) -> u64 {
        match &self.tokens {
            Tokens::OfLimiter(permit) => permit.remaining(),
            Tokens::OfStore { remaining, .. } => *remaining,
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedKeyedGrant<K> {
    /// Sets the real cost, known afterwards, and refunds or charges the key with the difference; see
    /// [`KeyedGrant::settle`](crate::KeyedGrant::settle).
    ///
    /// A charge is a debt of the key, which the key's limiter pays to the store. If the key has no limiter, one is
    /// created, even beyond `max_keys`. A refund goes to the key's limiter as far as its allowance permits. If the key
    /// has no limiter, or the allowance is used, the refund is lost: the store has promised the following tokens to
    /// other nodes.
    pub fn settle(&mut self, actual: u64) {
        match &mut self.tokens {
            Tokens::OfLimiter(permit) => permit.settle(actual),
            Tokens::OfStore { cost, .. } if actual > *cost => {
                let limiter = self.key.place(true).ok();
                *cost += limiter.map_or(0, |limiter| settle(&limiter, 0, actual - *cost));
            }
            Tokens::OfStore { cost, .. } => {
                if let Some(limiter) = self.key.limiter_here().filter(|_| actual < *cost) {
                    settle(&limiter, *cost, actual);
                }
                *cost = actual;
            }
        }
    }
}

/// Changes the cost of a grant of the store from `cost` to `actual`, and returns the new one.
fn settle(limiter: &Limiter, cost: u64, actual: u64) -> u64 {
    let mut permit = Permit::new(limiter.core(), cost, GrantWord::NOTHING);
    permit.settle(actual);
    permit.cost
}

impl<K> fmt::Debug for DistributedKeyedGrant<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cost, remaining) = (self.cost(), self.remaining());
        f.debug_struct("DistributedKeyedGrant").field("cost", &cost).field("remaining", &remaining).finish()
    }
}
