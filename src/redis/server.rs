//! How Redis is reached: one server, a cluster, or whichever server sentinels call the master.

use crate::lease::LineError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, TlsMode, Value,
};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::timeout;

pub(super) struct Server {
    way: Way,
    link: Mutex<Option<Link>>,
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
struct Link {
    connection: Connection,
    failed: bool,
}

#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    pub(super) fn new(way: Way) -> Self {
        Self { way, link: Mutex::new(None) }
    }

    /// A connection, made anew if the last one has failed.
    pub(super) async fn connection(&self, patience: Duration) -> Result<Connection, LineError> {
        let last = self.link().clone();
        if let Some(Link { connection, failed: false }) = last {
            return Ok(connection);
        }
        let began = std::time::Instant::now();
        let (connection, error) = match timeout(patience, self.way.connect()).await {
            Ok(Ok(connection)) => (Some(connection), None),
            Ok(Err(error)) => (None, Some(unreachable(&error))),
            Err(_) => (None, Some(silent(patience, began.elapsed()))),
        };
        // The last one of a cluster has learned of nodes that nobody named to us, and finds its way by itself.
        let learned = last.map(|link| link.connection).filter(|last| matches!(last, Connection::Cluster(_)));
        match (connection.or(learned), error) {
            (Some(connection), _) => {
                *self.link() = Some(Link { connection: connection.clone(), failed: false });
                Ok(connection)
            }
            (None, error) => Err(error.expect("who has no connection has failed to make one")),
        }
    }

    /// The last connection has failed. Perhaps it leads to a server that is not the master any more.
    pub(super) fn doubt(&self) {
        if let Some(link) = &mut *self.link() {
            link.failed = true;
        }
    }

    fn link(&self) -> MutexGuard<'_, Option<Link>> {
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
                let mut client = sentinels.client()?;
                client.get_async_connection_with_config(&config).await.map(Connection::One)
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
        let sentinels = Self { addresses, name: name.to_string(), login };
        sentinels.client()?;
        Ok(sentinels)
    }

    fn client(&self) -> Result<SentinelClient, RedisError> {
        let login = Some(self.login.clone());
        SentinelClient::build(self.addresses.clone(), self.name.clone(), login, SentinelServerType::Master)
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
