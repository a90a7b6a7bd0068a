//! How futures and grants hold the limiter and their key: borrowed, or owned for spawned tasks.

use super::ToKey;
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

/// The limiter and the key of a claim.
pub(super) struct KeyRef<M, F> {
    pub(super) map: M,
    pub(super) key: F,
}

/// How a claim holds its key.
pub(super) trait Form<K> {
    type Form: ToKey<K> + ?Sized;

    fn form(&self) -> &Self::Form;
}

impl<K, Q: ToKey<K> + ?Sized> Form<K> for &Q {
    type Form = Q;

    #[inline]
    fn form(&self) -> &Q {
        self
    }
}

/// The key of a claim that owns it.
pub(super) struct Owned<K>(pub(super) K);

impl<K: Clone + Hash + Eq> Form<K> for Owned<K> {
    type Form = K;

    #[inline]
    fn form(&self) -> &K {
        &self.0
    }
}
