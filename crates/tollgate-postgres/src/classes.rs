//! A report about classes as a call of the function, and the row that it returns.

use crate::reply::Failed;
use crate::server::Lent;
use crate::{PostgresStore, silent};
use deadpool_postgres::tokio_postgres::types::ToSql;
use tokio::time::timeout;
use tollgate::distributed::{ClassDemand, ClassReport, ReplyKind, StoreError};

const REPORT: &str = "SELECT tollgate_classes_1($1, $2, $3, $4)";

/// No node needs more: sums of so many nodes are exact.
const MOST_MILLIS: u64 = 1 << 40;

impl PostgresStore {
    /// Sends a report, once: the next one replaces it.
    pub(super) async fn report_once(&self, report: &ClassReport) -> Result<Vec<ClassDemand>, StoreError> {
        let breaker = &self.database.breaker;
        let _permit = breaker.admit(self.answer_timeout).await?;
        let answered = timeout(self.answer_timeout, self.send_report(report)).await;
        let numbers = answered.map_err(|_| silent(self.answer_timeout))?.map_err(Failed::into_error);
        let numbers = numbers.inspect_err(|error| self.count(error))?;
        breaker.note_answer();
        if numbers.len() % 6 != 0 {
            let message = format!("the function returned {numbers:?}, which is no demand");
            return Err(StoreError::Reply { kind: ReplyKind::Damaged, message });
        }
        let rows = numbers.chunks(6).map(|row| std::array::from_fn(|column| row[column] as u64));
        Ok(rows.map(ClassDemand::from_numbers).collect())
    }

    async fn send_report(&self, report: &ClassReport) -> Result<Vec<i64>, Failed> {
        let numbers = report.classes.iter().flat_map(|row| {
            [row.class, row.parent, row.weight, row.heavy.min(1), row.light.min(1), row.millis.min(MOST_MILLIS)]
        });
        let numbers: Vec<i64> = numbers.map(|number| number as i64).collect();
        let ttl = i64::try_from(report.ttl).unwrap_or(i64::MAX);
        let (store, node, numbers) = (self.key.as_bytes(), report.node.to_be_bytes(), &numbers[..]);
        let node = &node[..];
        let parameters: [&(dyn ToSql + Sync); 4] = [&store, &node, &ttl, &numbers];
        let row = Lent::from(&self.database.pool).await?.call(REPORT, &parameters).await?;
        row.try_get(0).map_err(|error| Failed::of(&error))
    }
}
