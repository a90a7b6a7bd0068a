//! One quota shared by many machines: the protocol between a limiter and the store that keeps the quota, such as Redis.
//!
//! A limiter built with [`Builder::distributed`](crate::Builder::distributed) is a *node* of a [`Store`]. The node
//! requests tokens from the store in batches: the tokens its waiters lack, and a few in advance. The store answers at
//! once. Its answer contains tokens that are available now and tokens that will be minted later, at known instants. The
//! node distributes them itself: no caller waits for the network while the node has tokens.
//!
//! * `RedisStore` of the crate [`tollgate-redis`](https://docs.rs/tollgate-redis) keeps the quota in Redis or Valkey.
//! * `PostgresStore` of the crate [`tollgate-postgres`](https://docs.rs/tollgate-postgres) keeps it in PostgreSQL.
//! * [`MemoryStore`] keeps it in memory, for tests and simulations. All three give the same answers, to the integer.
//! * Your own implementation of [`Store`] keeps it anywhere else: [`SharedBucket`] has the rules, as a state machine that
//!   needs one compare-and-swap or one transaction, and the crate `tollgate-store-tests` tests the result.
//!
//! `consume` works as it does without a store. `try_acquire` can only take tokens that the node already has. On a node
//! without recent calls it is denied once; a retry after a round trip finds the tokens. At most it can take half of the
//! burst at once, because all nodes together may keep only that much unused. With a burst of 1 it can take nothing.
//!
//! A store promises only tokens that are minted within a short horizon (a quarter of a second, or 2.5 round trips), so nodes
//! that crash cost the others no more than that. A claim costs at most the burst: a larger one is refused as too large. A node
//! in which no claim waits returns what it was promised.
//!
//! If the server's clock steps back while an answer is lost, the quota can be exceeded: by at most `rate x lost time`
//! tokens, and by at most the lease in that answer. The lost time is the time that passed on the server without its
//! clock counting it. docs/distributed.md has the proof. If no answer is lost, nothing is over-granted.
//!
//! | file | contents |
//! |---|---|
//! | `distributed.rs` | the protocol: `Store`, `Stores`, `LeaseRequest`, `ClassClaims`, `StoreError`, `Outage` |
//! | `distributed/answer.rs` | the answer of a store: `LeaseGrant`, `ClassGrant`, and what no store can mean |
//! | `distributed/terms.rs` | a quota in the integers of the script |
//! | `distributed/leases.rs` | the tokens promised to this node and their instants; pure |
//! | `distributed/losses.rs` | whether a store has lost the state of its last answers, and how many tokens; pure |
//! | `distributed/planner.rs` | the node's knowledge of the store, and its next request; pure |
//! | `distributed/planner/choose.rs` | what the refill task does next: request tokens, and how many, or sleep |
//! | `distributed/planner/view.rs` | what the planner is told of the limiter, and what it decides |
//! | `distributed/leases/source.rs` | the promised tokens as the core's `Source` |
//! | `distributed/cover.rs` | which claims in the queue the promised tokens cover; pure |
//! | `distributed/node_classes.rs` | the classes of a node: what they request, and the weights that follow |
//! | `distributed/node.rs` | the node's state: what to request for the queue, and what the answers bring |
//! | `distributed/refill.rs` | what the refill task calls in the limiter |
//! | `distributed/refill_task.rs` | the refill task, which sends the requests |
//! | `distributed/builder.rs` | `Builder::distributed` |
//! | `distributed/counters.rs` | the counters of a store |
//! | `distributed/breaker.rs` | a circuit breaker for the servers of stores |
//! | `distributed/replies.rs` | error replies of the server, by kind |
//! | `distributed/race.rs` | waiting for the first of two futures |
//! | `distributed/bucket.rs` | the shared bucket: the rules of every store; pure |
//! | `distributed/bucket/classes.rs` | classes of all nodes that share a bucket; pure |
//! | `distributed/bucket/granting.rs` | what a bucket grants to the claims of a request; pure |
//! | `distributed/bucket/places.rs` | the places of nodes that were sent away; pure |
//! | `distributed/bucket/minting.rs` | what a bucket mints, and when it forgets; pure |
//! | `distributed/bucket/periods.rs` | the periods of calendar quotas; pure |
//! | `distributed/bucket/returns.rs` | what nodes return to a bucket; pure |
//! | `distributed/bucket/new_quota.rs` | a newer quota replaces that of a bucket; pure |
//! | `distributed/record.rs` | the shared bucket as a record of bytes |
//! | `distributed/memory.rs` | the store in memory |

