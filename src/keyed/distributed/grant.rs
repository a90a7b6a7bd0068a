//! Grants of tokens of a key.

use super::map::DistributedMap;
use crate::grant::OwnedGrant;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Proof that tokens of a key were granted; the counterpart of a limiter's [`OwnedGrant`].
pub struct DistributedKeyedGrant<K, S> {
    by: By<K, S>,
}

enum By<K, S> {
    /// The store granted the tokens directly.
    Store(FromStore<K, S>),
    Limiter(OwnedGrant),
}

struct FromStore<K, S> {
    map: Arc<DistributedMap<K, S>>,
    key: K,
    hash: u64,
    cost: u64,
    remaining: u64,
}

impl<K, S> DistributedKeyedGrant<K, S> {
    pub(super) fn of_store(map: &Arc<DistributedMap<K, S>>, key: K, hash: u64, cost: u64, remaining: u64) -> Self {
        Self { by: By::Store(FromStore { map: Arc::clone(map), key, hash, cost, remaining }) }
    }

    pub(super) fn of_limiter(grant: OwnedGrant) -> Self {
        Self { by: By::Limiter(grant) }
    }

    /// Returns the cost: the latest figure, if it was [settled](Self::settle).
    pub fn cost(&self) -> u64 {
        match &self.by {
            By::Store(grant) => grant.cost,
            By::Limiter(grant) => grant.cost(),
        }
    }

    /// Returns how many tokens of the key this grant left: in the store, or in the key's limiter on this node.
    pub fn remaining(&self) -> u64 {
        match &self.by {
            By::Store(grant) => grant.remaining,
            By::Limiter(grant) => grant.remaining(),
        }
    }
}

impl<K, S> DistributedKeyedGrant<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Sets the real cost, which is known afterwards. The latest figure counts.
    ///
    /// * More than before: the difference is charged at once as a debt of the key, which the key's limiter pays to the
    ///   store. If the key has no limiter, one is made, even beyond [`max_keys`](crate::KeyedBuilder::max_keys).
    /// * Less than before: the difference goes to the key's limiter, as far as its allowance permits. If the key has no
    ///   limiter, or the allowance is used, the difference is lost: the store has promised the following tokens to
    ///   other nodes. Tokens that do come back can be granted again at once: see [what a server may
    ///   see](crate::Grant::settle).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota, distributed::MemoryStore};
    /// let users = KeyedLimiter::builder().quota(Quota::per_second(10)).distributed(MemoryStore::new()).build()?;
    /// let mut grant = users.consume(&"ann", 1).await?;
    /// grant.settle(20); // the burst was 10
    /// let begun = tokio::time::Instant::now();
    /// users.consume(&"ann", 1).await?;
    /// assert!(begun.elapsed() >= std::time::Duration::from_millis(1_100));
    /// # Ok(()) }
    /// ```
    pub fn settle(&mut self, actual: u64) {
        match &mut self.by {
            By::Store(grant) => grant.settle(actual),
            By::Limiter(grant) => grant.settle(actual),
        }
    }
}

impl<K, S> FromStore<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn settle(&mut self, actual: u64) {
        if actual > self.cost {
            let limiter = self.map.limiter(&self.key, self.hash, true);
            self.cost += limiter.map_or(0, |limiter| limiter.core().resettle(0, actual - self.cost));
        } else if actual < self.cost {
            if let Some(limiter) = self.map.limiter_here(&self.key, self.hash) {
                limiter.core().resettle(self.cost, actual);
            }
            self.cost = actual;
        }
    }
}

impl<K, S> fmt::Debug for DistributedKeyedGrant<K, S> {
    /// Omits the key, because it may identify a user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedKeyedGrant")
            .field("cost", &self.cost())
            .field("remaining", &self.remaining())
            .finish()
    }
}
