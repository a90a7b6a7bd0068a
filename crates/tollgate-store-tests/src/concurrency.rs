//! Requests at the same time.

use super::requests::{answered, asked};
use super::{Failure, Part};
use fastrand::Rng;
use std::sync::Arc;
use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreError};

const CLIENTS: usize = 8;
const NODES: usize = 16;
const BURST: u64 = 20;
/// How often a request is repeated that the store could not answer.
const ATTEMPTS: u32 = 20;

/// One request, sent by two clients at the same time, and the answers.
type Twice = (LeaseRequest, [Result<LeaseGrant, StoreError>; 2]);

/// Sends the requests of many nodes at the same time. No token is minted meanwhile, so the order of the requests does
/// not matter: each token is granted once.
pub(crate) async fn concurrency(
    open: &impl AsyncFn(&str, i64) -> Result<Arc<dyn Store>, String>,
    name: &str,
    seed: u64,
) -> Result<(), Failure> {
    let mut history = Vec::new();
    let outcome = together(open, name, seed, &mut history).await;
    outcome.map_err(|difference| Failure { part: Part::Concurrency, seed, history, difference })
}

async fn together(
    open: &impl AsyncFn(&str, i64) -> Result<Arc<dyn Store>, String>,
    name: &str,
    seed: u64,
    history: &mut Vec<String>,
) -> Result<(), String> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(open(name, 0).await?);
    }
    let mut tasks = JoinSet::new();
    for node in 0..NODES {
        let pair = [Arc::clone(&clients[node % CLIENTS]), Arc::clone(&clients[(node + 3) % CLIENTS])];
        tasks.spawn(one_node(pair, 1 + node as u128, Rng::with_seed(seed ^ (node as u64) << 32)));
    }
    let mut answers = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        answers.extend(ended.map_err(|error| format!("a request ends in a panic: {error}"))??);
    }
    let mut sum = 0;
    for (ask, pair) in &answers {
        history.extend(pair.iter().map(|answer| format!("{} -> {}", asked(ask), answered(answer))));
        let grant = once(ask, pair)?;
        sum += grant.now;
    }
    if sum != BURST {
        return Err(format!("{sum} tokens of a burst of {BURST} are granted"));
    }
    Ok(())
}

/// Sends some requests of a node one after the other, each one twice.
async fn one_node(clients: [Arc<dyn Store>; 2], node: u128, mut random: Rng) -> Result<Vec<Twice>, String> {
    let terms = QuotaTerms::of(&Quota::per_day(1).burst(BURST)).expect("the quota is valid");
    let mut answers = Vec::new();
    for number in 1..=3 {
        let mut request = LeaseRequest::new(node, number, terms);
        (request.want, request.first, request.ttl) = (random.u64(1..=4), 1, 3_600_000_000);
        let (one, other) = tokio::join!(ask(&*clients[0], request.clone()), ask(&*clients[1], request.clone()));
        answers.push((request, [one, other]));
    }
    Ok(answers)
}

/// Returns the answer to a request that was sent twice, if it was counted once.
fn once<'a>(ask: &LeaseRequest, pair: &'a [Result<LeaseGrant, StoreError>; 2]) -> Result<&'a LeaseGrant, String> {
    let [Ok(one), Ok(other)] = pair else { return Err("a request is refused".to_owned()) };
    let promise = |grant: &LeaseGrant| [grant.now, grant.promised, grant.queued_before, grant.allowance];
    if promise(one) != promise(other) || one.now > ask.want {
        return Err(format!("a request is sent twice at the same time and gets two answers: {}", asked(ask)));
    }
    // One of them is the repeat. Both may be, if the store lost the first answer.
    let before = [one.before, other.before];
    if !before.contains(&ask.number) || before.iter().any(|number| number + 1 != ask.number && *number != ask.number) {
        return Err(format!("a request is new twice, or the store has lost its node: {}", asked(ask)));
    }
    Ok(one)
}

/// Sends a request. As a node does, repeats it while the store cannot be reached.
async fn ask(store: &dyn Store, ask: LeaseRequest) -> Result<LeaseGrant, StoreError> {
    let mut failures = 0;
    loop {
        match store.ask(ask.clone()).await {
            Err(StoreError::Unreachable(_) | StoreError::NotSent(_)) if failures < ATTEMPTS => {
                failures += 1;
                store.backoff(failures).await;
            }
            answer => return answer,
        }
    }
}
