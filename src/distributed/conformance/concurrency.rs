//! Requests at the same time.

use super::client::{Answer, ask, at_once, slow, want};
use super::repeats::promise;
use super::{Outcome, Subject, Trial};
use crate::distributed::{LeaseRequest, Store};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The number of clients.
const CLIENTS: usize = 8;
/// How often the cases are tried that depend on chance.
const ROUNDS: u32 = 4;

pub(super) async fn concurrency(trial: &Trial<'_, impl Subject>) -> Outcome {
    // Also the first requests of a store come at the same time.
    for round in 0..ROUNDS {
        let terms = slow(20);
        let asks = (1..=40).map(|node| LeaseRequest { leave: true, ..at_once(node, terms, 1) }).collect();
        let granted: u64 =
            together(trial, &format!("grants {round}"), asks).await?.iter().map(|one| one.grant.now).sum();
        ensure!(granted == 20, "40 requests at the same time for one of 20 tokens each get {granted}");
    }
    promises_are_disjoint(trial).await?;
    for round in 0..ROUNDS {
        repeats_are_counted_once(trial, round).await?;
    }
    Ok(true)
}

async fn promises_are_disjoint(trial: &Trial<'_, impl Subject>) -> Outcome {
    let terms = slow(10);
    let asks = (1..=40).map(|node| want(node, 1, terms, 2 + node as u64 % 3)).collect();
    let answers = together(trial, "promises", asks).await?;
    let mut promised: Vec<(u64, u64)> = answers
        .iter()
        .map(|one| (one.grant.queued_before, one.grant.promised))
        .filter(|(_, tokens)| *tokens > 0)
        .collect();
    promised.sort_unstable();
    let mut behind = 0;
    for (queued_before, tokens) in promised {
        ensure!(
            queued_before == behind,
            "a token is promised twice or never: {tokens} tokens stand behind {queued_before} others, not {behind}"
        );
        behind += tokens;
    }
    let granted: u64 = answers.iter().map(|one| one.grant.now).sum();
    ensure!(granted == 10, "a burst of 10 is granted as {granted}");
    Ok(true)
}

async fn repeats_are_counted_once(trial: &Trial<'_, impl Subject>, round: u32) -> Outcome {
    let terms = slow(100);
    let name = format!("repeats {round}");
    let answers = together(trial, &name, vec![want(1, 1, terms, 5); 16]).await?;
    for answer in &answers {
        ensure!(
            promise(&answer.grant) == promise(&answers[0].grant),
            "one request, sent many times at the same time, gets {:?} and {:?}",
            answer.grant,
            answers[0].grant
        );
    }
    let new = answers.iter().filter(|answer| answer.grant.before == 0).count();
    ensure!(new <= 1, "a request that was sent many times at the same time is new {new} times");
    let rest = ask(&*trial.client(&name).await?, want(2, 1, terms, 0)).await?.grant.remaining;
    ensure!(rest == 95, "5 of 100 tokens are granted to a request that was sent many times, and {rest} remain");
    Ok(true)
}

/// Sends all requests at the same time, from several clients.
async fn together(trial: &Trial<'_, impl Subject>, name: &str, asks: Vec<LeaseRequest>) -> Result<Vec<Answer>, String> {
    let mut clients: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(trial.client(name).await?);
    }
    let mut tasks = JoinSet::new();
    for (request, client) in asks.into_iter().zip(clients.iter().cycle()) {
        let client = Arc::clone(client);
        tasks.spawn(async move { ask(&*client, request).await });
    }
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer.map_err(|error| format!("a request ends in a panic: {error}"))??);
    }
    Ok(answers)
}
