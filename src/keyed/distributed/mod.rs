//! Keyed limiters whose quotas are shared with other machines: the truth about each key is a line of its own.
//!
//! A key is here in one of three ways. Most are *nowhere*: who wants tokens of them asks the key's line for as many, to be had
//! at once or not at all, and nothing stays behind but what the line has *said*: the level of the key's bucket, by which
//! others are refused without asking until the tokens can be there. A key that is asked for often, or that somebody wants to
//! wait for, gets a *limiter*, which is a node of the key's line as any other: with a line of callers, leases, and all that.
//! Once that limiter is at rest it is forgotten.
//!
//! | file | its noun |
//! |---|---|
//! | `limiter.rs`, `builder.rs`, `snapshot.rs` | the face |
//! | `claim.rs`, `grant.rs` | what callers hold |
//! | `map.rs` | what clones share: which way a claim goes, making limiters and forgetting them |
//! | `asking.rs` | an ask for one claim |
//! | `shard.rs` | who is here: keys with a limiter, and what was said of others |
//! | `cached.rs` | what a line said last; pure |

mod asking;
mod builder;
mod cached_reply;
mod claim;
mod grant;
mod limiter;
mod map;
mod route_shard;
mod snapshot;

pub(super) use builder::Config;
pub use builder::DistributedKeyedBuilder;
pub use claim::DistributedKeyedConsume;
pub use grant::DistributedKeyedGrant;
pub use limiter::DistributedKeyedLimiter;
pub use snapshot::DistributedKeyedSnapshot;
