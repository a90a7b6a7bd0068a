//! A store for [tollgate](https://docs.rs/tollgate) in Redis or Valkey: limiters on many machines share one quota.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Quota};
//! use tollgate_redis::RedisStore;
//!
//! let store = RedisStore::connect("redis://127.0.0.1/", "api").await?;
//! let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(100)).distributed(store).build()?;
//! let _grant = limiter.consume(1).await?; // waits in the queue of this process; 1,000 per second for all of them
//! # Ok(()) }
//! ```
//!
//! [`tollgate::distributed`] describes the protocol between a limiter and its store. With the feature `keyed` of
//! tollgate, `DistributedKeyedLimiter` shares one quota per key.
//!
//! Each store is one key, updated by one script (`store.lua`), which reads the server's clock. Redis knows scripts by
//! their hash, and forgets them when it restarts, fails over or is told to. A node that gets the error `NOSCRIPT` sends
//! the script again.
//!
//! | file | contents |
//! |---|---|
//! | `lib.rs` | the store: one key, its requests and their retries |
//! | `ask.rs` | a request of a node as arguments of the script, and the reply |
//! | `connect.rs` | the ways to make a store |
//! | `connection.rs` | the ways to connect: one server, a cluster, sentinels |
//! | `key.rs` | the keys of stores in Redis |
//! | `probe.rs`, `probe.lua` | what `connect` checks |
//! | `race.rs` | waiting for the first of two futures |
//! | `reply.rs` | error replies of Redis, by kind |
//! | `sentinels.rs` | the sentinels, which report the address of the master |
//! | `server.rs` | the connection and its repair |
//! | `shard.rs` | one server or cluster master, with its circuit breaker |
//! | `slots.rs` | which master of a cluster keeps which key |
//! | `store.lua` | the script of a store |

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Examples compile without a warning.
#![doc(test(attr(deny(warnings))))]

mod ask;
mod connect;
mod connection;
mod key;
mod probe;
mod race;
mod reply;
#[cfg(feature = "sentinel")]
mod sentinels;
mod server;
mod shard;
mod slots;

pub use shard::RedisServerSnapshot;
pub use tollgate::distributed::Circuit;

use ask::SCRIPT;
use connection::Connection;
use key::{key, key_among};
use redis::{Cmd, RedisError, Script};
use reply::{error_reply, is_of_the_server, reply_kind};
use server::{Server, is_broken, silent, unreachable};
use shard::Shard;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::distributed::{
    LeaseGrant, LeaseRequest, Outage, QuotaTerms, ReplyKind, Store, StoreCounters, StoreError, StoreSnapshot, Stores,
};

/// How long an answer may take, unless the user sets another time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A store in Redis (5 or later) or Valkey: all limiters built with a store of the same name on the same server share
/// one quota.
///
/// # Outages
///
/// All stores of a server share one connection and one circuit breaker; in a cluster each master has its own breaker.
/// While the server answers, at most 256 requests are under way there, and further requests wait for their turn. If the
/// server does not answer for the time set by [`answer_timeout`](Self::answer_timeout), the circuit opens: no requests are sent
/// until the server answers a trial. The connection is kept unless it breaks, or stays silent while a new connection is
/// answered. Error replies of the server are counted by [kind](tollgate::distributed::ReplyKind), and do not affect the
/// connection. See [`servers`](Self::servers).
///
/// All limiters of a store have the same quota. To change it, build the new limiters with a higher
/// [`quota_version`](Self::quota_version): the new quota takes over in place. Redis must not evict the key: an eviction has
/// the effect of a restart.
///
/// One claim costs at most the burst; a larger cost is [`TooLarge`](tollgate::ConsumeError::TooLarge).
///
/// Clones are the same store. Clones share connections, and a broken connection is replaced.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, distributed::Outage};
/// use tollgate_redis::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1/", "user:42").await?
///     .outage(Outage::Share(Quota::per_second(1_000).burst(50))); // while Redis cannot be reached
/// let limiter = Limiter::builder().quota(Quota::per_second(10_000)).distributed(store.clone()).build()?;
/// limiter.wait(1).await?;
/// println!("{:?}", store.snapshot());
/// # Ok(()) }
/// ```
///
/// # Failover
///
/// A connection is replaced when it breaks, or when its server refuses writes because it has become a replica. The new
/// connection leads to the promoted replica if the way of connecting allows it:
///
/// * [`connect`](Self::connect) uses an address and looks it up each time. A name that is pointed to the new master is
///   enough, and so is a proxy in front of it. If the address belongs to the old master alone, no server is there any
///   more: the result is an [`Outage`] until a server answers there.
/// * `connect_sentinels` (feature `sentinel`) asks the sentinels each time which server is the master.
/// * `connect_cluster` (feature `cluster`) learns all nodes of the cluster from the given ones. It follows the
///   cluster when a replica takes over, even if none of the given nodes is left.
///
/// Replicas lag, because Redis does not wait for them. Tokens granted by the old master and unknown to the new one are
/// granted again: at most a burst, and the tokens promised to waiters beyond that. A node drops its promised tokens if
/// its last request is unknown to the new master. `min-replicas-to-write` and `min-replicas-max-lag` in Redis bound how
/// long this can last. The clocks of the two servers matter too: if the new clock is ahead, more tokens are minted, for
/// the time by which it is ahead.
///
/// # TLS
///
/// `rediss://` addresses work if the `redis` crate is built with TLS. This crate does not choose the TLS
/// implementation. Enable one in your `Cargo.toml`, beside `tollgate`, for example `redis = { version = "1", features =
/// ["tokio-native-tls-comp"] }`.
///
/// # Paused time
///
/// Redis answers in real time. If the runtime's clock is paused (`tokio::time::pause`, `start_paused`), time jumps over
/// each wait for the network, so every request times out at once and is repeated without a rest. Use a
/// [`MemoryStore`](tollgate::distributed::MemoryStore) there.
#[derive(Clone)]
pub struct RedisStore {
    server: Arc<Server>,
    script: Arc<Script>,
    key: Arc<str>,
    tally: Arc<StoreCounters>,
    outage: Outage,
    quota_version: u32,
    answer_timeout: Duration,
}

