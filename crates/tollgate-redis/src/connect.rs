//! The ways to make a store: with a connection and checks, or lazily.

#[cfg(feature = "cluster")]
use super::connection::Cluster;
use super::connection::Topology;
use super::key::key;
#[cfg(feature = "sentinel")]
use super::sentinels::Sentinels;
use super::server::Server;
use super::{ANSWER_TIMEOUT, RedisStore, SCRIPT, check};
use redis::{Client, RedisError, Script};
use std::sync::Arc;
#[cfg(doc)]
use tollgate::distributed::StoreSnapshot;
use tollgate::distributed::{Outage, StoreError};

impl RedisStore {
    /// Connects to the store `name` on the server at `url`, such as `redis://user:password@host:6379/0`, and checks that
    /// the server can keep it. [`connect_lazy`](Self::connect_lazy) does neither.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] if the URL is invalid, the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes, or no server answers
    /// there; [`StoreError::Setup`] if the server lacks something, which the error names, with what to do: it does not
    /// accept the user, the user may not run the script or its commands, the server is a replica or one node of a cluster, or
    /// no Redis at all.
    pub async fn connect(url: impl AsRef<str>, name: &str) -> Result<Self, StoreError> {
        Self::connect_lazy(url, name)?.reach().await
    }

    /// Makes the store `name` on the server at `url`, without connecting to it: for a process that has to start while
    /// Redis is down. The limiter must be built on a tokio runtime.
    ///
    /// The first request connects. Until that succeeds, callers get what the store's [`Outage`] says, as in any outage.
    /// Nothing is checked: if something is missing, requests fail with the server's reply
    /// ([`StoreSnapshot::error`]).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{ConsumeError, Limiter, Quota, distributed::Outage};
    /// use tollgate_redis::RedisStore;
    ///
    /// // No server answers there.
    /// let store = RedisStore::connect_lazy("redis://127.0.0.1:1/", "api")?.outage(Outage::Fail);
    /// let limiter = Limiter::builder().quota(Quota::per_second(10)).distributed(store).build()?;
    /// assert_eq!(limiter.wait(1).await, Err(ConsumeError::Unreachable));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Misnamed`] if the URL is invalid, or the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes.
    pub fn connect_lazy(url: impl AsRef<str>, name: &str) -> Result<Self, StoreError> {
        Self::over(Topology::One(Client::open(url.as_ref()).map_err(misnamed)?), name)
    }

    /// Connects to the store `name` on a cluster. `urls` are the addresses of some of its nodes. Needs the feature
    /// `cluster`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); [`StoreError::Setup`] also if the server is no node of a cluster.
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<Self, StoreError> {
        Self::connect_cluster_lazy(urls, name)?.reach().await
    }

    /// Makes the store `name` on a cluster, as [`connect_lazy`](Self::connect_lazy) does. Needs the feature `cluster`.
    ///
    /// # Errors
    ///
    /// As [`connect_lazy`](Self::connect_lazy).
    #[cfg(feature = "cluster")]
    pub fn connect_cluster_lazy<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<Self, StoreError> {
        Self::over(Topology::Cluster(Box::new(Cluster::new(urls).map_err(misnamed)?)), name)
    }

    /// Connects to the store `name` on the master reported by the sentinels at `urls`. `master` is the URL of the
    /// master, with the sentinels' name for it as the host: `redis://user:password@mymaster/0`. Needs the
    /// feature `sentinel`.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate_redis::RedisStore;
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let store = RedisStore::connect_sentinels(sentinels, "redis://mymaster/", "user:42").await?;
    /// # let _ = store; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); [`StoreError::Setup`] also if no sentinel knows the master.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinels<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: impl AsRef<str>,
        name: &str,
    ) -> Result<Self, StoreError> {
        Self::connect_sentinels_lazy(urls, master, name)?.reach().await
    }

    /// Makes the store `name` on the master reported by sentinels, as [`connect_lazy`](Self::connect_lazy) does. Needs the
    /// feature `sentinel`.
    ///
    /// # Errors
    ///
    /// As [`connect_lazy`](Self::connect_lazy).
    #[cfg(feature = "sentinel")]
    pub fn connect_sentinels_lazy<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: impl AsRef<str>,
        name: &str,
    ) -> Result<Self, StoreError> {
        Self::over(Topology::Sentinels(Box::new(Sentinels::new(urls, master).map_err(misnamed)?)), name)
    }

    fn over(topology: Topology, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        Ok(Self {
            server: Arc::new(Server::new(topology)),
            script: Arc::new(Script::new(SCRIPT)),
            key: format!("tollgate:{}", key(name)).into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            quota_version: 0,
            answer_timeout: ANSWER_TIMEOUT,
        })
    }

    /// Connects, and checks the server.
    async fn reach(self) -> Result<Self, StoreError> {
        self.server.connect(&self.key, ANSWER_TIMEOUT).await?;
        self.check_eviction().await;
        Ok(self)
    }

    /// Warns if the server may evict the keys of stores.
    pub(super) async fn check_eviction(&self) {
        if let Some(policy) = self.server.eviction(ANSWER_TIMEOUT).await {
            let warning = format!(
                "`maxmemory-policy` is `{policy}`, so the server may evict the keys of this store, and each eviction \
                 grants a burst again: set it to `noeviction`"
            );
            self.tally.warn(self, warning);
        }
    }
}

fn misnamed(error: RedisError) -> StoreError {
    StoreError::Misnamed(error.to_string())
}
