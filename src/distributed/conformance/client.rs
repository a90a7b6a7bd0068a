//! Requests as a node sends them.

use crate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreError};
use crate::quota::Quota;
use tokio::time::Instant;

/// How often a request is repeated that the store could not answer.
const ATTEMPTS: u32 = 20;

/// An answer, and the interval in which the store gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) grant: LeaseGrant,
    pub(super) sent: Instant,
    pub(super) received: Instant,
    /// Whether the request was sent more than once, so that `before` may be its own number.
    pub(super) is_repeated: bool,
}

/// Sends a request. As a node does, repeats it while the store cannot be reached.
pub(super) async fn try_ask(store: &dyn Store, ask: LeaseRequest) -> Result<Answer, StoreError> {
    let sent = Instant::now();
    let mut failures = 0;
    loop {
        match store.ask(ask).await {
            Ok(grant) => {
                return Ok(Answer { grant, sent, received: Instant::now(), is_repeated: failures > 0 });
            }
            Err(StoreError::Unreachable(_) | StoreError::NotSent(_)) if failures < ATTEMPTS => {
                failures += 1;
                store.backoff(failures).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends a request that must be answered, with numbers that a store can mean: the cases calculate with them.
pub(super) async fn ask(store: &dyn Store, ask: LeaseRequest) -> Result<Answer, String> {
    let answer = try_ask(store, ask).await.map_err(|error| format!("{ask:?} gets the error `{error}`"))?;
    answer.grant.check(&ask)?;
    Ok(answer)
}

/// The terms of a quota of this module.
pub(super) fn terms(quota: Quota) -> QuotaTerms {
    QuotaTerms::of(&quota, 0).expect("the quotas of the cases are valid")
}

/// The terms of a quota that mints nothing while a case runs.
pub(super) fn slow(burst: u64) -> QuotaTerms {
    terms(Quota::per_day(1).burst(burst))
}

/// A request for tokens, whose node is remembered for an hour.
pub(super) fn want(node: u128, number: u64, terms: QuotaTerms, want: u64) -> LeaseRequest {
    LeaseRequest { want, ttl: 3_600_000_000, ..LeaseRequest::new(node, number, terms) }
}

/// The first request of a node, for tokens at once.
pub(super) fn at_once(node: u128, terms: QuotaTerms, tokens: u64) -> LeaseRequest {
    LeaseRequest { at_once: true, ..want(node, 1, terms, tokens) }
}
