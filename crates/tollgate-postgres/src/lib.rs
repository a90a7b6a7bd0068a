//! A store for [tollgate](https://docs.rs/tollgate) in PostgreSQL (12 or later): limiters on many machines share one quota.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Quota};
//! use tollgate_postgres::PostgresStore;
//!
//! let store = PostgresStore::connect("postgres://limits:password@127.0.0.1/app", "api").await?;
//! let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(100)).distributed(store).build()?;
//! let _grant = limiter.consume(1).await?; // waits in the queue of this process; 1,000 per second for all of them
//! # Ok(()) }
//! ```
//!
//! [`tollgate::distributed`] describes the protocol between a limiter and its store. With the feature `keyed` of
//! tollgate, `KeyedLimiter::builder().distributed(store)` shares one quota per key.
//!
//! # The migration
//!
//! [`MIGRATION`] creates one table and two functions. Run it with your other migrations, or with [`migrate`]. It can run
//! again, and while limiters run. The names of the functions have a number, which a later release of this crate raises
//! when it changes them, so that two releases can run on one database.
//!
//! The user of the limiters needs `SELECT, INSERT, UPDATE, DELETE` on the table `tollgate`, and no right to create
//! anything.
//!
//! # One round trip
//!
//! Each request of a node is one call of the prepared function `tollgate_ask_1`, in a transaction of its own: the server
//! locks the row of the store, reads its clock, moves the bucket and answers. The lock is not held while the network is
//! waited for.
//!
//! With `synchronous_commit = on`, the lock is held until the disk has the transaction, and one store answers no more
//! requests than the disk can flush. `?options=-c%20synchronous_commit=off` at the end of the server's address lifts
//! that. A crash
//! of the server then loses the grants of the last fraction of a second; they are granted again, at most a burst, as after
//! the failover of an asynchronous replica.
//!
//! | file | contents |
//! |---|---|
//! | `lib.rs` | the store: its requests and their retries |
//! | `key.rs` | the keys of stores in the table |
//! | `reply.rs` | errors of PostgreSQL, by kind |
//! | `server.rs` | the pool of connections, and what the server must have |
//! | `store.sql` | the migration |

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Examples compile without a warning.
#![doc(test(attr(deny(warnings))))]

mod key;
mod reply;
mod server;

pub use deadpool_postgres::Pool;
pub use server::{MIGRATION, migrate, pool};

use deadpool_postgres::tokio_postgres::Row;
use deadpool_postgres::tokio_postgres::types::ToSql;
use key::{key, key_among};
use reply::Failed;
use server::{ASK, Lent, probe};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::timeout;
use tollgate::distributed::{
    LeaseGrant, LeaseRequest, Outage, QuotaTerms, ReplyKind, Store, StoreCounters, StoreError, StoreSnapshot, Stores,
};

/// How long an answer may take, unless the user sets another time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for [`PostgresStore::sweep`], which may delete many rows.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(60);

/// No number of a request is larger: levels and debts are exact in doubles.
const MOST: u64 = 1 << 53;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A store in PostgreSQL: all limiters built with a store of the same name in the same table share one quota.
///
/// # Outages
///
/// Connections come from a pool of deadpool-postgres. A connection that breaks, or whose request is not answered within
/// the time set by [`answer_timeout`](Self::answer_timeout), is closed and replaced. What callers see while the server
/// cannot be reached is the choice of [`outage`](Self::outage). Errors of the server are typed and counted by
/// [kind](ReplyKind).
///
/// All limiters of a store have the same quota. To change it, build the new limiters with a higher
/// [`quota_version`](Self::quota_version): the new quota takes over in place.
///
/// # Failover
///
/// A standby refuses to write ([`ReplyKind::ReadOnly`]), and the connection is replaced. List all servers in the address,
/// with `target_session_attrs=read-write`, so that the new connection leads to the promoted one. What an asynchronous
/// standby did not receive is granted again: at most a burst, and the tokens promised to waiters beyond that.
///
/// # TLS
///
/// [`connect`](Self::connect) does not use TLS. Build a [`Pool`] of deadpool-postgres with the connector of your choice,
/// and give it to [`over`](Self::over).
///
/// # Poolers
///
/// Statements are prepared once per connection. A pooler in front of the server must keep them: PgBouncer 1.21 or later
/// does, with `max_prepared_statements`.
///
/// # Paused time
///
/// The server answers in real time. If the runtime's clock is paused, use a
/// [`MemoryStore`](tollgate::distributed::MemoryStore).
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    key: Arc<str>,
    tally: Arc<StoreCounters>,
    outage: Outage,
    quota_version: u32,
    answer_timeout: Duration,
}

