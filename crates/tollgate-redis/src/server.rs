//! The connection to Redis, shared by all stores: its shards, and its repair.

use super::connection::{Connection, Topology};
use super::shard::{RedisServerSnapshot, Shard};
use super::slots::{ranges, slot};
use crate::probe::{probe, why_not_connected};
use crate::race::first;
use crate::reply::{is_of_the_server, reply_kind};
use futures_util::future::Either;
use redis::RedisError;
use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::distributed::StoreError;

/// One connection, shared by all stores. It is kept for as long as it is alive. A request that timed out does not prove
/// otherwise: the server answers in order and may just be slow. The connection is replaced only after an error of the
/// connection itself, if the server has become a replica, or if it stays silent while a new connection is answered. One
/// task per shard does that, however many requests failed.
///
/// `redis::aio::ConnectionManager` is not used: it supports neither clusters nor sentinels, keeps a silent connection
/// for ever, and fails all commands that wait while it reconnects.
pub(super) struct Server {
    topology: Topology,
    link: Mutex<Option<Link>>,
    shards: Mutex<Shards>,
    /// The number of connections made so far.
    made: AtomicU64,
}

/// The known shards, by address, and the slots that each keeps. Without a cluster there is one shard.
#[derive(Default)]
struct Shards {
    by_address: HashMap<String, Arc<Shard>>,
    /// First slot, last slot, shard.
    ranges: Vec<(u16, u16, Arc<Shard>)>,
}

/// The latest connection, and whether it has broken since.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The serial number of the connection.
    number: u64,
    is_broken: bool,
}

impl Shards {
    fn at(&mut self, address: &str) -> Arc<Shard> {
        let number = self.by_address.len() as u64;
        let new = || Arc::new(Shard::new(number, address.to_owned()));
        Arc::clone(self.by_address.entry(address.to_owned()).or_insert_with(new))
    }
}

impl Server {
    /// A server without a connection: the first request makes one.
    pub(super) fn new(topology: Topology) -> Self {
        Self { topology, link: Mutex::new(None), shards: Mutex::default(), made: AtomicU64::new(0) }
    }

    /// Connects to the server, checks that it can keep the store of `key`, and learns the slots of a cluster.
    pub(super) async fn connect(&self, key: &str, answer_timeout: Duration) -> Result<(), StoreError> {
        let began = Instant::now();
        let connected = async {
            let connection = match self.renew().await {
                Ok(connection) => connection,
                Err(error) => {
                    let missing = why_not_connected(&self.topology, &error).await;
                    return Err(missing.unwrap_or_else(|| unreachable(&error)));
                }
            };
            probe(connection.clone(), key, self.topology.user()).await?;
            Ok(connection)
        };
        match timeout(answer_timeout, connected).await {
            Ok(connection) => self.install(connection?),
            Err(_) => return Err(silent(answer_timeout, began.elapsed())),
        }
        self.learn_slots(answer_timeout).await;
        Ok(())
    }

