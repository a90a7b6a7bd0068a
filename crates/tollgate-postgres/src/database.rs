//! What all stores on one pool share: the connections, a circuit breaker, and the removal of rows that ended.

use crate::reply::Failed;
use crate::server::Lent;
use crate::silent;
use deadpool_postgres::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::distributed::{Breaker, ReplyKind, StoreError};

/// The time for one sweep, which may delete many rows.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The stores that one sweep of the background deletes at most: it holds the locks of their rows for as long.
const SWEPT_AT_ONCE: u32 = 1_000;

/// Needs the right to update and a server that writes, takes no lock, and returns nothing.
const TRIAL: &str = "SELECT FROM tollgate LIMIT 0 FOR UPDATE";

pub(super) struct Database {
    pub(super) pool: Pool,
    pub(super) breaker: Arc<Breaker>,
    began: Instant,
    /// When the last sweep of the background began, in microseconds since `began`.
    swept: AtomicU64,
}

impl Database {
    pub(super) fn over(pool: Pool) -> Self {
        Self { pool, breaker: Arc::new(Breaker::default()), began: Instant::now(), swept: AtomicU64::new(0) }
    }

    /// Opens the circuit, and tries the server until it answers.
    pub(super) fn suspect(self: &Arc<Self>, answer_timeout: Duration, why: String) {
        self.breaker.open(why);
        self.repair(answer_timeout);
    }

    /// Tries the server until it answers or all stores are gone, unless a task does that already.
    pub(super) fn repair(self: &Arc<Self>, answer_timeout: Duration) {
        let stale = 2 * answer_timeout.min(Duration::from_secs(60)) + Duration::from_secs(2);
        let database = Arc::downgrade(self);
        self.breaker.repair(stale, move || {
            let database = database.upgrade();
            async move {
                let database = database?;
                let tried = timeout(answer_timeout, attempt(&database.pool)).await;
                Some(tried.unwrap_or_else(|_| Err(silent(answer_timeout))).inspect(|()| database.breaker.note_reply()))
            }
        });
    }

    pub(super) async fn sweep(&self, most: u32) -> Result<u64, StoreError> {
        sweep(&self.pool, most).await
    }

    /// Deletes rows that ended, in a task, if `every` has passed since the last time.
    pub(super) fn sweep_when_due(&self, every: Duration) {
        let now = self.began.elapsed().as_micros() as u64;
        let every = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
        let last = self.swept.load(Relaxed);
        let is_due = now.saturating_sub(last) >= every;
        if !is_due || self.swept.compare_exchange(last, now, Relaxed, Relaxed).is_err() {
            return;
        }
        let pool = self.pool.clone();
        tokio::spawn(async move {
            // If it fails, the next one comes in time.
            while matches!(sweep(&pool, SWEPT_AT_ONCE).await, Ok(deleted) if deleted == u64::from(SWEPT_AT_ONCE)) {}
        });
    }
}

/// Whether the server can carry out requests. An error reply, but of a server that cannot write, is an answer.
async fn attempt(pool: &Pool) -> Result<(), StoreError> {
    let lent = Lent::from(pool).await.map_err(Failed::into_error)?;
    match lent.batch(TRIAL).await {
        Err(Failed::Reply(ReplyKind::ReadOnly, message)) => {
            // The other connections lead to the same server.
            pool.retain(|_, _| false);
            Err(StoreError::Unreachable(message))
        }
        Err(Failed::Broken(why)) => Err(StoreError::Unreachable(why)),
        Ok(()) | Err(Failed::Reply(..)) => Ok(()),
    }
}

async fn sweep(pool: &Pool, most: u32) -> Result<u64, StoreError> {
    let swept = async {
        let lent = Lent::from(pool).await.map_err(Failed::into_error)?;
        let row = lent.call("SELECT tollgate_sweep_1($1)", &[&i64::from(most)]).await.map_err(Failed::into_error)?;
        Ok(row.get::<_, i64>(0) as u64)
    };
    timeout(SWEEP_TIMEOUT, swept).await.unwrap_or_else(|_| Err(silent(SWEEP_TIMEOUT)))
}
