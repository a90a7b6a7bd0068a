//! How futures and grants refer to the limiter and their key: borrowed, or owned for spawned tasks.

use super::keys::Keys;
use crate::core::Core;
use crate::core::parent::Parent;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A limiter and a key.
pub(super) trait KeyRef {
    type Key: Hash + Eq + Clone;
    type Hasher: BuildHasher;

    fn keys(&self) -> &Keys<Self::Key, Self::Hasher>;
    fn key(&self) -> &Self::Key;

    /// The parent of all keys.
    #[inline]
    fn parent(&self) -> Option<&Parent> {
        if let Keys::Local(map) = self.keys() { map.parent.as_ref() } else { None }
    }

    /// Drops an `Arc` of the core that serves this key, which may not be needed any more.
    fn let_go(&self, hash: u64, live: Arc<Core>) {
        drop(live);
        self.may_be_idle(hash);
    }

    /// Records that the live entry of this key may not be needed any more.
    fn may_be_idle(&self, hash: u64) {
        if let Keys::Local(map) = self.keys() {
            map.may_be_idle(hash);
        }
    }
}

pub(super) struct Borrowed<'a, K, S> {
    pub(super) keys: &'a Keys<K, S>,
    pub(super) key: &'a K,
}

pub(super) struct Owned<K, S> {
    pub(super) keys: Keys<K, S>,
    pub(super) key: K,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyRef for Borrowed<'_, K, S> {
    type Key = K;
    type Hasher = S;

    fn keys(&self) -> &Keys<K, S> {
        self.keys
    }

    fn key(&self) -> &K {
        self.key
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyRef for Owned<K, S> {
    type Key = K;
    type Hasher = S;

    fn keys(&self) -> &Keys<K, S> {
        &self.keys
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
