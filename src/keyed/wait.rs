//! Waiting for tokens of a key where there is nothing to hold afterwards.

use super::{KeyedConsume, ToKey};
use crate::Wait;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, S, Q> Wait<KeyedConsume<'_, '_, K, S, Q>>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
    Q: ToKey<K> + ?Sized,
{
    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    pub fn within(self, allowed: Duration) -> Self {
        self.map(|claim| claim.within(allowed))
    }
}
