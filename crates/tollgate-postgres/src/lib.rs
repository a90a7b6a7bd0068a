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
//! tollgate, `DistributedKeyedLimiter` shares one quota per key.
//!
//! # The migration
//!
//! [`MIGRATION`] creates a table and seven functions. Run it with your other migrations, or with [`migrate`]. It can run
//! again, and while limiters run. The names of the functions have a number, which a later release of this crate raises
//! when it changes them, so that two releases can run on one database.
//!
//! The user of the limiters needs `SELECT, INSERT, UPDATE, DELETE` on the table `tollgate`, and no right to create anything.
//!
//! # One round trip
//!
//! Each request of a node is one call of the prepared function `tollgate_ask_1`, in a transaction of its own: the server
//! locks the row of the store, reads its clock, moves the bucket and answers. The lock is not held while the network is
//! waited for.
//!
//! Where `default_transaction_isolation` is stricter than `read committed`, requests for one store conflict. Such a request
//! is repeated in a `read committed` transaction, which takes three round trips more, and
//! [`connect`](PostgresStore::connect) warns ([`StoreSnapshot::warning`]).
//!
//! With `synchronous_commit = on`, the lock is held until the disk has the transaction, and one store answers no more
//! requests than the disk can flush. `?options=-c%20synchronous_commit=off` at the end of the server's address lifts
//! that. A crash of the server then loses the grants of the last fraction of a second; they are granted again, at most a
//! burst, as after the failover of an asynchronous replica.
//!
//! | file | contents |
//! |---|---|
//! | `lib.rs` | the store: its requests and their retries |
//! | `call.rs` | a request as a call of the function, and the row that it returns |
//! | `database.rs` | the connections, their circuit breaker, and the removal of rows that ended |
//! | `key.rs` | the keys of stores in the table |
//! | `reply.rs` | errors of PostgreSQL, by kind |
//! | `server.rs` | the pool of connections, and what the server must have |
//! | `store.sql` | the migration |

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Examples compile without a warning.
#![doc(test(attr(deny(warnings))))]

mod call;
mod database;
mod key;
mod reply;
mod server;

pub use deadpool_postgres::Pool;
pub use server::{MIGRATION, migrate, pool};

use call::{read, send};
use database::Database;
use deadpool_postgres::tokio_postgres::Row;
use key::{key, key_among};
use reply::Failed;
use server::{Lent, probe};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::distributed::{
    BreakerSnapshot, Circuit, LeaseGrant, LeaseRequest, Outage, ReplyKind, Store, StoreCounters, StoreError,
    StoreSnapshot, Stores,
};

