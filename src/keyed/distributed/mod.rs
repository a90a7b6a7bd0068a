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
//! | `config.rs` | the settings |
//! | `builder.rs` | their checks |
//! | `keys.rs` | the operations of limiters, claims and grants on the keys |
//! | `claim.rs` | the route of a claim |
//! | `map.rs` | the state shared by clones: creating limiters and forgetting them |
//! | `asking.rs` | a request for one claim |
//! | `route_shard.rs` | the tables: keys with a limiter, and cached replies of other keys |
//! | `cached_reply.rs` | the last reply of a key's store; pure |

mod asking;
mod builder;
mod cached_reply;
mod claim;
mod config;
mod keys;
mod map;
mod route_shard;

pub(super) use builder::build;
pub(super) use config::{Config, Namer};
