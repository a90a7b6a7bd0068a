//! The sentinels, which report the address of the master.

use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, TlsMode};
use tokio::task::JoinSet;

pub(super) struct Sentinels {
    addresses: Vec<ConnectionInfo>,
    /// The sentinels' name of the master.
    name: String,
    /// The login and TLS mode for the master.
    login: SentinelNodeConnectionInfo,
    user: Option<String>,
}

impl Sentinels {
    /// Creates the sentinels at `addresses`. The host of `master` is the sentinels' name of the master.
    pub(super) fn new<U: AsRef<str>>(
        addresses: impl IntoIterator<Item = U>,
        master: impl AsRef<str>,
    ) -> Result<Self, RedisError> {
        let addresses =
            addresses.into_iter().map(|url| url.as_ref().into_connection_info()).collect::<Result<Vec<_>, _>>()?;
        let master = master.as_ref().into_connection_info()?;
        let login = SentinelNodeConnectionInfo::default().set_redis_connection_info(master.redis_settings().clone());
        let (name, login) =
            match master.addr() {
                ConnectionAddr::TcpTls { host, insecure: true, .. } => (host, login.set_tls_mode(TlsMode::Insecure)),
                ConnectionAddr::TcpTls { host, .. } => (host, login.set_tls_mode(TlsMode::Secure)),
                ConnectionAddr::Tcp(host, _) => (host, login),
                _ => return Err((
                    ErrorKind::InvalidClientConfig,
                    "the URL of the master has no host: write redis://name/, with the sentinels' name for the master",
                )
                    .into()),
            };
        Sentinel::build(addresses.clone())?;
        let user = master.redis_settings().username().map(str::to_owned);
        Ok(Self { addresses, name: name.to_string(), login, user })
    }

    /// The user's name on the master.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the master reported by the first sentinel that answers. All sentinels are asked at once: a sentinel
    /// on a machine that is gone never answers, and would use up the time that the others need.
    pub(super) async fn master(&self) -> Result<Client, RedisError> {
        let mut asked = JoinSet::new();
        for address in &self.addresses {
            let mut sentinel = Sentinel::build(vec![address.clone()])?;
            let (name, login) = (self.name.clone(), self.login.clone());
            asked.spawn(async move { sentinel.async_master_for(&name, Some(&login)).await });
        }
        let mut error = RedisError::from((
            ErrorKind::MasterNameNotFoundBySentinel,
            "no sentinel has answered: check their addresses",
        ));
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