impl RedisStore {
    /// Returns another store on the same server or cluster, over the same connections.
    ///
    /// # Errors
    ///
    /// [`StoreError::Misnamed`] if the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes.
    pub fn beside(&self, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        let key = format!("tollgate:{}", key(name)).into();
        Ok(Self { key, tally: Arc::default(), ..self.clone() })
    }

    /// Sets the behavior of limiters built with this store while Redis cannot be reached. The default is
    /// [`Outage::Wait`]; the last call counts.
    #[must_use = "this returns the changed store"]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Sets the version of the quotas of limiters built with this store. The default is 0; the last call counts.
    ///
    /// To change a quota while limiters with the old one run, build the new limiters with a higher version. The store has
    /// the quota with the highest version that asked so far. Limiters with a lower version use that quota from their next
    /// request on, which is sent within a second while they are called. Promised tokens keep their instants, and no burst
    /// is granted anew. To go back to an older quota, give it a version that is higher still.
    ///
    /// Two different quotas with the same version are an error,
    /// [`ConsumeError::QuotaConflict`](tollgate::ConsumeError::QuotaConflict), for callers of the limiter that asked second.
    #[must_use = "this returns the changed store"]
    pub fn quota_version(mut self, version: u32) -> Self {
        self.quota_version = version;
        self
    }

    /// Sets how long Redis may take to answer before it counts as unreachable. The default is one second; the last
    /// call counts.
    #[must_use = "this returns the changed store"]
    pub fn answer_timeout(mut self, answer_timeout: Duration) -> Self {
        self.answer_timeout = answer_timeout;
        self
    }

