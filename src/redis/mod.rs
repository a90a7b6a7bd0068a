//! A line whose truth is in Redis, or Valkey.
//!
//! One key per line, moved by one script (`store.lua`), which takes the server's time. Redis knows scripts by their hash and
//! forgets them when it restarts, fails over or is told to: whoever finds that out sends the script anew.
//!
//! | file | its noun |
//! |---|---|
//! | `mod.rs` | the line |
//! | `server.rs` | the connection, and how it is repaired |
//! | `shard.rs` | one server or master: its circuit breaker, asks under way, repeats |
//! | `slots.rs` | which master of a cluster keeps which key |
//! | `store.lua` | the script |

mod server;
mod shard;
mod slots;

pub use shard::{Circuit, RedisServerSnapshot};

use crate::distributed::{
    Answer, Ask, Outage, ReplyKind, Store, StoreError, StoreSnapshot, Stores, Tally, key, key_among,
};
use redis::cluster::ClusterClient;
use redis::{Client, Cmd, IntoConnectionInfo, RedisError, Script};
use server::{Connection, Sentinels, Server, Way, is_broken, reply_kind, silent, unreachable};
use shard::Shard;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const SCRIPT: &str = include_str!("store.lua");

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A quota's line in Redis (5 or later) or Valkey: all limiters that are built with a line of the same name on the same
/// server share one quota.
///
/// # Outages
///
/// All lines of a server share one connection and one circuit breaker; in a cluster each master has a breaker of its own. While the
/// server answers, at most 256 asks are under way there, and further ones wait for their turn. When it does not answer for the
/// [`patience`](Self::patience), the circuit opens: asks are not sent until the server answers a trial. The connection is kept
/// unless it breaks, or stays silent while a new one is answered. Errors that the server answers with are counted by
/// [kind](crate::distributed::ReplyKind), and leave the connection as it is. See [`servers`](Self::servers).
///
/// A line has the quota that it was first asked for, until it has filled up and Redis has forgotten it: limiters with
/// another one are refused meanwhile, as if it could not be reached. To change a quota, give the line another name. Redis must
/// not evict the key: that is as if it was restarted.
///
/// One claim on a line costs at most 16 bursts, or what is minted in a minute if that is more; else it is
/// [`TooLarge`](crate::ConsumeError::TooLarge). What was promised to a claim that is given up may be lost to all, and that is
/// how long they wait for it.
///
/// Clones are the same line. Connections are shared by clones, and made anew when they break.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, RedisStore, lease::Outage};
///
/// let store = RedisStore::connect("redis://127.0.0.1/", "child:42").await?
///     .outage(Outage::Share(Quota::per_second(1_000).burst(50))); // while Redis cannot be reached
/// let limiter = Limiter::builder().quota(Quota::per_second(10_000)).distributed(store.clone()).build()?;
/// limiter.consume(1).await?;
/// println!("{:?}", store.snapshot());
/// # Ok(()) }
/// ```
///
/// # Failover
///
/// A connection that breaks, or whose server takes no writes any more since it is a replica now, is made anew: it leads to
/// the promoted replica if the way there does.
///
/// * [`connect`](Self::connect) goes by an address. It is looked up each time: a name that is pointed to the new master, or a
///   proxy in front of it, is enough. Where the address is the old master's own, nobody is there any more: an
///   [`Outage`](crate::distributed::Outage) until somebody is.
/// * [`connect_sentinels`](Self::connect_sentinels) asks sentinels each time which server is the master.
/// * [`connect_cluster`](Self::connect_cluster) learns all nodes of the cluster from those that are named, and follows it
///   when a replica takes over, even where none of the named is left.
///
/// Replicas lag, since Redis does not wait for them. What the old master granted and the new one has never heard of is granted
/// again: a burst at most, and what waiters were promised beyond that. A node whose last ask is not known there drops what
/// it was promised. `min-replicas-to-write` and `min-replicas-max-lag` in Redis bound how long that can go on. The clocks of
/// the two servers count too: by as much as the new one is ahead, more is minted.
///
/// # TLS
///
/// `rediss://` addresses work once the `redis` crate is built with TLS, which is not this crate's to choose: in your
/// `Cargo.toml`, beside `tollgate`, for example `redis = { version = "1", features = ["tokio-native-tls-comp"] }`.
///
/// # Paused time
///
/// Redis answers in real time. Where the runtime's clock is paused (`tokio::time::pause`, `start_paused`), time leaps over each
/// wait for the network, so that whatever is asked times out at once, and is asked again without a rest. Use a
/// [`MemoryStore`](crate::distributed::MemoryLine) there.
#[derive(Clone)]
pub struct RedisStore {
    server: Arc<Server>,
    script: Arc<Script>,
    key: Arc<str>,
    tally: Arc<Tally>,
    outage: Outage,
    patience: Duration,
}

