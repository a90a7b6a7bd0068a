//! The state of a store: lost, changed to another quota, and apart from that of other stores.

use super::client::{ask, at_once, slow, terms, try_ask, want};
use super::{Outcome, Subject, Trial};
use crate::distributed::StoreError;
use crate::quota::Quota;

pub(super) async fn flush(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("flushed").await?;
    let terms = terms(Quota::per_day(10).initial(7));
    ask(&*store, want(1, 1, terms, 4)).await?;
    if !trial.subject.flush(&trial.name("flushed")).await {
        return Ok(false);
    }
    let answer = ask(&*store, want(1, 2, terms, 1)).await?;
    ensure!(
        answer.is_repeated || answer.grant.before == 0,
        "the store has lost its state, and request 2 is told that request {} came before: the node cannot notice",
        answer.grant.before
    );
    ensure!(
        answer.grant.remaining == 6,
        "a lost bucket starts with its 7 initial tokens, and one taken leaves {:?}",
        answer.grant
    );
    Ok(true)
}

pub(super) async fn names(trial: &Trial<'_, impl Subject>) -> Outcome {
    let terms = slow(10);
    for name in ["a", "b", "a{b}", "a {b}", "a:b", "A"] {
        let grant = ask(&*trial.client(name).await?, at_once(1, terms, 10)).await?.grant;
        ensure!(grant.now == 10 && grant.before == 0, "a new store with the name `{name}` answers {grant:?}");
    }
    let grant = ask(&*trial.client("a").await?, at_once(2, terms, 1)).await?.grant;
    ensure!(grant.now == 0, "the store with the name `a` was emptied, and another client of it gets {grant:?}");
    Ok(true)
}

pub(super) async fn versions(trial: &Trial<'_, impl Subject>) -> Outcome {
    conflicts_and_changes(trial).await?;
    requests_at_once_by_an_older_quota(trial).await?;
    changes_of_the_burst(trial).await
}

async fn conflicts_and_changes(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("versions").await?;
    let old = slow(10).with_version(4);
    let other = slow(11).with_version(4);
    ask(&*store, want(1, 1, old, 15)).await?;
    match try_ask(&*store, want(2, 1, other, 1)).await {
        Err(StoreError::QuotaConflict { stored, asked }) => ensure!(
            (stored, asked) == (old, other),
            "the quotas in conflict are `{old}` and `{other}`, and the error says `{stored}` and `{asked}`"
        ),
        answer => return Err(format!("two quotas of one version are no conflict, but {answer:?}")),
    }
    // Other initial tokens are no other quota.
    let same = terms(Quota::per_day(1).burst(10).initial(3)).with_version(4);
    let grant = ask(&*store, want(2, 1, same, 0)).await?.grant;
    ensure!(
        grant.terms.is_none() && grant.queued_before == 5,
        "a store with the quota of the request answers {grant:?}"
    );

    // Twice the rate: the instants of 5 promised tokens stay, so 10 new ones come before the next.
    let new = terms(Quota::per_day(2).burst(20)).with_version(5);
    let grant = ask(&*store, want(3, 1, new, 1)).await?.grant;
    ensure!(grant.terms.is_none(), "a newer quota is not taken over: {grant:?}");
    ensure!(
        (grant.now, grant.promised, grant.queued_before) == (0, 1, 10),
        "after a change to twice the rate, 5 promised tokens are 10, and a request for one gets {grant:?}"
    );
    let again = ask(&*store, want(1, 1, old, 15)).await?.grant;
    ensure!(
        (again.now, again.promised, again.terms) == (10, 0, Some(new)),
        "a request that is repeated across the change keeps its 10 tokens and no promise, and gets {again:?}"
    );
    let grant = ask(&*store, want(1, 2, old, 1)).await?.grant;
    ensure!(
        (grant.now, grant.promised, grant.queued_before, grant.terms) == (0, 0, 11, Some(new)),
        "a node with an older quota is told the newer one, `{new}`, and gets no tokens before it knows that; it gets {grant:?}"
    );
    let grant = ask(&*store, want(1, 3, new, 1)).await?.grant;
    ensure!(
        (grant.promised, grant.queued_before, grant.terms) == (1, 11, None),
        "a node that has been told the newer quota asks for one token behind 11 others, and gets {grant:?}"
    );
    let answer = try_ask(&*store, want(4, 1, slow(9).with_version(3), 0)).await;
    ensure!(
        answer.as_ref().is_ok_and(|answer| answer.grant.terms == Some(new)),
        "a still older quota is told the newer one, `{new}`, and gets {answer:?}"
    );

    Ok(true)
}

/// Whether tokens are there does not depend on the quota that the node knows.
async fn requests_at_once_by_an_older_quota(trial: &Trial<'_, impl Subject>) -> Outcome {
    let (old, new) = (slow(10).with_version(4), terms(Quota::per_day(2).burst(20)).with_version(5));
    let store = trial.client("at once").await?;
    ask(&*store, at_once(1, new, 8)).await?;
    let grant = ask(&*store, at_once(2, old, 3)).await?.grant;
    ensure!(
        (grant.now, grant.terms) == (3, Some(new)),
        "a request for 3 tokens at once by an older quota finds 12, and gets {grant:?}"
    );

    Ok(true)
}

/// No burst is granted anew, and a lower burst cuts what is there.
async fn changes_of_the_burst(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("bursts").await?;
    ask(&*store, at_once(1, slow(10), 8)).await?;
    for (version, burst, remaining) in [(1, 50, 2), (2, 1, 1), (3, 60, 1)] {
        let terms = slow(burst).with_version(version);
        let grant = ask(&*store, want(2, u64::from(version), terms, 0)).await?.grant;
        ensure!(
            grant.remaining == remaining,
            "after a change to a burst of {burst} there are {} tokens, not {remaining}",
            grant.remaining
        );
    }
    Ok(true)
}