    /// Returns the key in Redis.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the requests and grants of this process's limiters that use this store; for a keyed limiter, those of
    /// all its keys.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.tally.snapshot()
    }

    /// Returns the state of the servers behind this store and the stores beside it: one server, or the masters of a
    /// cluster.
    pub fn servers(&self) -> Vec<RedisServerSnapshot> {
        self.server.snapshots()
    }

    /// Sends a request, and repeats it once in two cases. The connection broke: servers and proxies end connections
    /// that were idle for a while. Or the script removed a field that did not belong in the hash.
    async fn ask_once(&self, ask: LeaseRequest) -> Result<LeaseGrant, StoreError> {
        let shard = self.server.shard(&self.key);
        let permit = shard.breaker.admit(self.answer_timeout).await;
        let _permit = permit.inspect_err(|_| self.wake_repair(&shard))?;
        let error = match self.attempt(&shard, &ask).await {
            Ok(answer) => return Ok(answer),
            Err(Failed::For(error)) => return Err(error),
            Err(Failed::Again(error)) => error,
        };
        self.attempt(&shard, &ask).await.map_err(|failed| match failed {
            // The first attempt was sent, and the server may have carried it out.
            Failed::Again(StoreError::NotSent(_)) | Failed::For(StoreError::NotSent(_)) => error,
            Failed::Again(error) | Failed::For(error) => error,
        })
    }

    async fn attempt(&self, shard: &Arc<Shard>, ask: &LeaseRequest) -> Result<LeaseGrant, Failed> {
        let mut link = self.server.link(shard, &self.key, self.answer_timeout).await.map_err(Failed::For)?;
        let sent = Instant::now();
        let Ok(answered) = timeout(self.answer_timeout, self.evaluate(&mut link.connection, ask)).await else {
            let error = silent(self.answer_timeout, sent.elapsed());
            shard.breaker.note_timeout();
            if !shard.breaker.has_replied_since(sent) {
                self.server.suspect(shard, &self.key, self.answer_timeout, &error);
            }
            return Err(Failed::For(error));
        };
        let error = match answered {
            Ok(answer) => {
                shard.breaker.note_answer();
                let text = "the reply is no answer: check that no other script uses the key";
                return answer.ok_or_else(|| Failed::For(StoreError::Refused(text.to_owned())));
            }
            Err(error) => error,
        };
        let Some(kind) = reply_kind(&error) else {
            if is_broken(&error) {
                self.server.broke(&link);
                return Err(Failed::Again(unreachable(&error)));
            }
            return Err(Failed::For(unreachable(&error)));
        };
        shard.breaker.note_reply();
        if error.code() == Some("TOLLGATEQUOTA") {
            if let Some(stored) = error.detail().and_then(QuotaTerms::from_text) {
                return Err(Failed::For(StoreError::QuotaConflict { stored: Box::new(stored), asked: ask.terms }));
            }
        }
        if error.code() == Some("TOLLGATECLOCK") {
            if let Some(clock) = error.detail().and_then(|detail| detail.parse().ok()) {
                return Err(Failed::For(StoreError::OtherPeriod { clock }));
            }
        }
        if error.code() == Some("TOLLGATE") {
            return Err(Failed::For(StoreError::Refused(error.to_string())));
        }
        self.tally.count_error_reply(kind);
        let error = error_reply(kind, &error);
        if is_of_the_server(kind) {
            if kind == ReplyKind::ReadOnly {
                self.server.broke(&link);
            }
            self.server.suspect(shard, &self.key, self.answer_timeout, &error);
        }
        if kind == ReplyKind::ForeignField {
            self.tally.warn(self, error.to_string());
            return Err(Failed::Again(error));
        }
        Err(Failed::For(error))
    }

    /// Starts the repair task if the circuit is open: the last task may have ended with its runtime.
    fn wake_repair(&self, shard: &Arc<Shard>) {
        if shard.breaker.why_open().is_some() {
            self.server.repair(shard, &self.key, self.answer_timeout);
        }
    }

    async fn evaluate(
        &self,
        connection: &mut Connection,
        ask: &LeaseRequest,
    ) -> Result<Option<LeaseGrant>, RedisError> {
        let answered = match self.command("EVALSHA", self.script.get_hash(), ask).query_async(connection).await {
            Err(error) if RedisError::code(&error) == Some("NOSCRIPT") => {
                self.tally.count_error_reply(ReplyKind::NoScript);
                // It may be another server, after a failover.
                let store = self.clone();
                tokio::spawn(async move { store.check_eviction().await });
                self.command("EVAL", SCRIPT, ask).query_async(connection).await
            }
            answered => answered,
        };
        let reply: Vec<u8> = answered?;
        Ok(ask::answer(&reply, ask.classes.len()))
    }

    fn command(&self, verb: &str, script: &str, ask: &LeaseRequest) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&*self.key);
        ask::add_arguments(&mut command, ask);
        command
    }
}

impl Store for RedisStore {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(self.ask_once(ask))
    }

    fn tally(&self) -> &StoreCounters {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }

    fn quota_version(&self) -> u32 {
        self.quota_version
    }

    /// While the server is unreachable, waits until it is back. Otherwise all stores of a server share a budget of
    /// repeats.
    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.server.shard(&self.key).breaker.backoff(failures).await })
    }

    fn circuits(&self) -> Vec<Circuit> {
        self.servers().iter().map(|server| server.breaker.circuit).collect()
    }
}

/// The reason why an attempt failed, and whether to repeat it.
enum Failed {
    /// Repeat the request at once.
    Again(StoreError),
    For(StoreError),
}

impl Stores for RedisStore {
    /// A Redis key of its own, with its own hash tag, so that a cluster spreads the keys over its masters.
    fn named(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Self { key: key_among(&self.key, name).into(), ..self.clone() })
    }
}

impl fmt::Debug for RedisStore {
    /// Omits the server, because its address may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("key", &self.key).field("outage", &self.outage).finish_non_exhaustive()
    }
}

fn check(name: &str) -> Result<(), StoreError> {
    if name.is_empty() {
        let text = "the name is empty: name the limited resource, such as `user:42`";
        return Err(StoreError::Misnamed(text.to_owned()));
    }
    if name.len() > StoreError::MAX_NAME {
        let text = format!("the name is {} bytes long, the most is {}: shorten it", name.len(), StoreError::MAX_NAME);
        return Err(StoreError::Misnamed(text));
    }
    Ok(())
}
