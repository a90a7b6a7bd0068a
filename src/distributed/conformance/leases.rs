//! What nodes keep: allowances, leases, and requests that keep nothing.

use super::client::{ask, at_once as one, slow, terms, want};
use super::{Outcome, Subject, Trial};
use crate::distributed::LeaseRequest;
use crate::quota::Quota;
use std::time::Duration;
use tokio::time::sleep;

pub(super) async fn at_once(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("at once").await?;
    let terms = slow(10);
    let expect = [(4, 4, 6), (7, 0, 6), (6, 6, 0), (1, 0, 0), (0, 0, 0)];
    for (node, (tokens, now, remaining)) in (1..).zip(expect) {
        // As a keyed limiter asks for a single claim: the store does not remember the node.
        let grant = ask(&*store, LeaseRequest { leave: true, ..one(node, terms, tokens) }).await?.grant;
        ensure!(
            (grant.now, grant.promised, grant.remaining, grant.nodes) == (now, 0, remaining, 0),
            "a request for {tokens} at once gets {grant:?}; it must get {now}, {remaining} must remain, and no node"
        );
    }
    // The refused tokens are not owed.
    let grant = ask(&*store, want(9, 1, terms, 1)).await?.grant;
    ensure!(grant.queued_before == 0, "requests for tokens at once are promised {} for later", grant.queued_before);
    Ok(true)
}

/// A bucket of 100 that fills up within the tenth of a second for which the cases sleep.
fn quick() -> crate::distributed::QuotaTerms {
    terms(Quota::per_second(5_000).burst(100))
}

const FILLS: Duration = Duration::from_millis(100);

pub(super) async fn allowances(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("allowances").await?;
    let terms = slow(100);
    let mut held = 0;
    for node in 1..=8 {
        let request = LeaseRequest { ahead: 100, allowance: 100, minimum: 30, ..want(node, 1, terms, 0) };
        let grant = ask(&*store, request).await?.grant;
        held += grant.allowance;
        ensure!(held <= 50, "nodes may keep {held} tokens unused of a burst of 100: at most half of it");
        ensure!(grant.now <= grant.allowance, "a node may keep {} tokens and is given {}", grant.allowance, grant.now);
    }
    ensure!(held == 50, "nodes that each need 30 tokens in advance may keep {held}, not 50 together");

    // Kept tokens are part of the burst.
    let store = trial.client("capacity").await?;
    let terms = quick();
    let request = LeaseRequest { ahead: 20, allowance: 20, ..want(1, 1, terms, 0) };
    let grant = ask(&*store, request).await?.grant;
    ensure!((grant.now, grant.allowance) == (20, 20), "a node that asks for 20 of 100 in advance gets {grant:?}");
    sleep(FILLS).await;
    let grant = ask(&*store, one(2, terms, 81)).await?.grant;
    ensure!(
        (grant.now, grant.remaining) == (0, 80),
        "a node keeps 20 tokens of 100, another one asks for 81 at once and gets {grant:?}"
    );
    // Given back, they are there for all; kept ones are not returned.
    let request = LeaseRequest { held: 5, back: 15, ..want(1, 2, terms, 0) };
    ask(&*store, request).await?;
    sleep(FILLS).await;
    let grant = ask(&*store, one(3, terms, 96)).await?.grant;
    ensure!((grant.now, grant.remaining) == (0, 95), "a node keeps 5 tokens of 100, and 96 at once are {grant:?}");
    ask(&*store, LeaseRequest { leave: true, back: 5, ..want(1, 3, terms, 0) }).await?;
    sleep(FILLS).await;
    let grant = ask(&*store, one(4, terms, 100)).await?.grant;
    ensure!(grant.now == 100, "no node keeps anything of 100 tokens, and 100 at once are {grant:?}");

    // More than it was allowed to keep, a node cannot return.
    let store = trial.client("returned").await?;
    let terms = slow(100);
    ask(&*store, LeaseRequest { ahead: 10, allowance: 10, ..want(1, 1, terms, 50) }).await?;
    let grant = ask(&*store, LeaseRequest { back: 60, ..want(1, 2, terms, 0) }).await?.grant;
    ensure!(
        grant.remaining == 50,
        "a node that kept 10 tokens returns 60, and of 40 the store has {}",
        grant.remaining
    );
    Ok(true)
}

