//! The store that several instances share: Redis or PostgreSQL.

use crate::key::{Key, hash};
use crate::terms::{Outage, Terms};
use std::borrow::Borrow;
use std::fmt::Write;
use std::time::Duration;
use tollgate::distributed::{self, QuotaTerms, Stores};
use tollgate::{ConfigError, DistributedKeyedLimiter};
#[cfg(feature = "postgres")]
use tollgate_postgres::PostgresStore;
#[cfg(feature = "redis")]
use tollgate_redis::RedisStore;

/// The name under which this service is in the store.
const NAME: &str = "service";
/// A store that does not answer for this long is away.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest name of a key in a store. A longer one ends with a hash of all of it.
const LONGEST_NAME: usize = 200;

/// A store that several instances share.
#[derive(Clone, Debug)]
pub enum SharedStore {
    /// In Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(RedisStore),
    /// In PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
}

impl SharedStore {
    /// Connects to the server of a URL. A server that is away is tried again at each request.
    ///
    /// # Errors
    ///
    /// Returns one line if the URL is not valid.
    pub async fn connect(url: &str) -> Result<Self, String> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Self::connect_postgres(url).await;
        }
        // The reference writes host and port alone.
        let url = if url.contains("://") { url.to_owned() } else { format!("redis://{url}/") };
        Self::connect_redis(&url).await
    }

    #[cfg(feature = "redis")]
    async fn connect_redis(url: &str) -> Result<Self, String> {
        match RedisStore::connect(url, NAME).await {
            Ok(store) => Ok(Self::Redis(store)),
            Err(error) => {
                let store = RedisStore::connect_lazy(url, NAME).map_err(|error| unusable(&error))?;
                tracing::error!("the store is away, and is tried again at each request: {error}");
                Ok(Self::Redis(store))
            }
        }
    }

    #[cfg(not(feature = "redis"))]
    async fn connect_redis(_: &str) -> Result<Self, String> {
        Err(unusable(&"this program was built without Redis: build it with --features redis"))
    }

    #[cfg(feature = "postgres")]
    async fn connect_postgres(url: &str) -> Result<Self, String> {
        let pool = tollgate_postgres::pool(url).map_err(|error| unusable(&error))?;
        if let Err(error) = tollgate_postgres::migrate(&pool).await {
            tracing::warn!("the tables of the store were not made or checked: {error}");
        }
        PostgresStore::lazy(pool, NAME).map(Self::Postgres).map_err(|error| unusable(&error))
    }

    #[cfg(not(feature = "postgres"))]
    async fn connect_postgres(_: &str) -> Result<Self, String> {
        Err(unusable(&"this program was built without PostgreSQL: build it with --features postgres"))
    }

    /// Returns why instances cannot share a rule; `None` if they can.
    pub fn refuses(terms: &Terms) -> Option<String> {
        if terms.classes.is_some() {
            return Some("values that share a limit by weight cannot be shared: remove `classes`".to_owned());
        }
        if terms.limits.len() > 1 {
            return Some("several limits on one descriptor cannot be shared: keep one".to_owned());
        }
        let limit = terms.limits.first().filter(|limit| limit.requests > 0)?;
        let error = QuotaTerms::of(&limit.shared_quota()).err()?;
        Some(format!("this limit cannot be kept in a store: it {error}"))
    }

    /// Returns true if the store is away.
    pub(crate) fn is_away(&self) -> bool {
        match *self {
            #[cfg(feature = "redis")]
            Self::Redis(ref store) => store.snapshot().is_out,
            #[cfg(feature = "postgres")]
            Self::Postgres(ref store) => store.snapshot().is_out,
        }
    }

    /// Makes the limiter of the rule with this path and these terms. The limit is a part of its name, so that a changed limit
    /// begins anew.
    pub(crate) fn limiter<'r>(
        &self,
        path: impl Iterator<Item = &'r str>,
        terms: &Terms,
        most_values: u64,
    ) -> Result<DistributedKeyedLimiter<Key>, ConfigError> {
        let limit = &terms.limits[0];
        let mut prefix = String::new();
        for part in path {
            encode(&mut prefix, part.as_bytes());
            prefix.push('|');
        }
        // Writing to a string cannot fail.
        let _ = write!(prefix, "{}/{}|{:?}|", limit.requests, limit.unit.name(), limit.refill);
        let outage = match terms.outage {
            Outage::Wait => distributed::Outage::Wait,
            Outage::Allow | Outage::Refuse => distributed::Outage::Fail,
        };
        match self.clone() {
            #[cfg(feature = "redis")]
            Self::Redis(store) => {
                build(store.outage(outage).answer_timeout(ANSWER_TIMEOUT), prefix, terms, most_values)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => {
                build(store.outage(outage).answer_timeout(ANSWER_TIMEOUT), prefix, terms, most_values)
            }
        }
    }
}

fn unusable(error: &dyn std::fmt::Display) -> String {
    format!("the store cannot be used: {error}")
}

fn build(
    stores: impl Stores,
    prefix: String,
    terms: &Terms,
    most_values: u64,
) -> Result<DistributedKeyedLimiter<Key>, ConfigError> {
    let builder = DistributedKeyedLimiter::builder_by(stores, move |key: &Key| name(&prefix, key.borrow()));
    let builder = builder.quota(terms.limits[0].shared_quota()).max_keys(most_values);
    builder.max_waiting(terms.most_waiting()).build()
}

fn encode(name: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' | b'/' | b'@' => {
                name.push(*byte as char)
            }
            // Writing to a string cannot fail.
            byte => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
}

/// Names a key in the store: the same in each instance, and different for different keys.
fn name(prefix: &str, key: &[u8]) -> String {
    let mut name = prefix.to_owned();
    encode(&mut name, key);
    if name.len() > LONGEST_NAME {
        let hash = hash(name.as_bytes());
        name.truncate(LONGEST_NAME - hash.len());
        name.push_str(&hash);
    }
    name
}
