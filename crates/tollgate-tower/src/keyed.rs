//! Keyed limiters as the source of grants: a bucket and a queue per user, address or API key.

use super::gate::Acquire;
use std::time::Duration;
use tollgate::{AsKeyedLimiter, TryAcquireError};

impl<K, L: AsKeyedLimiter<K>> Acquire<(K, u64)> for L {
    type Pass = L::Grant;
    type Claim = L::Claim;

    fn claim(self, (key, cost): (K, u64), allowed: Option<Duration>) -> L::Claim {
        self.consume_owned(key, cost, allowed)
    }

    fn try_acquire(self, (key, cost): (K, u64)) -> Result<L::Grant, TryAcquireError> {
        self.try_acquire_owned(key, cost)
    }

    fn is_remote(&self) -> bool {
        L::IS_REMOTE
    }
}
