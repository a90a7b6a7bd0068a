//! Many nodes that share one quota, in paused time over the store in memory.

mod law;
mod served;
mod world;

use crate::fixture::*;
use law::Law;
use world::World;

const RATE: u64 = 20_000;

/// Two seconds of 20,000/s, with answers that take two milliseconds.
fn world(busy: u64) -> World {
    World {
        busy,
        tasks: (RATE / 2 / busy).max(4),
        cost: 1,
        quiet: 0,
        law: Law { rate: RATE, burst: RATE / 10 },
        time: Duration::from_secs(2),
        latency: Duration::from_millis(1),
        service: Duration::ZERO,
    }
}

/// The missing tokens are those minted above a full bucket during the first requests, and those in transit at the end:
/// five milliseconds' worth. The nodes' shares differ by one turn, which some have had and others not yet.
#[tokio::test(start_paused = true)]
async fn forty_nodes_share_all_tokens_equally_and_no_token_more() {
    let world = World { time: Duration::from_secs(4), ..world(40) };
    let outcome = world.live().await;
    println!("{} tokens, {:?}, {} requests, {:?} late", outcome.tokens(), outcome.got, outcome.asks, outcome.late);
    assert_eq!(outcome.excess(&world), 0);
    assert!(outcome.achieved(&world) >= 0.995, "{}", outcome.achieved(&world));
    assert!(outcome.fairness() >= 0.9, "{}: {:?}", outcome.fairness(), outcome.got);
}

/// Nodes send requests in turns of a tenth of a second: ten requests per second each, and at most as many again.
#[tokio::test(start_paused = true)]
async fn requests_grow_with_the_nodes_and_not_with_the_rate() {
    for busy in [4, 40] {
        let world = world(busy);
        let outcome = world.live().await;
        let per_node = outcome.asks as f64 / busy as f64 / 2.0;
        println!("{busy} nodes: {per_node} requests per second each");
        assert!(per_node <= 20.0, "{busy} nodes: {per_node}");
    }
}

/// A node with few callers and a small burst can get few tokens at a time: those for its waiters, and those it may keep
/// unused, which are a tenth of the burst for each of four nodes. So a request brings 18 tokens at most, and 1,000
/// tokens take 56 requests at least.
#[tokio::test(start_paused = true)]
async fn few_callers_and_a_small_burst_cost_few_trips_more_than_they_must() {
    let world =
        World { tasks: 8, law: Law { rate: 10_000, burst: 100 }, latency: Duration::from_micros(100), ..world(4) };
    let outcome = world.live().await;
    let per_thousand = outcome.asks as f64 * 1e3 / outcome.tokens() as f64;
    println!("{per_thousand} requests per 1,000 tokens, {} granted, {:?}", outcome.achieved(&world), outcome.got);
    assert_eq!(outcome.excess(&world), 0);
    assert!(per_thousand <= 65.0, "{per_thousand}");
    assert!(outcome.achieved(&world) >= 0.99, "{}", outcome.achieved(&world));
    assert!(outcome.fairness() >= 0.9, "{:?}", outcome.got);
}

/// Forty nodes would send 400 requests a second, and the store answers 200. The answers come later, and the shares
/// grow: when they have adapted, all minted tokens are granted.
#[tokio::test(start_paused = true)]
async fn an_overloaded_store_still_grants_all_tokens() {
    let world = World { service: Duration::from_millis(5), ..world(40) };
    let outcome = world.live().await;
    let in_the_last_second: u64 =
        outcome.grants.iter().filter(|batch| batch.first >= 1_000_000_000).map(|batch| batch.tokens).sum();
    println!("{in_the_last_second} tokens in the last second, {} requests in two", outcome.asks);
    assert_eq!(outcome.excess(&world), 0);
    assert!(in_the_last_second >= RATE * 99 / 100, "{in_the_last_second}");
}

/// A turn, the tokens promised to others before it, and the round trip.
#[tokio::test(start_paused = true)]
async fn a_node_with_small_demand_is_not_starved_by_saturated_nodes() {
    let world = World { quiet: 5, ..world(10) };
    let outcome = world.live().await;
    let longest = outcome.longest_wait();
    println!("{} waits, the longest {longest:?}", outcome.waits.len());
    assert_eq!(outcome.excess(&world), 0);
    assert!(outcome.waits.len() >= 5 * 5, "{:?}", outcome.waits);
    assert!(longest <= Duration::from_millis(300), "{longest:?}");
}