mod answer;
mod breaker;
mod bucket;
mod builder;
mod counters;
mod cover;
mod leases;
mod losses;
mod memory;
mod node;
mod node_classes;
mod planner;
mod race;
mod record;
mod refill;
mod refill_task;
mod replies;
mod terms;

pub(crate) use answer::{Answered, send};
pub use answer::{ClassGrant, LeaseGrant};
pub use breaker::{Breaker, BreakerSnapshot, Circuit};
pub use bucket::SharedBucket;
pub use counters::{StoreCounters, StoreSnapshot};
pub(crate) use leases::{Lease, Leases, Pace};
pub use memory::MemoryStore;
pub(crate) use planner::{Plan, RefillPlanner, SentAway, View, Wanted, random_node};
pub(crate) use race::first;
pub(crate) use refill_task::RefillHandle;
pub use replies::ReplyKind;
pub use terms::QuotaTerms;

use crate::error::QuotaConflict;
use crate::error::error_enum;
use crate::name::Name;
use crate::quota::Quota;
use std::fmt::Debug;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The single authority on a shared quota.
///
/// The handling of a [`LeaseRequest`] is specified by [`SharedBucket`]. A store may keep its buckets anywhere, as long as
/// it gives the same answers. The easiest way is to keep a `SharedBucket` in a record that can be replaced atomically. The
/// crate `tollgate-store-tests` tests a store.
pub trait Store: Debug + Send + Sync + 'static {
    /// Sends one request. If no answer arrives within a time that the store chooses, this is an error, and the caller
    /// repeats the same request.
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>>;

    /// The counters of all nodes that were built from this store and its clones.
    fn tally(&self) -> &StoreCounters;

    /// The behavior of nodes while the store cannot be reached, or answers with errors.
    fn outage(&self) -> Outage {
        Outage::Wait
    }

    /// Waits before a failed request is repeated; `failures` is the number of failures in a row.
    ///
    /// The default pause is 20 ms after the first failure, doubles with each further failure, and is at most 500 ms. A
    /// random part of up to a half is subtracted. A store that shares its server with many others may bound the repeats
    /// of all of them together.
    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(LeaseRequest::backoff(failures)))
    }

    /// The version of the quotas of limiters built with this store. The default is 0.
    ///
    /// All limiters of a store have the same quota, or different versions of it. The store has the quota with the highest
    /// version that asked so far, and limiters with a lower version use that one as soon as they ask. Of two different
    /// quotas with the same version, the one that asked first counts, and limiters with the other one are refused.
    fn quota_version(&self) -> u32 {
        0
    }

    /// The circuit breakers of the store's server; of a cluster, those of all its masters. Meters report them.
    fn circuits(&self) -> Vec<Circuit> {
        Vec::new()
    }
}

/// A store that gives access to other stores on the same server, by name: one for each key of a distributed keyed limiter
/// (`DistributedKeyedLimiter`, feature `keyed`). They use the same connection.
///
/// Implemented by [`MemoryStore`], by `RedisStore` of the crate
/// [`tollgate-redis`](https://docs.rs/tollgate-redis) and by `PostgresStore` of the crate
/// [`tollgate-postgres`](https://docs.rs/tollgate-postgres).
pub trait Stores: Store {
    /// Returns the store with this name. Different names, and the same name of different parents, give different
    /// stores. Requests to it are counted in the [counters](Store::tally) of this store.
    fn named(&self, name: &str) -> Arc<dyn Store>;
}

/// The behavior of a limiter while its store cannot be reached, or answers with errors. Tokens that the node has, or was
/// promised, are granted in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Callers wait until the store grants tokens again.
    #[default]
    Wait,
    /// Callers for which there are no tokens get `Unreachable`, including those in the queue.
    Fail,
    /// The node continues with this quota of its own, from an empty bucket. The other nodes do not know about the
    /// tokens it grants this way.
    Share(Quota),
}

