//! The pool of connections, and what the server must have.

use crate::reply::{Failed, chain, is_conflict};
use deadpool_postgres::tokio_postgres::types::ToSql;
use deadpool_postgres::tokio_postgres::{Config, Error, IsolationLevel, NoTls, Row, Statement};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tollgate::distributed::{ReplyKind, StoreError};

/// The migration: a table and seven functions. It can run again, and while limiters run.
pub const MIGRATION: &str = include_str!("store.sql");

/// The request of a node.
pub(super) const ASK: &str = "SELECT tollgate_ask_1($1, $2, $3, $4, $5, $6)";

/// The largest number of connections of [`pool`]. One backend of the server answers some thousands of requests a second,
/// and requests for one store wait for each other in any case.
const CONNECTIONS: usize = 8;

/// How often a transaction is repeated that conflicts with others.
const REPEATS: usize = 3;

/// The key of the advisory lock that keeps two migrations apart.
const MIGRATION_LOCK: i64 = 0x746f_6c6c_6761_7465;

/// Makes a pool of at most eight connections to the server at `address`, without TLS. No connection is made yet.
///
/// # Errors
///
/// [`StoreError::Misnamed`] if the address is invalid.
pub fn pool(address: &str) -> Result<Pool, StoreError> {
    let mut config: Config = address.parse().map_err(|error| StoreError::Misnamed(chain(&error)))?;
    if config.get_application_name().is_none() {
        config.application_name("tollgate");
    }
    // The check that a connection is alive costs no round trip: a dead one is noticed by its request, which is repeated.
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let built = Pool::builder(manager).max_size(CONNECTIONS).runtime(Runtime::Tokio1).build();
    built.map_err(|error| StoreError::Misnamed(chain(&error)))
}

/// Runs the [`MIGRATION`]. The user needs the right to create in the schema.
///
/// # Errors
///
/// A [`StoreError`] if the server does not answer, or refuses.
pub async fn migrate(pool: &Pool) -> Result<(), StoreError> {
    let lent = Lent::from(pool).await.map_err(Failed::into_error)?;
    // Statements in one string are one transaction, which an error ends. An explicit BEGIN would leave a failed transaction
    // on the connection that goes back to the pool.
    let text = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK});\n{MIGRATION}");
    lent.batch(&text).await.map_err(Failed::into_error)
}

/// Checks what requests need: the migration, the rights, and a server that writes. Returns a warning about settings that
/// make them slow.
pub(super) async fn probe(pool: &Pool) -> Result<Option<String>, StoreError> {
    let lent = Lent::from(pool).await.map_err(Failed::into_error)?;
    lent.prepare(ASK).await.map_err(Failed::into_error)?;
    let asked = "SELECT pg_is_in_recovery(), array(
        SELECT needed FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
        WHERE NOT has_table_privilege('tollgate', needed)),
        current_setting('default_transaction_isolation'), quote_ident(session_user)";
    let row = lent.call(asked, &[]).await.map_err(Failed::into_error)?;
    let (is_standby, missing): (bool, Vec<String>) = (row.get(0), row.get(1));
    let (isolation, user): (String, String) = (row.get(2), row.get(3));
    if is_standby {
        let message = "it is a standby, which cannot write: connect to the primary".to_owned();
        return Err(StoreError::Reply { kind: ReplyKind::ReadOnly, message });
    }
    if !missing.is_empty() {
        let rights = missing.join(", ");
        let message =
            format!("{user} lacks {rights} on the table `tollgate`: run `GRANT {rights} ON tollgate TO {user}`");
        return Err(StoreError::Reply { kind: ReplyKind::NoPermission, message });
    }
    let conflicts = ["repeatable read", "serializable"].contains(&&*isolation);
    Ok(conflicts.then(|| {
        format!(
            "`default_transaction_isolation` is `{isolation}`, so requests for one store conflict and are repeated: run \
             `ALTER ROLE {user} SET default_transaction_isolation = 'read committed'`"
        )
    }))
}

/// A connection of the pool. It goes back if its request was answered. Otherwise it is closed: a request that was not
/// answered in time would delay all others on it.
pub(super) struct Lent(Option<Object>);

impl Lent {
    pub(super) async fn from(pool: &Pool) -> Result<Self, Failed> {
        match pool.get().await {
            Ok(object) => Ok(Self(Some(object))),
            Err(PoolError::Backend(error)) => Err(Failed::of(&error)),
            Err(error) => Err(Failed::Broken(chain(&error))),
        }
    }

    /// Returns a new connection, or one that has just answered.
    pub(super) async fn tried(pool: &Pool) -> Result<Self, Failed> {
        loop {
            let lent = Self::from(pool).await?;
            if !lent.was_pooled() || lent.object().simple_query("").await.is_ok() {
                return Ok(lent);
            }
        }
    }

    /// Whether the connection had been in the pool before: then it may have been ended there.
    pub(super) fn was_pooled(&self) -> bool {
        Object::metrics(self.object()).recycle_count > 0
    }

    fn object(&self) -> &Object {
        self.0.as_ref().expect("the connection is there until it goes back")
    }

    /// Prepares a statement, once for each connection.
    pub(super) async fn prepare(&self, text: &str) -> Result<Statement, Failed> {
        self.object().prepare_cached(text).await.map_err(|error| Failed::of(&error))
    }

    /// Runs a statement that returns one row, and gives the connection back. Repeats it if it conflicts with another
    /// transaction and was undone.
    pub(super) async fn run(
        mut self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Failed> {
        let mut result = self.object().query_one(statement, parameters).await;
        for _ in 0..REPEATS {
            if !result.as_ref().is_err_and(is_conflict) {
                break;
            }
            result = self.run_committed(statement, parameters).await;
        }
        self.judge(result)
    }

    /// Runs the statement in a transaction that waits for others, whatever the default is at this server. It takes two
    /// round trips more, so it is only the repeat.
    async fn run_committed(&mut self, statement: &Statement, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row, Error> {
        let object = self.0.as_mut().expect("the connection is there until it goes back");
        let transaction = object.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
        let row = transaction.query_one(statement, parameters).await?;
        transaction.commit().await?;
        Ok(row)
    }

    pub(super) async fn call(mut self, text: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row, Failed> {
        match self.object().prepare_cached(text).await {
            Ok(statement) => self.run(&statement, parameters).await,
            Err(error) => self.judge(Err(error)),
        }
    }

    pub(super) async fn batch(mut self, text: &str) -> Result<(), Failed> {
        let result = self.object().batch_execute(text).await;
        self.judge(result)
    }

    /// Gives the connection back, unless it is broken or leads to a server that cannot write.
    fn judge<T>(&mut self, result: Result<T, Error>) -> Result<T, Failed> {
        let result = result.map_err(|error| Failed::of(&error));
        if !matches!(result, Err(Failed::Broken(_) | Failed::Reply(ReplyKind::ReadOnly, _))) {
            drop(self.0.take());
        }
        result
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
