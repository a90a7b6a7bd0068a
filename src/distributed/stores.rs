//! Many named stores on one server.

use super::Store;
use std::sync::Arc;

/// A store that gives access to other stores on the same server, by name: one for each key of a [distributed keyed
/// limiter](crate::KeyedBuilder::distributed). They use the same connection.
///
/// Implemented by [`RedisStore`](crate::RedisStore) and [`MemoryStore`](super::MemoryStore).
pub trait Stores: Store {
    /// Returns the store with this name. Different names, and the same name of different parents, give different
    /// stores. Requests to it are counted in the [counters](Store::tally) of this store.
    fn named(&self, name: &str) -> Arc<dyn Store>;
}

/// The key of the store with this name. A Redis cluster places the key by the text between the braces.
pub(crate) fn key(name: &str) -> String {
    format!("{{{name}}}")
}

/// The key of the store `name` below the store with key `own`. The length at the end keeps any two keys different,
/// whatever characters the names contain.
pub(crate) fn key_among(own: &str, name: &str) -> String {
    let of = own.strip_suffix('}').unwrap_or(own);
    format!("{of}:{name}}}:{}", of.len())
}
