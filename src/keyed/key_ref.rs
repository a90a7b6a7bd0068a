//! How futures and grants refer to the limiter and their key: borrowed, or owned for spawned tasks.

use super::map::Map;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A limiter and a key.
pub(super) trait KeyRef {
    type Key: Hash + Eq + Clone;
    type Hasher: BuildHasher;

    fn map(&self) -> &Map<Self::Key, Self::Hasher>;
    fn key(&self) -> &Self::Key;
}

pub(super) struct Borrowed<'a, K, S> {
    pub(super) map: &'a Map<K, S>,
    pub(super) key: &'a K,
}

pub(super) struct Owned<K, S> {
    pub(super) map: Arc<Map<K, S>>,
    pub(super) key: K,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyRef for Borrowed<'_, K, S> {
    type Key = K;
    type Hasher = S;

    fn map(&self) -> &Map<K, S> {
        self.map
    }

    fn key(&self) -> &K {
        self.key
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyRef for Owned<K, S> {
    type Key = K;
    type Hasher = S;

    fn map(&self) -> &Map<K, S> {
        &self.map
    }

    fn key(&self) -> &K {
        &self.key
    }
}

/// Prints no key: keys may be personal data.
impl<K, S> fmt::Debug for Borrowed<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowed").finish_non_exhaustive()
    }
}

impl<K, S> fmt::Debug for Owned<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}
