//! The server that keeps the quotas which all gateways with one name share.

use std::fmt;
use std::time::Duration;

use tollgate::distributed::{Outage, StoreError};

use super::problem::Located;
pub(crate) use server::{Server, connect, store};

/// The table `redis`.
#[derive(Clone)]
pub(crate) struct Redis {
    /// What is read at the start only.
    pub(crate) fixed: RedisFixed,
    /// The version of all distributed quotas: of two, the higher one counts.
    pub(crate) quota_version: Located<u32>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct RedisFixed {
    /// May contain a password.
    pub(crate) url: String,
    /// Gateways with the same name share their distributed quotas.
    pub(crate) name: String,
    /// After this time without an answer the server counts as unreachable.
    pub(crate) answer_timeout: Duration,
    pub(crate) outage: OutagePolicy,
    /// From which the digests of unlisted keys are made, so that they are the same in all gateways.
    pub(crate) secret: Option<String>,
}

/// What becomes of requests for which no tokens are promised while the server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OutagePolicy {
    /// They pass by this gateway's own limits alone, which have the same quotas.
    Local,
    /// They wait for the server, for `max_wait` at most.
    Wait,
    /// They are refused at once.
    Refuse,
}

impl OutagePolicy {
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "no store is made without Redis"))]
    fn of_store(self) -> Outage {
        match self {
            Self::Local | Self::Refuse => Outage::Fail,
            Self::Wait => Outage::Wait,
        }
    }
}

/// Without the address, which may contain a password, and without the secret.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("name", &self.fixed.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisFixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFixed").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(feature = "redis")]
mod server {
    use tollgate_redis::RedisStore;

    use super::{RedisFixed, StoreError};

    /// The connection that all stores share.
    pub(crate) type Server = RedisStore;

    /// Does not connect yet: the first request does.
    pub(crate) fn connect(redis: &RedisFixed) -> Result<Server, StoreError> {
        let server = RedisStore::connect_lazy(&*redis.url, &redis.name)?;
        Ok(server.answer_timeout(redis.answer_timeout).outage(redis.outage.of_store()))
    }

    /// The store of one limit.
    pub(crate) fn store(server: &Server, redis: &RedisFixed, limit: &str, version: u32) -> Result<Server, StoreError> {
        Ok(server.beside(&format!("{}:{limit}", redis.name))?.quota_version(version))
    }
}

#[cfg(not(feature = "redis"))]
mod server {
    use tollgate::distributed::MemoryStore;

    use super::{RedisFixed, StoreError};

    /// Never made: a configuration that needs one is refused.
    pub(crate) type Server = MemoryStore;

    pub(crate) fn connect(_: &RedisFixed) -> Result<Server, StoreError> {
        let what = "this gateway was built without Redis: build it with `--features redis`, or leave out `[redis]`";
        Err(StoreError::Refused(what.to_owned()))
    }

    pub(crate) fn store(server: &Server, _: &RedisFixed, _: &str, _: u32) -> Result<Server, StoreError> {
        Ok(server.clone())
    }
}
