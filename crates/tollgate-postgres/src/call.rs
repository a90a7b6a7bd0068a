//! A request of a node as a call of the function, and the row that it returns.

use crate::reply::{DAMAGED, Failed, chain};
use crate::server::{ASK, Lent};
use deadpool_postgres::tokio_postgres::Row;
use deadpool_postgres::tokio_postgres::types::ToSql;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tollgate::distributed::{ClassClaims, LeaseGrant, LeaseRequest, QuotaTerms, ReplyKind, StoreError};

/// No number of a request is larger: levels and debts are exact in doubles.
const MOST: u64 = 1 << 53;

/// Sends the request for the store with this key. `is_sent` becomes true when the server may carry it out.
pub(super) async fn send(lent: Lent, key: &str, ask: &LeaseRequest, is_sent: &AtomicBool) -> Result<Row, Failed> {
    let quota: Vec<i64> = ask.terms.numbers().into_iter().map(|number| number as i64).collect();
    let numbers = numbers(ask);
    let (store, node) = (key.as_bytes(), ask.node.to_be_bytes());
    let (node, quota, numbers) = (&node[..], &quota[..], &numbers[..]);
    let parameters: [&(dyn ToSql + Sync); 6] = [&store, &node, &ask.leave, &ask.at_once, &quota, &numbers];
    let statement = lent.prepare(ASK).await?;
    is_sent.store(true, Relaxed);
    lent.run(&statement, &parameters).await
}

/// The numbers of a request, in the order in which the function expects them.
fn numbers(ask: &LeaseRequest) -> Vec<i64> {
    let LeaseRequest { number, ttl, want, first, age, useful, rtt, back, .. } = *ask;
    let LeaseRequest { unused, last, rest, ahead, banked, minimum, held, .. } = *ask;
    let of_node = [number, ttl, want, first, age, useful, rtt, back, unused, last, rest, ahead, banked, minimum, held];
    let of_classes = ask.classes.iter().flat_map(ClassClaims::numbers);
    of_node.into_iter().chain(of_classes).map(|number| number.min(MOST) as i64).collect()
}

/// Reads the row that the function returns. If something else wrote the bucket, numbers are missing.
pub(super) fn read(row: &Row, ask: &LeaseRequest) -> Result<LeaseGrant, StoreError> {
    let numbers: Vec<i64> = row.try_get(0).map_err(|error| StoreError::Reply {
        kind: ReplyKind::Damaged,
        message: format!("a row of the store was overwritten, {}: {DAMAGED}", chain(&error)),
    })?;
    let quota = |numbers: &[i64]| -> Option<QuotaTerms> {
        QuotaTerms::from_numbers(&numbers.iter().map(|number| *number as u64).collect::<Vec<_>>())
    };
    let damaged = || StoreError::Reply {
        kind: ReplyKind::Damaged,
        message: format!("the function returned {numbers:?}, which is no answer: {DAMAGED}"),
    };
    match numbers[..] {
        [-1, owed] => {
            Err(StoreError::Refused(format!("TOLLGATE the store owes {owed} tokens and promises no more: try later")))
        }
        [-2, number] => Err(StoreError::Refused(format!("TOLLGATE request {} comes after {number}", ask.number))),
        [-4, clock] => Err(StoreError::OtherPeriod { clock: clock as u64 }),
        [-3, ref stored @ ..] => {
            Err(StoreError::QuotaConflict { stored: Box::new(quota(stored).ok_or_else(damaged)?), asked: ask.terms })
        }
        _ => {
            let natural: Result<Vec<u64>, _> = numbers.iter().map(|number| u64::try_from(*number)).collect();
            natural.ok().and_then(|numbers| LeaseGrant::from_numbers(&numbers, ask.classes.len())).ok_or_else(damaged)
        }
    }
}
