//! The ways to connect to Redis: one server, a cluster, or the master that sentinels report.

#[cfg(feature = "sentinel")]
use super::sentinels::Sentinels;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisFuture, Value};
#[cfg(feature = "cluster")]
use {
    crate::reply::reply_kind,
    redis::cluster::ClusterClient,
    redis::cluster_async::ClusterConnection,
    redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
    redis::{ConnectionInfo, IntoConnectionInfo},
};

/// Where to connect to.
pub(super) enum Topology {
    One(Client),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
    #[cfg(feature = "sentinel")]
    Sentinels(Box<Sentinels>),
}

/// A cluster, by some of its nodes.
#[cfg(feature = "cluster")]
pub(super) struct Cluster {
    client: ClusterClient,
    nodes: Vec<ConnectionInfo>,
}

#[cfg(feature = "cluster")]
impl Cluster {
    pub(super) fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, RedisError> {
        let nodes = urls.into_iter().map(|url| url.as_ref().into_connection_info()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { client: ClusterClient::new(nodes.clone())?, nodes })
    }

    /// The first error that one of the nodes replies with: the cluster's client does not tell.
    pub(super) async fn refusal(&self) -> Option<RedisError> {
        for node in &self.nodes {
            let Ok(client) = Client::open(node.clone()) else { continue };
            let asked = async {
                let mut connection = client.get_multiplexed_async_connection().await?;
                redis::cmd("CLUSTER").arg("SLOTS").exec_async(&mut connection).await
            };
            if let Err(error) = asked.await {
                if reply_kind(&error).is_some() {
                    return Some(error);
                }
            }
        }
        None
    }
}

#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
}

impl Topology {
    pub(super) async fn connect(&self) -> Result<Connection, RedisError> {
        // The caller of each request has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        match self {
            Self::One(client) => {
                client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.client.get_async_connection().await.map(Connection::Cluster),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => {
                let master = sentinels.master().await?;
                master.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
            }
        }
    }

    /// The user's name.
    pub(super) fn user(&self) -> &str {
        let user = match self {
            Self::One(client) => client.get_connection_info().redis_settings().username(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.nodes.first().and_then(|node| node.redis_settings().username()),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.user(),
        };
        user.unwrap_or("default")
    }
}

impl Connection {
    /// Whether it makes new connections by itself, to nodes that it has learned of.
    pub(super) fn reconnects(&self) -> bool {
        match self {
            Self::One(_) => false,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => true,
        }
    }

    /// A command that the server of `key` answers if it works.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "one server keeps all keys"))]
    pub(super) fn probe(&self, key: &str) -> Cmd {
        match self {
            Self::One(_) => redis::cmd("PING"),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => {
                let mut exists = redis::cmd("EXISTS");
                exists.arg(key);
                exists
            }
        }
    }

    /// Asks the server, or any master of a cluster, for its memory settings.
    pub(super) async fn memory(mut self) -> Result<String, RedisError> {
        let mut ask = redis::cmd("INFO");
        ask.arg("memory");
        match &mut self {
            Self::One(connection) => ask.query_async(connection).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => {
                let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                redis::from_redis_value(connection.route_command(ask, any).await?).map_err(RedisError::from)
            }
        }
    }

    /// Asks a cluster which master keeps which slots. `None` if there is no cluster.
    pub(super) async fn slots(self) -> Result<Option<Value>, RedisError> {
        match self {
            Self::One(_) => Ok(None),
            #[cfg(feature = "cluster")]
            Self::Cluster(mut connection) => {
                let mut ask = redis::cmd("CLUSTER");
                ask.arg("SLOTS");
                let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                connection.route_command(ask, any).await.map(Some)
            }
        }
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            #[cfg(feature = "cluster")]
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
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
