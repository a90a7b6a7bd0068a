//! Keyed limiters: one quota per user, address or API key, in bounded memory.
//!
//! | file | its noun |
//! |---|---|
//! | `limiter.rs`, `builder.rs`, `snapshot.rs`, `entries.rs` | the face: documents and delegates, checks configurations; verbs that take nothing are in `limiter/` |
//! | `claim.rs`, `grant.rs`, `key_ref.rs` | what callers hold |
//! | `map.rs` | which room a key is in, and what happens when a room cannot go on by itself; the verbs are in `map/` |
//! | `shard.rs`, `packed_levels.rs`, `live_entries.rs`, `groups.rs` | a shard: keys, words, seats, and the tables they are in; acting on them, keeping, forgetting and changing them are in `shard/` |
//! | `key_limit.rs` | how many keys there may be |
//! | `rate.rs` | levels and words; pure |
//! | `live.rs` | a level becomes a limiter's core, and a core a level |
//! | `pool.rs`, `wheel.rs`, `replenisher.rs` | who sleeps for all keys, and until when |
//! | `top.rs` | who is refused most |
//! | `core/` | keyed limiters over lines; they have a list of files of their own |

mod builder;
mod claim;
#[cfg(feature = "redis")]
mod distributed;
mod driver_pool;
mod entries;
mod grant;
mod groups;
mod key_limit;
mod key_ref;
mod limiter;
mod live;
mod live_entries;
mod map;
mod packed_levels;
mod rate;
mod replenisher;
mod shard;
mod snapshot;
mod timer_wheel;
mod top;

pub use builder::KeyedBuilder;
pub use claim::{KeyedConsume, KeyedConsumeOwned, KeyedWithin, KeyedWithinOwned};
#[cfg(feature = "redis")]
pub use distributed::{
    DistributedKeyedBuilder, DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter,
    DistributedKeyedSnapshot,
};
pub use entries::{KeyedEntries, KeyedEntry};
pub use grant::{KeyedGrant, OwnedKeyedGrant};
pub use limiter::KeyedLimiter;
pub use replenisher::KeyedReplenisher;
pub use snapshot::KeyedSnapshot;

/// Spreads what a fast hasher may have put into few bits.
#[inline]
fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