/// A node's request to the store. All tokens are those of one store; times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// The requesting node: a number that no other node has.
    pub node: u128,
    /// Counts the requests of this node, from 1. An unanswered request is repeated under the same number.
    pub number: u64,
    /// The quota.
    pub terms: QuotaTerms,
    /// Tokens that waiters lack: whole claims, up to the node's part of the last answer, or the first claim if that is more.
    pub want: u64,
    /// What the first of these claims lacks: the store grants `want`, or a multiple of `first`, or nothing.
    pub first: u64,
    /// How long the first of these claims has waited. A duration, so clocks need not agree.
    pub age: u64,
    /// The longest time that any of these claims still waits. No token is promised that is minted later.
    pub useful: u64,
    /// The node's round trip.
    pub rtt: u64,
    /// Unused tokens that the node returns, and does not use any longer.
    pub back: u64,
    /// Promised tokens that return before they come: the last ones up to the number `last`.
    pub unused: u64,
    /// The number of the last promised token that the node had before this request; 0 if it had none.
    pub last: u64,
    /// In which time that token comes. A duration by the node's clock: the store notices that its own has lost time.
    pub rest: u64,
    /// Tokens requested for callers to come. They are granted only as far as the node may keep them unused.
    pub ahead: u64,
    /// Tokens kept for callers to come that the node already has.
    pub banked: u64,
    /// Minimum allowance needed to satisfy a `try_acquire` that was denied.
    pub minimum: u64,
    /// The allowance from the last answer, less any cut that the node has made to it since.
    pub held: u64,
    /// How long the store remembers the node without further requests, in microseconds: at most 2^52.
    pub ttl: u64,
    /// The store may forget the node: it keeps no tokens.
    pub leave: bool,
    /// The tokens in `want` are needed now: the store grants all of them at once, or none.
    pub at_once: bool,
    /// With classes: what each of them lacks, each before the classes in it. `want` is the sum of theirs.
    pub classes: Vec<ClassClaims>,
}

impl LeaseRequest {
    /// How long a store remembers a node that sends no requests. For the same time the node may keep its unused tokens.
    pub const LEASE_TIME: Duration = Duration::from_secs(2);

    /// A request for no tokens.
    pub fn new(node: u128, number: u64, terms: QuotaTerms) -> Self {
        Self { node, number, terms, ttl: Self::LEASE_TIME.as_micros() as u64, ..Self::default() }
    }

    /// Returns the pause before a request is repeated after this many failures in a row: that of [`Store::backoff`], for
    /// stores that implement it differently. A random part of up to a half is subtracted, so that nodes do not come back
    /// at the same time.
    pub fn backoff(failures: u32) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
        pause.mul_f64(1.0 - random_half())
    }
}

/// What the claims of one class lack on a node. Times are in microseconds.
///
/// A request has a row for each class that lacks tokens, and one for each class around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassClaims {
    /// The class: the same number on all nodes, at most 2^52. 0 stands for claims outside of all classes.
    pub class: u64,
    /// The class around it; 0 if there is none.
    pub parent: u64,
    /// The weight of the class beside the others in the same parent.
    pub weight: u64,
    /// Tokens that waiters lack, as in [`LeaseRequest::want`]. 0 if the node asks for none now: then
    /// it keeps its place.
    pub want: u64,
    /// What the first of these claims lacks.
    pub first: u64,
    /// What all claims of the class itself lack.
    pub lack: u64,
    /// How long the first of these claims has waited.
    pub age: u64,
    /// The longest time that any of these claims still waits.
    pub useful: u64,
}

impl ClassClaims {
    /// Builds the claims of a class from these numbers, in the order of the fields.
    pub fn from_numbers([class, parent, weight, want, first, lack, age, useful]: [u64; 8]) -> Self {
        Self { class, parent, weight, want, first, lack, age, useful }
    }

    /// Returns the numbers of [`from_numbers`](Self::from_numbers), none above 2^53.
    pub fn numbers(&self) -> [u64; 8] {
        let Self { class, parent, weight, want, first, lack, age, useful } = *self;
        [class, parent, weight, want, first, lack, age, useful].map(|number| number.min(1 << 53))
    }
}

