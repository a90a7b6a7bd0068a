//! Keyed limiters: one quota per user, address or API key, in bounded memory.
//!
//! # Design
//!
//! A key that owes no tokens needs no memory: its bucket is full, so forgetting it changes nothing. A key that owes
//! tokens is stored as a *packed level*: the key itself and 8 bytes for each of one or two quotas, which need no update
//! while time passes. A key with quotas of its own, with more than two, with a debt that does not fit into 8 bytes, or
//! with a pause has levels that are not packed. Only a key with waiters or with tokens in flight has a *live entry*: a
//! complete limiter [`Core`](crate::core::Core), the same type that a plain [`Limiter`](crate::Limiter) uses. Queueing,
//! deadlines, cancellation and settling are therefore not written a second time here. Some time after the last waiter
//! and the last grant of a key are gone, its live entry is converted back to a level, exactly to the unit.
//!
//! The map consists of shards. Each shard has its own lock and its own table, and a key belongs to one shard for good.
//! No call holds the locks of two shards at the same time. A call locks the shard of its key and acts on the packed
//! level; if the key has a live entry, the call clones the `Arc`, releases the shard's lock, and acts on the core.
//!
//! One task per runtime, the *keyed driver*, serves the queues of all keys and retires their live entries. No task
//! sweeps the packed levels: the calls that come to a shard forget its full keys, at a bounded cost for each call.
//!
//! # Reading order
//!
//! `rate.rs` and `rates.rs` (the arithmetic), `shard.rs` (the states of a key), `live.rs` (the conversion), `map.rs`
//! (the life of a call), `driver_pool.rs` (the background tasks).
//!
//! | file | contents |
//! |---|---|
//! | `limiter.rs`, `limiter/` | the public methods, and what they do to the levels or the live entry of a key |
//! | `builder.rs`, `builder/`, `snapshot.rs` | builds a limiter; shows its state |
//! | `as_keyed_limiter.rs` | the trait by which adapters take keyed limiters |
//! | `claim.rs`, `grant.rs`, `to_key.rs` | the futures and the grants that callers hold, and their keys |
//! | `map.rs`, `map/` | selects the shard of a key; handles unknown quotas and full maps |
//! | `shard.rs`, `shard/` | one shard: the states of its keys, and all changes to them |
//! | `slots.rs`, `groups.rs` | the table of a shard |
//! | `key_limit.rs` | the bound on the number of keys |
//! | `quotas.rs` | the quotas of a key, as a value that users write |
//! | `rate.rs`, `rates.rs` | levels and packed levels, of one quota and of all quotas of a key: pure arithmetic |
//! | `periods.rs` | the periods of calendar quotas, which all keys share |
//! | `live.rs` | converts a level to a limiter core and back |
//! | `dry_run.rs` | whether the quotas of all keys are in dry run, and what it has found |
//! | `driver_pool.rs`, `driver_pool/` | the tasks that serve waiters |
//! | `state.rs` | levels that outlive the process |
//! | `top.rs` | the keys with the most grants, refusals and waits |
//! | `distributed/` | keyed limiters over a store; its `mod.rs` lists its own files |

mod as_keyed_limiter;
mod builder;
mod claim;
#[cfg(feature = "distributed")]
mod distributed;
mod driver_pool;
mod dry_run;
mod grant;
mod groups;
mod key_limit;
mod limiter;
mod live;
mod map;
mod periods;
mod quotas;
mod rate;
mod rates;
mod shard;
mod slots;
mod snapshot;
#[cfg(feature = "state")]
mod state;
mod to_key;
mod top;

pub use as_keyed_limiter::AsKeyedLimiter;
pub use builder::KeyedBuilder;
pub use claim::{KeyedClaim, KeyedConsume, KeyedConsumeOwned};
#[cfg(feature = "distributed")]
pub use distributed::{
    DistributedKeyedBuilder, DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter,
    DistributedKeyedSnapshot,
};
pub use driver_pool::KeyedReplenisher;
pub use grant::{GrantOfKey, KeyedGrant, OwnedKeyedGrant};
pub use limiter::KeyedLimiter;
pub use quotas::Quotas;
pub use snapshot::{KeyedEntry, KeyedSnapshot};
#[cfg(feature = "state")]
pub use state::KeyedState;
use to_key::Hashed;
pub use to_key::ToKey;
pub use top::{KeyedTop, TopKey};

/// Multiplies by an odd constant, so that the upper bits depend on all bits of `hash`: a fast hasher may vary only a
/// few of them.
#[inline]
fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The shard of a hash, one of so many, by the upper bits of the mixed hash. The tables use other bits; the hashes of a
/// fast hasher may vary in few bits.
#[inline]
fn shard_of(hash: u64, shards: usize) -> usize {
    ((u128::from(mix(hash)) * shards as u128) >> 64) as usize
}
