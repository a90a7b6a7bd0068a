//! Keyed limiters: one quota per user, address or API key, in bounded memory.
//!
//! | file | its noun |
//! |---|---|
//! | `limiter.rs`, `builder.rs`, `snapshot.rs`, `entries.rs` | the face: documents and delegates, checks configurations; verbs that take nothing are in `limiter/` |
//! | `claim.rs`, `grant.rs`, `hold.rs` | what callers hold |
//! | `map.rs` | which room a key is in, and what happens when a room cannot go on by itself; the verbs are in `map/` |
//! | `room.rs`, `words.rs`, `seats.rs`, `groups.rs` | a shard: keys, words, seats, and the tables they are in; acting on them, keeping, forgetting and changing them are in `room/` |
//! | `bound.rs` | how many keys there may be |
//! | `rate.rs` | levels and words; pure |
//! | `seat.rs` | a level becomes a limiter's core, and a core a level |
//! | `hub.rs`, `agenda.rs`, `replenisher.rs` | who sleeps for all keys, and until when |
//! | `top.rs` | who is refused most |
//! | `shared/` | keyed limiters over lines; they have a list of files of their own |

mod agenda;
mod bound;
mod builder;
mod claim;
mod entries;
mod grant;
mod groups;
mod hold;
mod hub;
mod limiter;
mod map;
mod rate;
mod replenisher;
mod room;
mod seat;
mod seats;
#[cfg(feature = "redis")]
mod shared;
mod snapshot;
mod top;
mod words;

pub use builder::KeyedBuilder;
pub use claim::{KeyedConsume, KeyedConsumeOwned, KeyedWithin, KeyedWithinOwned};
pub use entries::{KeyedEntries, KeyedEntry};
pub use grant::{KeyedGrant, OwnedKeyedGrant};
pub use limiter::KeyedLimiter;
pub use replenisher::KeyedReplenisher;
#[cfg(feature = "redis")]
pub use shared::{SharedKeyedBuilder, SharedKeyedConsume, SharedKeyedGrant, SharedKeyedLimiter, SharedKeyedSnapshot};
pub use snapshot::KeyedSnapshot;

/// Spreads what a fast hasher may have put into few bits.
#[inline]
fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
