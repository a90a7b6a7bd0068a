//! One quota for many machines: what a limiter and the holder of the truth, such as Redis, say to each other.
//!
//! A limiter that was built with [`Builder::distributed`](crate::Builder::distributed) is a *node* of a [`Store`]. It asks the line
//! for tokens, some at a time: what its waiters lack, and a little ahead. The line answers at once, with tokens that are
//! there and with tokens that are not minted yet, whose instants are known. What the node does with them is its own
//! matter: no caller ever waits for the network while there are tokens here.
//!
//! * [`RedisStore`](crate::RedisLine) keeps the truth in Redis.
//! * [`MemoryStore`] keeps it in memory, for tests and simulations: the same, to the integer.
//! * A [`Store`] of your own keeps it elsewhere.
//!
//! `consume` is as it is without a line. `try_acquire` can only have what is here: on a node that nobody has called for a
//! while it is denied once, and finds the tokens when it comes again. It can have half of the burst at once, which is what
//! all nodes together may keep unused; nothing of a burst of 1.
//!
//! What was promised to a claim that is then given up serves the next callers of that node, as far as they come; the line does
//! not get it back. So one that costs more than a burst, and gives up, can cost all nodes the time in which that is minted:
//! that of 16 bursts, or a minute if that is longer, since a claim that costs more is refused as too large.
//!
//! A server's clock that steps back while an answer is lost can over-grant: at most `rate x lost time` tokens, and at most the
//! lease in that answer. The lost time is what passed on the server that its clock did not count. The answer that comes again
//! says how long ago it was first given by the store's own count, in which the lost time is missing. So the node has the
//! rest of these tokens later than promised, by the lost time. What was promised to other nodes behind them before the step keeps
//! its instants. The two overlap for no longer than the lost time, so at most `rate x lost time` tokens are granted twice in
//! a window; and nothing but this one lease is late, so it is never more than that lease. The node cannot tell the step from an
//! ask that arrived late, and where no answer is lost no lease moves: then nothing is over-granted.
//!
//! A line that owes 2^52 tokens refuses to promise more ([`StoreError::Refused`]): beyond 2^53 the script could not count them.
//!
//! | file | its noun |
//! |---|---|
//! | `mod.rs` | what is said: `Store`, `Ask`, `Answer`, `StoreError`, `Outage` |
//! | `terms.rs` | a quota in the integers of the script |
//! | `leases.rs` | what was promised to this node, and when it comes; pure |
//! | `feed.rs` | what the node knows of the line, and what it asks for next; pure |
//! | `keeper.rs` | the task that asks |
//! | `tally.rs` | what is counted |
//! | `replies.rs` | errors that the server answers with, by kind |
//! | `race.rs` | waiting for whichever of two futures is ready first |
//! | `stores.rs` | many lines on one server, by name: those of the keys of a shared keyed limiter |
//! | `bucket.rs` | the shared bucket, as the script has it; pure |
//! | `memory.rs` | the line in memory |

mod bucket;
mod counters;
mod feed;
mod keeper;
mod leases;
mod memory;
mod race;
mod replies;
mod stores;
mod terms;

pub use counters::{StoreSnapshot, Tally};
#[cfg(feature = "keyed")]
pub(crate) use feed::random_node;
pub(crate) use feed::{Feed, Plan, View};
#[cfg(feature = "keyed")]
pub(crate) use keeper::note;
pub(crate) use keeper::{Post, Replan};
pub(crate) use leases::{Lease, Leases, Pace};
pub use memory::MemoryStore;
pub(crate) use race::{First, first};
pub use replies::{ErrorReplies, ReplyKind};
pub use stores::Stores;
pub(crate) use stores::{key, key_among};
pub use terms::Terms;

use crate::Quota;
use std::fmt::Debug;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::time::Duration;

/// How long a line remembers a node that is not heard of, and with it what the node may keep unused.
pub const LEASE_TIME: Duration = Duration::from_secs(2);

/// Who keeps the one truth about a shared quota.
///
/// What is to be done with an [`Ask`] is written in `src/redis/store.lua`, and in Rust in `src/lease/bucket.rs`: the two
/// agree to the integer.
pub trait Store: Debug + Send + Sync + 'static {
    /// Asks once. Not answered within a time of the line's own choosing is an error; it will be asked the same again.
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send + '_>>;

    /// What the nodes that were made from this line, and from its clones, have counted.
    fn tally(&self) -> &Tally;

    /// What nodes do while the line cannot be reached.
    fn outage(&self) -> Outage {
        Outage::Wait
    }

    /// Waits until an ask that failed is to be made again, when `failures` in a row have failed.
    ///
    /// By default that is 20 ms after the first failure, twice as long after each further one, and at most 500 ms, less up to a
    /// half at random. A line that has many others beside it on one server bounds the repeats of all of them together.
    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(backoff(failures)))
    }

    /// The part of the server that keeps this line. Lines with the same number are out of reach together: a keyed limiter that
    /// cannot reach one of them does not try the others for a moment. `None` if the line itself sends no asks then.
    fn shard(&self) -> Option<u64> {
        Some(0)
    }
}

