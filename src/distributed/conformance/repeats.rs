//! Numbered requests: the store counts each one once.

use super::client::{ask, slow, try_ask, want};
use super::{Outcome, Subject, Trial};
use crate::distributed::{LeaseGrant, LeaseRequest, StoreError};
use std::time::Duration;
use tokio::time::sleep;

/// What is the same in the answers to a request and its repeats.
pub(super) fn promise(grant: &LeaseGrant) -> [u64; 5] {
    [grant.now, grant.promised, grant.queued_before, grant.phase, grant.allowance]
}

pub(super) async fn repeats(trial: &Trial<'_, impl Subject>) -> Outcome {
    let (store, other) = (trial.client("repeats").await?, trial.client("repeats").await?);
    let terms = slow(100);
    let request = LeaseRequest { ahead: 5, allowance: 5, ..want(1, 1, terms, 4) };
    let first = ask(&*store, request).await?;
    ensure!(
        first.is_repeated || first.grant.before == 0,
        "a node that is new to the store is told that request {} came before",
        first.grant.before
    );
    ensure!((first.grant.now, first.grant.allowance) == (9, 5), "4 and 5 ahead of 100 tokens are {:?}", first.grant);
    for store in [&store, &other, &store] {
        sleep(Duration::from_millis(20)).await;
        // The answer is that of the first request, whatever this one asks for.
        let again = ask(&**store, LeaseRequest { want: 7, ..request }).await?;
        ensure!(
            again.grant.before == 1,
            "the repeat of request 1 is told that request {} came before",
            again.grant.before
        );
        ensure!(
            promise(&again.grant) == promise(&first.grant),
            "a repeated request gets {:?}, and before it got {:?}",
            again.grant,
            first.grant
        );
        let (short, long) = (again.sent - first.received, again.received - first.sent);
        let age = Duration::from_micros(again.grant.age);
        let slack = long / 1_000 + Duration::from_micros(2);
        ensure!(
            age + slack >= short && (age <= long + slack || first.is_repeated),
            "an answer of {short:?} to {long:?} ago has the age {age:?}"
        );
    }
    let grant = ask(&*store, want(2, 1, terms, 1)).await?.grant;
    ensure!(
        grant.remaining == 90,
        "of 100 tokens, 9 and 1 were granted; the store says that {} remain",
        grant.remaining
    );

    let next = ask(&*store, want(1, 2, terms, 200)).await?;
    ensure!(
        next.is_repeated || next.grant.before == 1,
        "request 2 is told that request {} came before",
        next.grant.before
    );
    ensure!((next.grant.now, next.grant.promised) == (90, 110), "200 of 90 tokens are {:?}", next.grant);
    let again = ask(&*other, want(1, 2, terms, 200)).await?.grant;
    ensure!(promise(&again) == promise(&next.grant), "a repeated request gets {again:?}, and before {:?}", next.grant);
    // The lost answer of an overtaken request must not come twice.
    let old = try_ask(&*store, want(1, 1, terms, 1)).await;
    ensure!(
        matches!(old, Err(StoreError::Refused(_))),
        "request 1 comes after request 2, must be refused, and gets {old:?}"
    );
    let grant = ask(&*store, want(2, 2, terms, 1)).await?.grant;
    ensure!(grant.queued_before == 110, "the store promised 110 tokens and owes {}", grant.queued_before);
    Ok(true)
}