pub(super) async fn leases(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("leases").await?;
    let terms = quick();
    let lease = Duration::from_millis(400);
    let ttl = lease.as_micros() as u64;
    let kept = LeaseRequest { ahead: 20, allowance: 20, ttl, ..want(1, 1, terms, 0) };
    let first = ask(&*store, kept).await?;
    // A node with a short lease asks and leaves: that ends no other node's lease, and the store keeps the bucket.
    sleep(Duration::from_millis(2)).await;
    ask(&*store, LeaseRequest { ttl: 1_000, leave: true, ..want(3, 1, terms, 0) }).await?;
    sleep(FILLS).await;
    let early = ask(&*store, LeaseRequest { ttl, ..want(2, 1, terms, 0) }).await?;
    let is_early = early.received - first.sent < lease;
    ensure!(
        !is_early || (early.grant.nodes, early.grant.remaining) == (2, 80),
        "a node is forgotten before the end of its lease: {:?}",
        early.grant
    );
    sleep(lease).await;
    ask(&*store, LeaseRequest { ttl, ..want(2, 2, terms, 0) }).await?;
    sleep(FILLS).await;
    let late = ask(&*store, LeaseRequest { ttl, ..want(2, 3, terms, 0) }).await?.grant;
    ensure!(
        (late.nodes, late.remaining) == (1, 100),
        "a node whose lease of {lease:?} has ended still has its allowance: {late:?}"
    );
    let again = ask(&*store, LeaseRequest { number: 2, ..kept }).await?;
    ensure!(
        again.is_repeated || again.grant.before == 0,
        "a node that was forgotten is told that request {} came before",
        again.grant.before
    );
    Ok(kept_tokens_are_missing_until_then(trial).await? && a_lease_lasts_as_long_if_the_clock_steps_back(trial).await?)
}

/// A node may use what it keeps until the end of its lease, so the store has no space for these tokens before.
async fn kept_tokens_are_missing_until_then(trial: &Trial<'_, impl Subject>) -> Outcome {
    const BEGIN: u64 = 1_700_000_000_000_000;
    const MILLIS: u64 = 1_000;
    let terms = terms(Quota::per_second(1_000).burst(1_000));
    let ttl = 2_000 * MILLIS;
    let kept = LeaseRequest { ahead: 400, allowance: 400, minimum: 400, ttl, ..want(1, 1, terms, 0) };
    let all = |node| LeaseRequest { ttl, leave: true, ..one(node, terms, 1_000) };
    // When the others ask after a time without requests, and how many tokens are there then.
    for (name, silence, remaining) in
        [("kept", 2_000, 600), ("kept before", 2_100, 700), ("kept long before", 2_399, 999)]
    {
        let name = trial.name(name);
        let mut answers = Vec::new();
        for (request, at) in [(kept, 0), (all(2), silence)] {
            let Some(answer) = trial.subject.ask_at(&name, request, BEGIN + at * MILLIS).await else {
                return Ok(true);
            };
            answers.push(answer.map_err(|error| format!("a request gets the error `{error}`"))?);
        }
        ensure!(
            (answers[0].now, answers[0].allowance) == (400, 400),
            "a node that asks for 400 of 1000 tokens in advance gets {:?}",
            answers[0]
        );
        ensure!(
            (answers[1].now, answers[1].remaining) == (0, remaining),
            "a lease over 400 of 1000 tokens has ended after 2 s; at {silence} ms there must be {remaining}, not {:?}",
            answers[1]
        );
    }
    Ok(true)
}

/// A clock that steps back takes the ends of all leases with it, also if the next node to ask has a short lease.
async fn a_lease_lasts_as_long_if_the_clock_steps_back(trial: &Trial<'_, impl Subject>) -> Outcome {
    const BEGIN: u64 = 1_700_000_000_000_000;
    const MILLIS: u64 = 1_000;
    const HOUR: u64 = 3_600_000 * MILLIS;
    let terms = terms(Quota::per_second(1_000).burst(1_000));
    let ttl = 2_000 * MILLIS;
    let kept = LeaseRequest { ahead: 400, allowance: 400, minimum: 400, ttl, ..want(1, 1, terms, 0) };
    let last_before = LeaseRequest { ttl, leave: true, ..want(2, 1, terms, 0) };
    let short = LeaseRequest { ttl: MILLIS, leave: true, ..want(3, 1, terms, 0) };
    let all = LeaseRequest { ttl, leave: true, ..one(4, terms, 1_000) };
    // The lease has 1 s left when the clock steps back by an hour. When is the bucket asked for all tokens, and how many
    // are there then?
    for (name, silence, remaining) in [("back", 500, 600), ("back then", 1_000, 600), ("back long", 1_399, 999)] {
        let name = trial.name(name);
        let back = BEGIN + 1_000 * MILLIS - HOUR;
        let mut last = None;
        for (request, at) in
            [(kept, BEGIN), (last_before, BEGIN + 1_000 * MILLIS), (short, back), (all, back + silence * MILLIS)]
        {
            let Some(answer) = trial.subject.ask_at(&name, request, at).await else { return Ok(true) };
            last = Some(answer.map_err(|error| format!("a request gets the error `{error}`"))?);
        }
        let last = last.expect("four requests were answered");
        ensure!(
            (last.now, last.remaining) == (0, remaining),
            "a lease over 400 of 1000 tokens has 1 s left when the clock steps back by an hour; {silence} ms later there \
             must be {remaining}, not {last:?}"
        );
    }
    Ok(true)
}