/// What a limiter does while its line cannot be reached. Tokens that it has, or was promised, it grants in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Callers wait until the line is back.
    Wait,
    /// Callers for whom there are no tokens get `Unreachable`, those in line too.
    Fail,
    /// The node goes on with a quota of its own, from an empty bucket. What it grants by that the others do not know of.
    Share(Quota),
}

/// What a node asks for. All tokens are those of one line; times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// Who asks: a number that no other node has.
    pub node: u128,
    /// Counts the asks of this node, from 1. An ask that is not answered is repeated under its number.
    pub number: u64,
    /// The quota.
    pub terms: Terms,
    /// Tokens that waiters lack, whole claims only.
    pub want: u64,
    /// Tokens on top of that, as far as they may be kept unused.
    pub ahead: u64,
    /// Tokens of this kind that the node has already.
    pub bank: u64,
    /// How many it would like to be allowed to keep unused.
    pub hold: u64,
    /// How many it has to, to grant what a caller wanted to have at once.
    pub must: u64,
    /// How many it may keep by what it was told before, if it has not cut that down itself.
    pub held: u64,
    /// Tokens that it gives back.
    pub back: u64,
    /// After how many microseconds without a word it is to be forgotten.
    pub ttl: u64,
    /// It will be gone.
    pub leave: bool,
    /// What it wants is of use at once only: all of it, or nothing.
    pub at_once: bool,
}

impl Ask {
    /// An ask for nothing.
    pub fn new(node: u128, number: u64, terms: Terms) -> Self {
        let ttl = LEASE_TIME.as_micros() as u64;
        let (want, ahead, bank, hold, must, held, back) = (0, 0, 0, 0, 0, 0, 0);
        Self { node, number, terms, want, ahead, bank, hold, must, held, back, ttl, leave: false, at_once: false }
    }
}

/// What the line answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The number of the ask before this one that the line knows of; that of this one if it is repeated; 0 if the node is
    /// not known. Any other number says that the line has lost what it knew.
    pub before: u64,
    /// How long ago the ask was answered first.
    pub age: u64,
    /// Tokens that are there.
    pub once: u64,
    /// Tokens that will be minted.
    pub later: u64,
    /// Tokens that are minted before those, for others.
    pub behind: u64,
    /// How much of the next token there was, in parts of the period; of a stepped quota, how long ago the period began.
    pub part: u64,
    /// How many tokens the node may keep unused.
    pub hold: u64,
    /// How many nodes the line knows of.
    pub nodes: u64,
    /// How many of them had waiters lately.
    pub busy: u64,
    /// Tokens that are still there.
    pub left: u64,
}

impl Answer {
    /// An answer in the order in which the script gives it; `None` if it is none.
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let &[before, age, once, later, behind, part, hold, nodes, busy, left] = numbers else { return None };
        Some(Self { before, age, once, later, behind, part, hold, nodes, busy, left })
    }
}

/// Why a line did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or does not answer in time.
    #[error("the shared line cannot be reached: {0}")]
    Unreachable(String),
    /// It answers, but not with tokens.
    #[error("the shared line refuses: {0}")]
    Refused(String),
    /// It cannot be made from what was given.
    #[error("no shared line can be made: {0}")]
    Misnamed(String),
    /// The ask was not sent, so the line knows nothing of it: the server is out of reach, or has too many asks to answer.
    #[error("the shared line was not asked: {0}")]
    NotSent(String),
    /// The server answered with an error. Other lines on the same server may be well.
    #[error("the server of the shared line answered `{message}`: {kind}")]
    Reply {
        /// What kind of error it is.
        kind: ReplyKind,
        /// The server's words.
        message: String,
    },
}

/// Between two attempts at a line: this much the first time, twice as much each time after,
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// and this much at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long to wait after so many failures in a row. Each pause is cut short at random, by up to a half, so that nodes do not come
/// back together.
pub(crate) fn backoff(failures: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    pause.mul_f64(1.0 - random_half())
}

/// At random, from 0 to a half.
fn random_half() -> f64 {
    (RandomState::new().build_hasher().finish() >> 12) as f64 / (1_u64 << 53) as f64
}
