//! How futures and grants hold the limiter: borrowed, or owned for spawned tasks.

use super::map::Map;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A limiter that a future or a grant holds.
pub trait MapRef {
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

/// A key that a future holds, in the form `Q`.
pub trait HeldKey<Q: ?Sized>: Borrow<Q> {
    /// What the grant holds of it: the key, if the future owns it.
    type Kept;

    fn kept(self) -> Self::Kept;
}

impl<Q: ?Sized> HeldKey<Q> for &Q {
    type Kept = ();

    #[inline]
    fn kept(self) {}
}

impl<K> HeldKey<K> for K {
    type Kept = K;

    #[inline]
    fn kept(self) -> K {
        self
    }
}