impl RedisStore {
    /// The line `name` on the server at `url`, such as `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] if that is no URL, the name is empty, or nobody answers there.
    pub async fn connect(url: impl IntoConnectionInfo, name: &str) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(misnamed)?;
        Self::reach(Way::One(client), name).await
    }

    /// The line `name` on the cluster of which some nodes are at `urls`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_cluster<U: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<Self, StoreError> {
        let client = ClusterClient::new(urls).map_err(misnamed)?;
        Self::reach(Way::Cluster(Box::new(client)), name).await
    }

    /// The line `name` on the server that the sentinels at `urls` call the master. `master` is its URL, with the name that
    /// they have for it as the host: `redis://user:password@mymaster/0`.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::RedisStore;
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let store = RedisStore::connect_sentinels(sentinels, "redis://mymaster/", "child:42").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_sentinels<U: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = U>,
        master: impl IntoConnectionInfo,
        name: &str,
    ) -> Result<Self, StoreError> {
        let sentinels = Sentinels::new(urls, master).map_err(misnamed)?;
        Self::reach(Way::Sentinels(Box::new(sentinels)), name).await
    }

    async fn reach(way: Way, name: &str) -> Result<Self, StoreError> {
        if name.is_empty() {
            return Err(StoreError::Misnamed(
                "its name is empty: name it for what is limited, such as `tenant:42`".to_owned(),
            ));
        }
        Ok(Self {
            server: Server::connect(way, PATIENCE).await?,
            script: Arc::new(Script::new(SCRIPT)),
            key: format!("tollgate:{}", key(name)).into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            patience: PATIENCE,
        })
    }

    /// Another line on the same server or cluster, by the same connections.
    ///
    /// # Errors
    ///
    /// [`StoreError::Misnamed`] if the name is empty.
    pub fn beside(&self, name: &str) -> Result<Self, StoreError> {
        if name.is_empty() {
            return Err(StoreError::Misnamed("its name is empty".to_owned()));
        }
        let key = format!("tollgate:{}", key(name)).into();
        Ok(Self { key, tally: Arc::default(), ..self.clone() })
    }

    /// What limiters that are built with this line do while Redis cannot be reached; [`Outage::Wait`] unless said.
    #[must_use = "this returns the changed line"]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// How long Redis may take to answer before it counts as out of reach; a second unless said.
    #[must_use = "this returns the changed line"]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The key in Redis.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What the limiters of this process that share this line have asked for, and what they got; those of a keyed limiter on
    /// all its keys.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.tally.snapshot()
    }

    /// The servers behind this line, and the lines beside it: one, or the masters of a cluster.
    pub fn servers(&self) -> Vec<RedisServerSnapshot> {
        self.server.snapshots()
    }

    /// Asks; and once more where the connection broke, since servers, and proxies in between, end those that were idle for a while,
    /// or where a field that did not belong in the hash was removed.
    async fn ask_once(&self, ask: Ask) -> Result<Answer, StoreError> {
        let shard = self.server.shard(&self.key);
        let permit = shard.admit(self.patience).await;
        let _permit = permit.inspect_err(|_| self.wake_repair(&shard))?;
        let error = match self.attempt(&shard, &ask).await {
            Ok(answer) => return Ok(answer),
            Err(Failed::For(error)) => return Err(error),
            Err(Failed::Again(error)) => error,
        };
        self.attempt(&shard, &ask).await.map_err(|failed| match failed {
            // The first time it was sent, and may have been carried out.
            Failed::Again(StoreError::NotSent(_)) | Failed::For(StoreError::NotSent(_)) => error,
            Failed::Again(error) | Failed::For(error) => error,
        })
    }

    async fn attempt(&self, shard: &Arc<Shard>, ask: &Ask) -> Result<Answer, Failed> {
        let mut link = self.server.link(shard, &self.key, self.patience).await.map_err(Failed::For)?;
        let sent = Instant::now();
        let Ok(answered) = timeout(self.patience, self.evaluate(&mut link.connection, ask)).await else {
            let error = silent(self.patience, sent.elapsed());
            shard.timeouts.fetch_add(1, Relaxed);
            if !shard.has_replied_since(sent) {
                self.server.suspect(shard, &self.key, self.patience, &error);
            }
            return Err(Failed::For(error));
        };
        let error = match answered {
            Ok(numbers) => {
                shard.note_reply();
                shard.strikes.store(0, Relaxed);
                let error = || Failed::For(StoreError::Refused(format!("{} numbers are no answer", numbers.len())));
                return Answer::from_numbers(&numbers).ok_or_else(error);
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
        shard.note_reply();
        if error.code() == Some("TOLLGATE") {
            return Err(Failed::For(StoreError::Refused(error.to_string())));
        }
        self.tally.replies.count(kind);
        let error = StoreError::Reply { kind, message: error.to_string() };
        if kind.is_of_the_server() {
            if kind == ReplyKind::ReadOnly {
                self.server.broke(&link);
            }
            self.server.suspect(shard, &self.key, self.patience, &error);
        }
        if kind == ReplyKind::ForeignField {
            *self.tally.error() = Some(error.to_string());
            return Err(Failed::Again(error));
        }
        Err(Failed::For(error))
    }

    /// Has the repair task run if the circuit is open: the last one may be gone with its runtime.
    fn wake_repair(&self, shard: &Arc<Shard>) {
        if shard.why_open().is_some() {
            self.server.repair(shard, &self.key, self.patience);
        }
    }

    async fn evaluate(&self, connection: &mut Connection, ask: &Ask) -> Result<Vec<u64>, RedisError> {
        match self.command("EVALSHA", self.script.get_hash(), ask).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.tally.replies.count(ReplyKind::NoScript);
                self.command("EVAL", SCRIPT, ask).query_async(connection).await
            }
            answered => answered,
        }
    }

    fn command(&self, verb: &str, script: &str, ask: &Ask) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&*self.key);
        command.arg(format!("{:032x}", ask.node)).arg(ask.number).arg(u8::from(ask.leave)).arg(ask.terms.to_string());
        for number in [ask.ttl, ask.want, ask.ahead, ask.bank, ask.hold, ask.must, ask.held, ask.back] {
            command.arg(number);
        }
        command.arg(u8::from(ask.at_once));
        command
    }
}

impl Store for RedisStore {
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send + '_>> {
        Box::pin(self.ask_once(ask))
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }

    /// While the server is out of reach, until it is back. Otherwise all lines of a server share a budget of repeats.
    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.server.shard(&self.key).backoff(failures).await })
    }

    /// Each shard has a circuit breaker.
    fn shard(&self) -> Option<u64> {
        None
    }
}

/// Why an attempt to ask failed.
enum Failed {
    /// It is to be tried again at once.
    Again(StoreError),
    For(StoreError),
}

impl Stores for RedisStore {
    /// A key of Redis of its own, with a hash tag of its own: a cluster spreads them.
    fn named(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Self { key: key_among(&self.key, name).into(), ..self.clone() })
    }
}

impl fmt::Debug for RedisStore {
    /// Without the server, whose address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLine").field("key", &self.key).field("outage", &self.outage).finish_non_exhaustive()
    }
}

fn misnamed(error: RedisError) -> StoreError {
    StoreError::Misnamed(error.to_string())
}