/// How long an answer may take, unless the user sets another time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a process deletes rows that ended, unless the user sets another time.
const SWEEP_EVERY: Duration = Duration::from_secs(300);

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A store in PostgreSQL: all limiters built with a store of the same name in the same table share one quota.
///
/// # Outages
///
/// Connections come from a pool of deadpool-postgres. A connection that breaks, or does not answer a request within
/// the time set by [`answer_timeout`](Self::answer_timeout), is closed and replaced. What callers see while the server
/// cannot be reached, or answers with errors, is the choice of [`outage`](Self::outage). Errors of the server are typed and
/// counted by [kind](ReplyKind).
///
/// All stores that were made from one share its connections and a [circuit breaker](tollgate::distributed::Breaker).
/// If the server does not answer for the answer timeout, or cannot write, the circuit opens: no requests are sent until
/// the server answers a trial. See [`server`](Self::server).
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
/// does, with `max_prepared_statements`. Behind an older one requests fail, and the error says why.
///
/// # Paused time
///
/// The server answers in real time. If the runtime's clock is paused, use a
/// [`MemoryStore`](tollgate::distributed::MemoryStore).
#[derive(Clone)]
pub struct PostgresStore {
    database: Arc<Database>,
    key: Arc<str>,
    tally: Arc<StoreCounters>,
    outage: Outage,
    quota_version: u32,
    answer_timeout: Duration,
    sweep_every: Duration,
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
        match timeout(ANSWER_TIMEOUT, probe(&store.database.pool)).await {
            Ok(probed) => probed?.into_iter().for_each(|warning| store.tally.warn(&store, warning)),
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
            database: Arc::new(Database::over(pool)),
            key: key(name).into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            quota_version: 0,
            answer_timeout: ANSWER_TIMEOUT,
            sweep_every: SWEEP_EVERY,
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

    /// Sets how often this process deletes the rows of stores that ended, as [`sweep`](Self::sweep) does: PostgreSQL does
    /// not expire rows. The default is five minutes; the last call counts. [`Duration::MAX`] leaves it to other processes,
    /// or to a job of the database.
    ///
    /// A request of a node starts it, in a task of its own. Each time reads the whole table once.
    #[must_use = "this returns the changed store"]
    pub fn sweep_every(mut self, sweep_every: Duration) -> Self {
        self.sweep_every = sweep_every;
        self
    }

    /// Returns the state of the circuit breaker that this store and the stores made from it share.
    pub fn server(&self) -> BreakerSnapshot {
        self.database.breaker.snapshot()
    }

    /// Deletes at most `most` stores of the table: those that are full again and that no limiter has used since (for an
    /// hour, if the quota has `initial` tokens below its burst). Returns how many it has deleted. Each process does that
    /// by itself [now and then](Self::sweep_every).
    ///
    /// # Errors
    ///
    /// A [`StoreError`] if the server does not answer within a minute.
    pub async fn sweep(&self, most: u32) -> Result<u64, StoreError> {
        self.database.sweep(most).await
    }

    async fn ask_once(&self, ask: LeaseRequest) -> Result<LeaseGrant, StoreError> {
        let breaker = &self.database.breaker;
        let permit = breaker.admit(self.answer_timeout).await;
        let _permit = permit.inspect_err(|_| self.wake_repair())?;
        self.database.sweep_when_due(self.sweep_every);
        let (sent, is_sent) = (Instant::now(), AtomicBool::new(false));
        let answered = self.send_and_repeat(&ask, &is_sent);
        let not_sent =
            |why| if is_sent.load(Relaxed) { StoreError::Unreachable(why) } else { StoreError::NotSent(why) };
        match timeout(self.answer_timeout, answered).await {
            Ok(Ok(row)) => {
                breaker.note_answer();
                read(&row, &ask).inspect_err(|error| self.count(error))
            }
            Ok(Err(Failed::Broken(why))) => {
                self.database.suspect(self.answer_timeout, why.clone());
                Err(not_sent(why))
            }
            Ok(Err(Failed::Reply(kind, message))) => {
                breaker.note_reply();
                self.tally.count_error_reply(kind);
                if kind != ReplyKind::ReadOnly {
                    return Err(StoreError::Reply { kind, message });
                }
                // The server answers, and serves no store.
                self.database.suspect(self.answer_timeout, message.clone());
                Err(StoreError::Unreachable(message))
            }
            Err(_) => {
                let error = silent(self.answer_timeout);
                breaker.note_timeout();
                if !breaker.has_replied_since(sent) {
                    self.database.suspect(self.answer_timeout, error.to_string());
                }
                Err(if is_sent.load(Relaxed) { error } else { StoreError::NotSent(error.to_string()) })
            }
        }
    }

    /// Sends a request, and repeats it if the connection broke: servers and proxies end connections that were idle for a
    /// while, all those of the pool at a time. A new connection that breaks is repeated once.
    ///
    /// The server forgets a node that leaves, so it cannot tell a repeat of a claim of such a node: each one that it carries
    /// out costs the claim's tokens. So it is sent twice at most, the second time over a connection that has just answered.
    async fn send_and_repeat(&self, ask: &LeaseRequest, is_sent: &AtomicBool) -> Result<Row, Failed> {
        let pool = &self.database.pool;
        let is_counted_anew = ask.leave && ask.want > 0;
        let mut is_repeat = false;
        loop {
            let lent = if is_repeat && is_counted_anew { Lent::tried(pool).await } else { Lent::from(pool).await };
            let may_be_dead = lent.as_ref().is_ok_and(Lent::was_pooled) && !is_counted_anew;
            let answered = match lent {
                Ok(lent) => send(lent, &self.key, ask, is_sent).await,
                Err(error) => Err(error),
            };
            let is_broken = matches!(answered, Err(Failed::Broken(_)));
            if !is_broken || is_repeat && !may_be_dead {
                return answered;
            }
            is_repeat = true;
        }
    }

    fn count(&self, error: &StoreError) {
        if let StoreError::Reply { kind, .. } = error {
            self.tally.count_error_reply(*kind);
        }
    }

    /// Starts the repair task if the circuit is open: the last task may have ended with its runtime.
    fn wake_repair(&self) {
        if self.database.breaker.why_open().is_some() {
            self.database.repair(self.answer_timeout);
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

    /// While the server is unreachable, waits until it is back. Otherwise all stores share a budget of repeats.
    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.database.breaker.backoff(failures))
    }

    fn circuits(&self) -> Vec<Circuit> {
        vec![self.server().circuit]
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
