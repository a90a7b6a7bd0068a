//! Distributed keyed limiters: each key has a store of its own.
//!
//! A key is in one of three states on a node. Most keys have *no entry*: a claim requests its tokens from the key's
//! store, all at once or none. Only the *cached reply* remains: the level of the key's bucket, by which later claims
//! are refused without a request until the tokens can be available. A key with frequent requests, or with a caller that
//! wants to wait for it, gets a *limiter*, which is an ordinary node of the key's store, with a queue of callers and
//! leases. Once that limiter is *at rest*, with its tokens returned and its debts paid, it is forgotten.
//!
//! | file | contents |
//! |---|---|
//! | `limiter.rs`, `builder.rs`, `snapshot.rs` | public types: documentation and checks |
//! | `consume.rs`, `grant.rs` | the future and the grants that callers hold |
//! | `claim.rs` | a claim: by a request of its own, or in the queue of a limiter |
//! | `one_key.rs` | one key: its store, what is known of it, and creating its limiter |
//! | `map.rs` | the state shared by clones; forgetting limiters |
//! | `route_shard.rs` | the tables: keys with a limiter, and cached replies of other keys |
//! | `cached_reply.rs` | the last reply of a key's store; pure |

mod builder;
mod cached_reply;
mod claim;
mod consume;
mod grant;
mod limiter;
mod map;
mod one_key;
mod route_shard;
mod snapshot;

pub use builder::DistributedKeyedBuilder;
pub use consume::DistributedKeyedConsume;
pub use grant::DistributedKeyedGrant;
pub use limiter::DistributedKeyedLimiter;
pub use snapshot::DistributedKeyedSnapshot;
