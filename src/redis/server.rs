//! How Redis is reached: one server, a cluster, or whichever server sentinels call the master.

use crate::lease::LineError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, TlsMode, Value,
};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(super) struct Server {
    way: Way,
    link: Mutex<Option<Link>>,
    /// Whoever makes a connection makes it for all.
    turn: tokio::sync::Mutex<()>,
}

/// By which way it is reached.
pub(super) enum Way {
    One(Client),
    Cluster(Box<ClusterClient>),
    Sentinels(Box<Sentinels>),
}

/// Who says which server is the master.
pub(super) struct Sentinels {
    addresses: Vec<ConnectionInfo>,
    /// What they call it,
    name: String,
    /// and what is said to it first.
    login: SentinelNodeConnectionInfo,
}

/// The connection that was made last, and whether it has failed since.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Which one it is.
    number: u64,
    failed: bool,
}

#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    pub(super) fn new(way: Way) -> Self {
        Self { way, link: Mutex::new(None), turn: tokio::sync::Mutex::new(()) }
    }

    /// A connection, made anew if the last one has failed.
    pub(super) async fn link(&self, patience: Duration) -> Result<Link, LineError> {
        if let Some(link) = self.sound() {
            return Ok(link);
        }
        let began = std::time::Instant::now();
        let error = match timeout(patience, self.renew(patience)).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(error)) => unreachable(&error),
            Err(_) => silent(patience, began.elapsed()),
        };
        // The last one of a cluster has learned of nodes that nobody named to us, and finds its way by itself.
        match &mut *self.last() {
            Some(link) if matches!(link.connection, Connection::Cluster(_)) => {
                link.failed = false;
                Ok(link.clone())
            }
            _ => Err(error),
        }
    }

    async fn renew(&self, patience: Duration) -> Result<Link, RedisError> {
        // Not for as long as it takes: who has the turn may be on a runtime that nobody drives.
        let _turn = timeout(patience / 2, self.turn.lock()).await;
        if let Some(link) = self.sound() {
            return Ok(link);
        }
        let connection = self.way.connect().await?;
        let mut last = self.last();
        let number = last.as_ref().map_or(0, |last| last.number + 1);
        Ok(last.insert(Link { connection, number, failed: false }).clone())
    }

    /// `link` has failed. Perhaps it leads to a server that is not the master any more.
    pub(super) fn doubt(&self, link: &Link) {
        if let Some(last) = self.last().as_mut().filter(|last| last.number == link.number) {
            last.failed = true;
        }
    }

    fn sound(&self) -> Option<Link> {
        self.last().clone().filter(|link| !link.failed)
    }

    fn last(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Way {
    async fn connect(&self) -> Result<Connection, RedisError> {
        // Who asks has a timeout of its own.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        match self {
            Self::One(client) => {
                client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
            }
            Self::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
            Self::Sentinels(sentinels) => {
                let master = sentinels.master().await?;
                master.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
            }
        }
    }
}

impl Sentinels {
    /// Those at `addresses`, and the server that they call as the host of `master` is called.
    pub(super) fn new<U: IntoConnectionInfo>(
        addresses: impl IntoIterator<Item = U>,
        master: impl IntoConnectionInfo,
    ) -> Result<Self, RedisError> {
        let addresses = addresses.into_iter().map(U::into_connection_info).collect::<Result<Vec<_>, _>>()?;
        let master = master.into_connection_info()?;
        let login = SentinelNodeConnectionInfo::default().set_redis_connection_info(master.redis_settings().clone());
        let (name, login) = match master.addr() {
            ConnectionAddr::TcpTls { host, insecure: true, .. } => (host, login.set_tls_mode(TlsMode::Insecure)),
            ConnectionAddr::TcpTls { host, .. } => (host, login.set_tls_mode(TlsMode::Secure)),
            ConnectionAddr::Tcp(host, _) => (host, login),
            _ => return Err((redis::ErrorKind::InvalidClientConfig, "the master has no name").into()),
        };
        Sentinel::build(addresses.clone())?;
        Ok(Self { addresses, name: name.to_string(), login })
    }

    /// The master, by whichever sentinel says it first. All are asked at once: those that say nothing, since their machines are
    /// gone, would use up the patience for all others.
    async fn master(&self) -> Result<Client, RedisError> {
        let mut asked = JoinSet::new();
        for address in &self.addresses {
            let mut sentinel = Sentinel::build(vec![address.clone()])?;
            let (name, login) = (self.name.clone(), self.login.clone());
            asked.spawn(async move { sentinel.async_master_for(&name, Some(&login)).await });
        }
        let mut error = RedisError::from((redis::ErrorKind::MasterNameNotFoundBySentinel, "no sentinel has answered"));
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(master)) => return Ok(master),
                Ok(Err(refused)) => error = refused,
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        Err(error)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

pub(super) fn unreachable(error: &RedisError) -> LineError {
    LineError::Unreachable(error.to_string())
}

/// Nobody has answered for so long, by the runtime's clock; by the machine's it `took` so long.
pub(super) fn silent(patience: Duration, took: Duration) -> LineError {
    LineError::Unreachable(if took < patience / 2 {
        format!("no answer within {patience:?} of a clock that is paused: in paused time use a `MemoryLine`")
    } else {
        format!("no answer within {patience:?}")
    })
}
