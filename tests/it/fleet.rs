//! Many nodes that share one quota, in paused time over the store in memory: a small version of the simulation in
//! `examples/fleet_sim`.

#[path = "../../examples/fleet_sim/law.rs"]
mod law;
#[path = "../../examples/fleet_sim/served.rs"]
mod served;
#[path = "../../examples/fleet_sim/world.rs"]
mod world;

use law::{Batch, Law};
use std::time::Duration;
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
    let world = world(40);
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

/// The checks would detect a store that gives one token too many.
#[tokio::test]
async fn one_token_too_many_is_an_excess() {
    let law = world(4).law;
    let batch = |ms: u64, tokens| Batch { first: ms * 1_000_000, last: ms * 1_000_000, tokens };
    assert_eq!(law.excess(&[batch(0, 2_000), batch(10, 200)]), 0);
    assert_eq!(law.excess(&[batch(0, 2_000), batch(10, 201)]), 1);
    assert_eq!(law.excess(&[batch(500, 1_000), batch(505, 1_101)]), 1);
    // A batch that may belong to the millisecond before is explained by it.
    let late = Batch { first: 504_000_000, ..batch(505, 1_101) };
    assert_eq!(law.excess(&[batch(499, 1_000), late]), 0);
    assert_eq!(law.excess(&[batch(500, 1_000), late]), 1);
}

/// One grant that is late by a burst's time forgives that grant and no other.
#[tokio::test]
async fn a_late_grant_forgives_no_burst_of_others() {
    let law = world(4).law;
    let batch = |ms: u64, tokens| Batch { first: ms * 1_000_000, last: ms * 1_000_000, tokens };
    let late = Batch { first: 0, ..batch(100, 1) };
    assert_eq!(law.excess(&[late, batch(1_000, 2_000), batch(1_000, 2_000)]), 2_000);
}

/// Where every instant is known, an excess is what the fullest window has above the burst and the rate.
#[tokio::test]
async fn known_instants_are_lawful_if_every_window_is() {
    let law = Law { rate: 1_000_000_000, burst: 7 };
    let mut lawful = 0;
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = 0;
        let batches = std::iter::repeat_with(|| {
            at += random.u64(0..8);
            Batch { first: at, last: at, tokens: random.u64(0..6) }
        });
        let batches: Vec<_> = batches.take(12).collect();
        let tokens = |window: &[Batch]| window.iter().map(|batch| batch.tokens).sum::<u64>();
        let windows = (0..12).flat_map(|first| (first..12).map(move |last| (first, last)));
        let is_lawful = windows
            .map(|(first, last)| &batches[first..=last])
            .all(|window| tokens(window) <= law.burst + window[window.len() - 1].last - window[0].first);
        assert_eq!(law.excess(&batches) == 0, is_lawful, "seed {seed}: {batches:?}");
        lawful += u64::from(is_lawful);
    }
    assert!((200..1_800).contains(&lawful), "{lawful}");
}