impl PostgresStore {
    /// Connects to the store `name` in the database at `address`, such as `postgres://user:password@host:5432/database`,
    /// over a pool of eight connections that all stores made from this one share.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Misnamed`] if the address is invalid, or the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes.
    /// - [`StoreError::Reply`] if the migration did not run, the user lacks a right, or the server is a standby; the
    ///   text says which.
    /// - [`StoreError::Unreachable`] if the server does not answer within a second.
    pub async fn connect(address: &str, name: &str) -> Result<Self, StoreError> {
        Self::over(pool(address)?, name).await
    }

    /// Connects to the store `name` over a pool of connections, which may have other users.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn over(pool: Pool, name: &str) -> Result<Self, StoreError> {
        let store = Self::lazy(pool, name)?;
        match timeout(ANSWER_TIMEOUT, probe(&store.pool)).await {
            Ok(probed) => probed?,
            Err(_) => return Err(silent(ANSWER_TIMEOUT)),
        }
        Ok(store)
    }

    /// Returns the store `name` without a connection: the first request makes it, and until then the limiter obeys its
    /// [`Outage`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Misnamed`] if the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes.
    pub fn lazy(pool: Pool, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        Ok(Self {
            pool,
            key: key(name).into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            quota_version: 0,
            answer_timeout: ANSWER_TIMEOUT,
        })
    }

    /// Returns another store in the same table, over the same connections.
    ///
    /// # Errors
    ///
    /// [`StoreError::Misnamed`] if the name is empty or longer than [`MAX_NAME`](StoreError::MAX_NAME) bytes.
    pub fn beside(&self, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        Ok(Self { key: key(name).into(), tally: Arc::default(), ..self.clone() })
    }

    /// Sets the behavior of limiters built with this store while the server cannot be reached. The default is
    /// [`Outage::Wait`]; the last call counts.
    #[must_use = "this returns the changed store"]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Sets the [version](Store::quota_version) of the quotas of limiters built with this store. The default is 0; the last
    /// call counts.
    #[must_use = "this returns the changed store"]
    pub fn quota_version(mut self, version: u32) -> Self {
        self.quota_version = version;
        self
    }

    /// Sets how long an answer may take before the server counts as unreachable, including the time to get a connection.
    /// The default is one second; the last call counts.
    #[must_use = "this returns the changed store"]
    pub fn answer_timeout(mut self, answer_timeout: Duration) -> Self {
        self.answer_timeout = answer_timeout;
        self
    }

    /// Returns the key of the store: the column `store` of its rows, as text.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the requests and grants of this process's limiters that use this store; for a keyed limiter, those of
    /// all its keys.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.tally.snapshot()
    }

    /// Deletes at most `most` stores of the table whose buckets are full again and that no limiter has used since (for an
    /// hour, if the quota has `initial` tokens below its burst). Returns how many it has deleted. PostgreSQL does not
    /// expire rows, so call this now and then, or `tollgate_sweep_1` from a job of the database, if there are many keys.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] if the server does not answer within a minute.
    pub async fn sweep(&self, most: u32) -> Result<u64, StoreError> {
        let swept = async {
            let lent = Lent::from(&self.pool).await.map_err(Failed::into_error)?;
            let row =
                lent.call("SELECT tollgate_sweep_1($1)", &[&i64::from(most)]).await.map_err(Failed::into_error)?;
            Ok(row.get::<_, i64>(0) as u64)
        };
        timeout(SWEEP_TIMEOUT, swept).await.unwrap_or_else(|_| Err(silent(SWEEP_TIMEOUT)))
    }

    /// Sends a request, and repeats it once if the connection broke: servers and proxies end connections that were idle
    /// for a while.
    async fn ask_once(&self, ask: LeaseRequest) -> Result<LeaseGrant, StoreError> {
        let is_sent = AtomicBool::new(false);
        let answered = async {
            match self.attempt(&ask, &is_sent).await {
                Err(Failed::Broken(_)) => self.attempt(&ask, &is_sent).await,
                answered => answered,
            }
        };
        let answer = match timeout(self.answer_timeout, answered).await {
            Ok(Ok(row)) => read(&row, &ask),
            Ok(Err(failed)) => Err(failed.into_error()),
            Err(_) => Err(silent(self.answer_timeout)),
        };
        answer.map_err(|error| match error {
            StoreError::Reply { kind, message } => {
                self.tally.count_error_reply(kind);
                match kind {
                    // The server answers, and serves no store.
                    ReplyKind::ReadOnly => StoreError::Unreachable(message),
                    _ => StoreError::Reply { kind, message },
                }
            }
            StoreError::Unreachable(why) if !is_sent.load(Relaxed) => StoreError::NotSent(why),
            error => error,
        })
    }

    async fn attempt(&self, ask: &LeaseRequest, is_sent: &AtomicBool) -> Result<Row, Failed> {
        let lent = Lent::from(&self.pool).await?;
        let terms = &ask.terms;
        let quota = [
            terms.amount(),
            terms.period(),
            terms.burst(),
            terms.initial(),
            u64::from(terms.is_stepped()),
            u64::from(terms.version()),
        ]
        .map(|number| number as i64);
        let number = i64::try_from(ask.number).unwrap_or(i64::MAX);
        let [ttl, want, ahead, banked, allowance, minimum, held, back] =
            [ask.ttl, ask.want, ask.ahead, ask.banked, ask.allowance, ask.minimum, ask.held, ask.back]
                .map(|number| number.min(MOST) as i64);
        let (store, node) = (self.key.as_bytes(), ask.node.to_be_bytes());
        let (node, quota) = (&node[..], &quota[..]);
        let parameters: [&(dyn ToSql + Sync); 14] = [
            &store,
            &node,
            &number,
            &ask.leave,
            &ask.at_once,
            &quota,
            &ttl,
            &want,
            &ahead,
            &banked,
            &allowance,
            &minimum,
            &held,
            &back,
        ];
        let statement = lent.prepare(ASK).await?;
        is_sent.store(true, Relaxed);
        lent.run(&statement, &parameters).await
    }
}

