//! Many named stores on one server.

use super::Store;
use std::sync::Arc;

/// A store that gives access to other stores on the same server, by name: one for each key of a distributed keyed limiter
/// (`DistributedKeyedLimiter`, feature `keyed`). They use the same connection.
///
/// Implemented by [`MemoryStore`](super::MemoryStore), by `RedisStore` of the crate
/// [`tollgate-redis`](https://docs.rs/tollgate-redis) and by `PostgresStore` of the crate
/// [`tollgate-postgres`](https://docs.rs/tollgate-postgres).
pub trait Stores: Store {
    /// Returns the store with this name. Different names, and the same name of different parents, give different
    /// stores. Requests to it are counted in the [counters](Store::tally) of this store.
    fn named(&self, name: &str) -> Arc<dyn Store>;
}
