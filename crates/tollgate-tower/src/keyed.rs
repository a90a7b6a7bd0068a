//! Keyed limiters as the source of grants: a bucket and a queue per user, address or API key.

use super::gate::Acquire;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;
use tollgate::{KeyedConsumeOwned, KeyedLimiter, OwnedKeyedGrant, TryAcquireError};

impl<K, S> Acquire<(K, u64)> for KeyedLimiter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    type Pass = OwnedKeyedGrant<K, S>;
    type Claim = KeyedConsumeOwned<K, S>;

    fn claim(self, (key, cost): (K, u64), allowed: Option<Duration>) -> KeyedConsumeOwned<K, S> {
        let claim = self.consume_owned(key, cost);
        match allowed {
            Some(allowed) => claim.within(allowed),
            None => claim,
        }
    }

    fn try_acquire(self, (key, cost): (K, u64)) -> Result<OwnedKeyedGrant<K, S>, TryAcquireError> {
        self.try_acquire_owned(key, cost)
    }

    fn is_remote(&self) -> bool {
        self.is_distributed()
    }
}
