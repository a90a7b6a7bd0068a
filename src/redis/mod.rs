//! A line whose truth is in Redis, or Valkey.
//!
//! One key per line, moved by one script (`line.lua`), which takes the server's time. Redis knows scripts by their hash and
//! forgets them when it restarts, fails over or is told to: whoever finds that out sends the script anew.

use crate::lease::{Answer, Ask, Line, LineError, LineSnapshot, Lines, Outage, Tally};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Pipeline, RedisError, RedisFuture, Script, Value};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::timeout;

const SCRIPT: &str = include_str!("line.lua");

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A quota's line in Redis (5 or later) or Valkey: all limiters that are built with a line of the same name on the same
/// server share one quota.
///
/// A line has the quota that it was first asked for, until it has filled up and Redis has forgotten it: limiters with
/// another one are refused meanwhile, as if it could not be reached. To change a quota, give the line another name. Redis must
/// not evict the key: that is as if it was restarted.
///
/// Clones are the same line. Connections are shared by clones, and made anew when they break.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, RedisLine, lease::Outage};
///
/// let line = RedisLine::connect("redis://127.0.0.1/", "tenant:42").await?
///     .outage(Outage::Share(Quota::per_second(1_000).burst(50))); // while Redis cannot be reached
/// let limiter = Limiter::builder().quota(Quota::per_second(10_000)).shared(line.clone()).build()?;
/// limiter.consume(1).await?;
/// println!("{:?}", line.snapshot());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisLine {
    server: Arc<Server>,
    key: Arc<str>,
    tally: Arc<Tally>,
    outage: Outage,
    patience: Duration,
}

/// How a server or cluster is reached.
struct Server {
    client: Clients,
    script: Script,
    connection: Mutex<Option<Connection>>,
}

enum Clients {
    One(Client),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl RedisLine {
    /// The line `name` on the server at `url`, such as `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// A [`LineError`] if that is no URL, the name is empty, or nobody answers there.
    pub async fn connect(url: impl IntoConnectionInfo, name: &str) -> Result<Self, LineError> {
        let client = Client::open(url).map_err(|error| LineError::Misnamed(error.to_string()))?;
        Self::reach(Clients::One(client), name).await
    }

    /// The line `name` on the cluster of which some nodes are at `urls`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_cluster<U: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<Self, LineError> {
        let client = ClusterClient::new(urls).map_err(|error| LineError::Misnamed(error.to_string()))?;
        Self::reach(Clients::Cluster(Box::new(client)), name).await
    }

    async fn reach(client: Clients, name: &str) -> Result<Self, LineError> {
        if name.is_empty() {
            return Err(LineError::Misnamed(
                "its name is empty: name it for what is limited, such as `tenant:42`".to_owned(),
            ));
        }
        let server = Server { client, script: Script::new(SCRIPT), connection: Mutex::new(None) };
        let line = Self {
            server: Arc::new(server),
            // The braces have a cluster keep the key by the name alone.
            key: format!("tollgate:{{{name}}}").into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            patience: PATIENCE,
        };
        line.connection().await?;
        Ok(line)
    }

    /// Another line on the same server or cluster, by the same connections.
    ///
    /// # Errors
    ///
    /// [`LineError::Misnamed`] if the name is empty.
    pub fn beside(&self, name: &str) -> Result<Self, LineError> {
        if name.is_empty() {
            return Err(LineError::Misnamed("its name is empty".to_owned()));
        }
        let key = format!("tollgate:{{{name}}}").into();
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
    pub fn snapshot(&self) -> LineSnapshot {
        self.tally.snapshot()
    }

    async fn connection(&self) -> Result<Connection, LineError> {
        if let Some(connection) = self.server.slot().clone() {
            return Ok(connection);
        }
        let connection = match timeout(self.patience, self.server.connect(self.patience)).await {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(_) => return Err(silent(self.patience)),
        };
        *self.server.slot() = Some(connection.clone());
        Ok(connection)
    }

    async fn ask_once(&self, ask: Ask) -> Result<Answer, LineError> {
        let mut connection = self.connection().await?;
        let answered = match timeout(self.patience, self.evaluate(&mut connection, &ask)).await {
            Ok(answered) => answered,
            Err(_) => {
                *self.server.slot() = None;
                return Err(silent(self.patience));
            }
        };
        match answered {
            Ok(numbers) => Answer::from_numbers(&numbers)
                .ok_or_else(|| LineError::Refused(format!("{} numbers are no answer", numbers.len()))),
            Err(error) if error.code() == Some("TOLLGATE") => Err(LineError::Refused(error.to_string())),
            Err(error) => {
                *self.server.slot() = None;
                Err(unreachable(error))
            }
        }
    }

    async fn evaluate(&self, connection: &mut Connection, ask: &Ask) -> Result<Vec<u64>, RedisError> {
        match self.command("EVALSHA", self.server.script.get_hash(), ask).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
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

impl Line for RedisLine {
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Result<Answer, LineError>> + Send + '_>> {
        Box::pin(self.ask_once(ask))
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }
}

impl Lines for RedisLine {
    /// A key of Redis of its own, with a hash tag of its own: a cluster spreads them.
    fn named(&self, name: &str) -> Arc<dyn Line> {
        let own = self.key.strip_suffix('}').unwrap_or(&self.key);
        Arc::new(Self { key: format!("{own}:{name}}}").into(), ..self.clone() })
    }
}

impl fmt::Debug for RedisLine {
    /// Without the server, whose address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLine").field("key", &self.key).field("outage", &self.outage).finish_non_exhaustive()
    }
}

impl Server {
    fn slot(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn connect(&self, patience: Duration) -> Result<Connection, RedisError> {
        match &self.client {
            Clients::One(client) => {
                // Who asks has a timeout of its own.
                let config =
                    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(patience));
                client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
            }
            Clients::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
        }
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

fn unreachable(error: RedisError) -> LineError {
    LineError::Unreachable(error.to_string())
}

fn silent(patience: Duration) -> LineError {
    LineError::Unreachable(format!("no answer within {patience:?}"))
}
