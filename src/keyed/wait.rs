//! Waiting for tokens of a key where there is nothing to hold afterwards.

use super::KeyedConsume;
use crate::Wait;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, S> Wait<KeyedConsume<'_, K, S>>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    pub fn within(self, allowed: Duration) -> Self {
        self.map(|claim| claim.within(allowed))
    }
}
