//! How futures and grants hold the limiter: borrowed, or owned for spawned tasks.

use super::map::Map;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A limiter that a grant holds.
pub(super) trait MapRef {
    type Key: Hash + Eq + Clone;
    type Hasher: BuildHasher;

    fn map(&self) -> &Map<Self::Key, Self::Hasher>;
}

impl<K: Hash + Eq + Clone, S: BuildHasher> MapRef for &Map<K, S> {
    type Key = K;
    type Hasher = S;

    #[inline]
    fn map(&self) -> &Map<K, S> {
        self
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> MapRef for Arc<Map<K, S>> {
    type Key = K;
    type Hasher = S;

    #[inline]
    fn map(&self) -> &Map<K, S> {
        self
    }
}