/// Reads the row that the function returns. If something else wrote the bucket, numbers are missing.
fn read(row: &Row, ask: &LeaseRequest) -> Result<LeaseGrant, StoreError> {
    let numbers: Vec<i64> = row.try_get(0).map_err(|error| StoreError::Reply {
        kind: ReplyKind::Damaged,
        message: format!("a row of the store was overwritten: {}", reply::chain(&error)),
    })?;
    let quota = |numbers: &[i64]| -> Option<QuotaTerms> {
        let numbers: [i64; 6] = numbers.try_into().ok()?;
        QuotaTerms::from_numbers(numbers.map(|number| number as u64))
    };
    let damaged = || StoreError::Reply {
        kind: ReplyKind::Damaged,
        message: format!("the function returned {numbers:?}, which is no answer"),
    };
    match numbers[..] {
        [-1, owed] => {
            Err(StoreError::Refused(format!("TOLLGATE the store owes {owed} tokens and promises no more: try later")))
        }
        [-2, number] => Err(StoreError::Refused(format!("TOLLGATE request {} comes after {number}", ask.number))),
        [-3, ref stored @ ..] => {
            Err(StoreError::QuotaConflict { stored: quota(stored).ok_or_else(damaged)?, asked: ask.terms })
        }
        _ => {
            let natural: Result<Vec<u64>, _> = numbers.iter().map(|number| u64::try_from(*number)).collect();
            natural.ok().and_then(|numbers| LeaseGrant::from_numbers(&numbers)).ok_or_else(damaged)
        }
    }
}

impl Store for PostgresStore {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(self.ask_once(ask))
    }

    fn tally(&self) -> &StoreCounters {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }

    fn quota_version(&self) -> u32 {
        self.quota_version
    }
}

impl Stores for PostgresStore {
    /// Rows of its own in the same table.
    fn named(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Self { key: key_among(&self.key, name).into(), ..self.clone() })
    }
}

impl fmt::Debug for PostgresStore {
    /// Omits the pool, because its address may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("key", &self.key).field("outage", &self.outage).finish_non_exhaustive()
    }
}

fn check(name: &str) -> Result<(), StoreError> {
    if name.is_empty() {
        let text = "the name is empty: name the limited resource, such as `user:42`";
        return Err(StoreError::Misnamed(text.to_owned()));
    }
    if name.len() > StoreError::MAX_NAME {
        let text = format!("the name is {} bytes long, the most is {}: shorten it", name.len(), StoreError::MAX_NAME);
        return Err(StoreError::Misnamed(text));
    }
    Ok(())
}

fn silent(answer_timeout: Duration) -> StoreError {
    let text = format!("no answer within {answer_timeout:?}: check the address and the server, or allow more time");
    StoreError::Unreachable(text)
}