error_enum! {
    /// The reason why a store did not grant a request.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum StoreError {
        /// The store cannot be reached, or does not answer in time.
        #[error("the store of the distributed quota cannot be reached: {0}")]
        Unreachable(String),
        /// The store answers, but refuses to grant tokens.
        #[error("the store of the distributed quota refuses the request: {0}")]
        Refused(String),
        /// The store has another quota than the request, and both have the same version, so neither is newer.
        #[error(
            "the store has the quota `{}`, this limiter has `{}`, and both have version {}: build all limiters of the store \
             with the same quota, and give a changed one a higher `quota_version`",
            stored.quota(),
            asked.quota(),
            asked.version()
        )]
        QuotaConflict {
            /// The quota of the store.
            stored: Box<QuotaTerms>,
            /// The quota of the request.
            asked: QuotaTerms,
        },
        /// The store's clock is in another period of the calendar than the request says. Nothing was changed: the
        /// limiter asks anew, by that clock.
        #[error(
            "the clock of the store, {clock} us after 1970, is in a period of the calendar that this limiter does not \
             know: build all limiters of the store with the same quota"
        )]
        OtherPeriod {
            /// The store's clock, in microseconds since 1970.
            clock: u64,
        },
        /// The store cannot be built from the given name or address.
        #[error("cannot build the store of a distributed quota: {0}")]
        Misnamed(String),
        /// The server lacks something that the store needs. Only connecting fails with this error.
        #[error("the server cannot keep the store of a distributed quota: {message}")]
        Setup {
            /// What is missing.
            missing: Missing,
            /// What is missing in words, with what to do, and what the server said.
            message: String,
        },
        /// The request was not sent, so the store is unchanged: the server is unreachable, or too many requests are
        /// unanswered.
        #[error("the request to the store of the distributed quota was not sent: {0}")]
        NotSent(String),
        /// The server answered with an error. Other stores on the same server may still work.
        #[error("the server of the store answered: {message}")]
        Reply {
            /// The kind of error.
            kind: ReplyKind,
            /// The text of the server's error reply, and what to do.
            message: String,
        },
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// The longest name of a store, in bytes: each request carries the name, and servers hold up all others while they
    /// read a long one. A store with a longer name is [`Misnamed`](Self::Misnamed).
    pub const MAX_NAME: usize = 1_024;

    /// The error that callers get if this is a conflict of quotas.
    pub(crate) fn conflict(&self) -> Option<QuotaConflict> {
        matches!(self, Self::QuotaConflict { .. }).then(|| QuotaConflict { text: Name::of_path(&self.to_string()) })
    }

    /// Whether the cause lies in this store, so that it does not affect others on the same server.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_of_one_store(&self) -> bool {
        use ReplyKind::{Damaged, ForeignField, WrongType};
        matches!(self, Self::QuotaConflict { .. } | Self::Reply { kind: Damaged | ForeignField | WrongType, .. })
    }

    /// The name of an outage with this cause, in events.
    #[cfg(feature = "tracing")]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Reply { kind, .. } => kind.name(),
            Self::Refused(_) => "refused",
            _ => "unreachable",
        }
    }
}

/// What a server lacks that a store needs: see [`StoreError::Setup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// A user and a password that the server accepts.
    Authentication,
    /// The user's right to some of the commands that the store sends, or to its keys.
    Rights,
    /// Scripts: it is another kind of server, for example a sentinel.
    Scripts,
    /// The cluster: it is a single server.
    Cluster,
    /// The other nodes of its cluster: it keeps only some of the keys.
    OtherNodes,
    /// A sentinel that knows the master.
    Sentinel,
    /// The right to write: the server is a replica.
    Master,
}

/// The pause after the first failed request. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// In nanoseconds. A node asks again when its last promised token is a round trip and this time away.
const MARGIN: u64 = 5_000_000;
/// In nanoseconds. A node that was sent away asks again no sooner: claims that are too late may still wait behind others.
const LEAST_SLEEP: u64 = 1_000_000;

/// A random number from 0 to a half.
fn random_half() -> f64 {
    (RandomState::new().build_hasher().finish() >> 12) as f64 / (1_u64 << 53) as f64
}
