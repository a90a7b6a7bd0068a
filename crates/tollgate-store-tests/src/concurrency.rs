//! Requests at the same time.

use super::requests::{answered, asked};
use super::{Failure, Part};
use fastrand::Rng;
use std::sync::Arc;
use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate::distributed::{
    ClassDemand, ClassReport, LeaseGrant, LeaseRequest, QuotaTerms, SharedDemand, Store, StoreError,
};

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
    if clients[0].shares_classes() { classes(&*clients[0]).await } else { Ok(()) }
}

/// Sends some requests of a node one after the other, each one twice, and reports its classes.
async fn one_node(clients: [Arc<dyn Store>; 2], node: u128, mut random: Rng) -> Result<Vec<Twice>, String> {
    let terms = QuotaTerms::of(&Quota::per_day(1).burst(BURST), 0).expect("the quota is valid");
    let mut answers = Vec::new();
    for number in 1..=3 {
        let mut request = LeaseRequest::new(node, number, terms);
        (request.want, request.first, request.ttl) = (random.u64(1..=4), 1, 3_600_000_000);
        let (one, other) = tokio::join!(ask(&*clients[0], request), ask(&*clients[1], request));
        answers.push((request, [one, other]));
    }
    if clients[0].shares_classes() {
        let rows = vec![ClassDemand::from_numbers([1, 0, 1, 1, 0, 0]), ClassDemand::from_numbers([2, 1, 1, 0, 1, 3])];
        report(&*clients[0], node, rows).await?;
    }
    Ok(answers)
}

/// Returns the answer to a request that was sent twice, if it was counted once.
fn once<'a>(ask: &LeaseRequest, pair: &'a [Result<LeaseGrant, StoreError>; 2]) -> Result<&'a LeaseGrant, String> {
    let [Ok(one), Ok(other)] = pair else { return Err("a request is refused".to_owned()) };
    let promise = |grant: &LeaseGrant| [grant.now, grant.promised, grant.queued_before, grant.allowance];
    if promise(one) != promise(other) || ![0, 1, ask.want].contains(&one.now) {
        return Err(format!("a request is sent twice at the same time and gets two answers: {}", asked(ask)));
    }
    // One of them is the repeat. Both may be, if the store lost the first answer.
    let before = [one.before, other.before];
    if !before.contains(&ask.number) || before.iter().any(|number| number + 1 != ask.number && *number != ask.number) {
        return Err(format!("a request is new twice, or the store has lost its node: {}", asked(ask)));
    }
    Ok(one)
}

/// The reports of all nodes are added up, and a bounded number of classes is known.
async fn classes(store: &dyn Store) -> Result<(), String> {
    let nodes = NODES as u64;
    let sums = [[1, 0, 1, nodes, 0, 0], [2, 1, 1, 0, nodes, 3 * nodes]].map(ClassDemand::from_numbers);
    let found = report(store, 99, Vec::new()).await?;
    if found != sums {
        return Err(format!("the nodes have reported {sums:?} at the same time, and the store says {found:?}"));
    }
    let many: Vec<_> = (1..=200).map(|class| ClassDemand::from_numbers([class, 0, 1, 1, 0, 0])).collect();
    let (found, most) = (report(store, 99, many).await?.len(), SharedDemand::MOST_CLASSES);
    if found != most { Err(format!("of 200 classes {found} are known, not {most}")) } else { Ok(()) }
}

/// Sends a request. As a node does, repeats it while the store cannot be reached.
async fn ask(store: &dyn Store, ask: LeaseRequest) -> Result<LeaseGrant, StoreError> {
    let mut failures = 0;
    loop {
        match store.ask(ask).await {
            Err(StoreError::Unreachable(_) | StoreError::NotSent(_)) if failures < ATTEMPTS => {
                failures += 1;
                store.backoff(failures).await;
            }
            answer => return answer,
        }
    }
}

/// Reports classes for a minute. Returns the answer in the order of the classes.
async fn report(store: &dyn Store, node: u128, rows: Vec<ClassDemand>) -> Result<Vec<ClassDemand>, String> {
    let answer = store.report(ClassReport::new(node, 60_000_000, rows)).await;
    let mut found = answer.map_err(|error| format!("a report gets the error `{error}`"))?;
    found.sort_unstable_by_key(|row| row.class);
    Ok(found)
}