    /// Returns the shard that keeps `key`.
    pub(super) fn shard(&self, key: &str) -> Arc<Shard> {
        let mut shards = self.shards();
        // Only a cluster has slots.
        if !shards.ranges.is_empty() {
            let slot = slot(key);
            if let Some((.., shard)) = shards.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)) {
                return Arc::clone(shard);
            }
        }
        shards.at("")
    }

    pub(super) fn snapshots(&self) -> Vec<RedisServerSnapshot> {
        let made = self.made.load(Relaxed);
        let mut all: Vec<Arc<Shard>> = self.shards().by_address.values().cloned().collect();
        all.sort_by_key(|shard| shard.number);
        all.iter().map(|shard| shard.snapshot(made)).collect()
    }

    /// Returns the connection. If it has broken, waits for the new one.
    pub(super) async fn link(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        key: &str,
        answer_timeout: Duration,
    ) -> Result<Link, StoreError> {
        let wait = async {
            loop {
                let repaired = shard.breaker.repaired();
                if let Some(link) = self.sound() {
                    return Ok(link);
                }
                if let Some(why) = shard.breaker.why_open() {
                    return Err(shard.breaker.not_sent(why));
                }
                self.repair(shard, key, answer_timeout);
                repaired.await;
            }
        };
        let began = Instant::now();
        timeout(answer_timeout, wait).await.unwrap_or_else(|_| Err(silent(answer_timeout, began.elapsed())))
    }

    /// Opens the circuit: a request over the connection got no answer in time, and neither did any other request since
    /// it was sent. Also used if the server replies that it serves nothing at the moment.
    pub(super) fn suspect(self: &Arc<Self>, shard: &Arc<Shard>, key: &str, answer_timeout: Duration, why: &StoreError) {
        shard.breaker.open(why.to_string());
        self.repair(shard, key, answer_timeout);
    }

    /// Marks `link` as broken: the connection failed, or leads to a server that is no longer the master.
    pub(super) fn broke(&self, link: &Link) {
        if let Some(last) = self.last().as_mut().filter(|last| last.number == link.number) {
            last.is_broken = true;
        }
    }

    /// Spawns a task that repairs the connection to `shard`, unless one is running.
    pub(super) fn repair(self: &Arc<Self>, shard: &Arc<Shard>, key: &str, answer_timeout: Duration) {
        let stale = 4 * answer_timeout.min(Duration::from_secs(60)) + Duration::from_secs(2);
        let trial = Arc::new(Trial { shard: Arc::clone(shard), key: key.to_owned(), answer_timeout });
        let server = Arc::downgrade(self);
        shard.breaker.repair(stale, move || {
            let (server, trial) = (Weak::clone(&server), Arc::clone(&trial));
            async move {
                let server = server.upgrade()?;
                let tried = trial.attempt(&server).await;
                server.learn_slots(answer_timeout).await;
                Some(tried)
            }
        });
    }

    async fn renew(&self) -> Result<Connection, RedisError> {
        let connection = self.topology.connect().await?;
        self.made.fetch_add(1, Relaxed);
        Ok(connection)
    }

    fn install(&self, connection: Connection) {
        let mut last = self.last();
        let number = last.as_ref().map_or(0, |last| last.number + 1);
        *last = Some(Link { connection, number, is_broken: false });
    }

    /// Learns which master of a cluster keeps which slots. Without an answer the known slots stay.
    async fn learn_slots(&self, answer_timeout: Duration) {
        let connection = self.last().as_ref().map(|link| link.connection.clone());
        let Some(connection) = connection else { return };
        let Ok(Ok(Some(answer))) = timeout(answer_timeout, connection.slots()).await else { return };
        let ranges = ranges(&answer);
        if ranges.is_empty() {
            return;
        }
        let mut shards = self.shards();
        shards.ranges = ranges.iter().map(|range| (range.first, range.last, shards.at(&range.address))).collect();
    }

    /// Returns the server's eviction policy if it may evict keys that expire. `None` also if it does not tell.
    pub(super) async fn eviction(&self, answer_timeout: Duration) -> Option<String> {
        let connection = self.sound()?.connection;
        let told = timeout(answer_timeout, connection.memory()).await.ok()?.ok()?;
        let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
        // Without a limit nothing is evicted.
        field("maxmemory").filter(|most| *most != "0")?;
        Some(policy.to_owned())
    }

    fn sound(&self) -> Option<Link> {
        self.last().clone().filter(|link| !link.is_broken)
    }

    fn last(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn shards(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether any shard has replied since `then`, over any connection.
    fn has_replied_since(&self, then: Instant) -> bool {
        self.shards().by_address.values().any(|shard| shard.breaker.has_replied_since(then))
    }
}

/// Detects whether a shard answers again, and makes a new connection if the old one is dead.
struct Trial {
    shard: Arc<Shard>,
    key: String,
    answer_timeout: Duration,
}

impl Trial {
    /// Tries the existing connection. Tries a new one beside it if the old one is broken or stays silent.
    async fn attempt(&self, server: &Server) -> Result<(), StoreError> {
        let began = Instant::now();
        let old = server.sound();
        let is_there = old.is_some();
        let by_old = async {
            match &old {
                Some(link) => self.try_over(link.connection.clone()).await,
                None => pending().await,
            }
        };
        let by_new = async {
            if is_there {
                sleep(self.answer_timeout / 4).await;
                // Another shard was answered over the same connection, so the connection works.
                if server.has_replied_since(began) {
                    return pending().await;
                }
            }
            let connection = server.renew().await?;
            self.try_over(connection.clone()).await.map(|()| connection)
        };
        let mut by_old = std::pin::pin!(by_old);
        match timeout(self.answer_timeout, first(&mut by_old, by_new)).await {
            Ok(Either::Left(Ok(()))) => Ok(()),
            Ok(Either::Left(Err(error))) => {
                if let Some(link) = old.as_ref().filter(|_| is_broken(&error)) {
                    server.broke(link);
                }
                self.keep_cluster(server);
                Err(unreachable(&error))
            }
            Ok(Either::Right(Ok(connection))) => {
                // The server answers again. If the old connection is alive it is answered now too, and is kept.
                let grace = Duration::from_millis(100);
                if !is_there || !matches!(timeout(grace, by_old).await, Ok(Ok(()))) {
                    server.install(connection);
                }
                Ok(())
            }
            Ok(Either::Right(Err(error))) => {
                self.keep_cluster(server);
                if !is_there {
                    return Err(unreachable(&error));
                }
                // The old connection may still be answered in time.
                match timeout(self.answer_timeout.saturating_sub(began.elapsed()), by_old).await {
                    Ok(Ok(())) => Ok(()),
                    _ => Err(unreachable(&error)),
                }
            }
            Err(_) => {
                self.keep_cluster(server);
                Err(silent(self.answer_timeout, began.elapsed()))
            }
        }
    }

    /// Marks a cluster connection as usable again. It has learned of nodes that were not given to this crate, and
    /// reconnects by itself. It stays in use if no new connection can be made.
    fn keep_cluster(&self, server: &Server) {
        if let Some(link) = &mut *server.last() {
            if link.connection.reconnects() {
                link.is_broken = false;
            }
        }
    }

    /// Checks whether the shard answers over this connection.
    async fn try_over(&self, mut connection: Connection) -> Result<(), RedisError> {
        match connection.probe(&self.key).exec_async(&mut connection).await {
            Err(error) if reply_kind(&error).is_none_or(is_of_the_server) => Err(error),
            _ => {
                self.shard.breaker.note_reply();
                Ok(())
            }
        }
    }
}

/// Whether the connection cannot be used any more.
pub(super) fn is_broken(error: &RedisError) -> bool {
    reply_kind(error).is_none() && (error.is_unrecoverable_error() || error.is_io_error())
}

pub(super) fn unreachable(error: &RedisError) -> StoreError {
    StoreError::Unreachable(error.to_string())
}

/// The error for a server that did not answer for `answer_timeout` of the runtime's clock. By the machine's clock,
/// `took` has passed: much less means that the runtime's clock is paused.
pub(super) fn silent(answer_timeout: Duration, took: Duration) -> StoreError {
    StoreError::Unreachable(if took < answer_timeout / 2 {
        format!("no answer within {answer_timeout:?} of a paused clock: in paused time use a `MemoryStore`")
    } else {
        format!("no answer within {answer_timeout:?}: check the address and the server, or allow more time")
    })
}
