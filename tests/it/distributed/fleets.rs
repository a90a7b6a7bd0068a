//! Figures of fleets in simulated time: the rate that is reached, requests to the store, and waits.

use super::fleet::{FAR, Fleet, HOT};
use super::law::Ledger;
use super::link::{Cut, Link};
use super::nodes::{consume_for, limiter, millis, wait_of};
use crate::fixture::*;

/// The name of a fleet, the part of its rate that it reaches, its requests per 1,000 tokens, and the fleet.
const FLEETS: [(&str, f64, f64, Fleet); 12] = [
    ("hot, 20 ms", 1.000, 90.9, Fleet { latencies: &[10; 4], ..HOT }),
    ("one answer in 100 is lost", 1.000, 92.1, Fleet { latencies: &[1; 4], losses: 100, ..HOT }),
    ("turns of 50 ms", 0.999, 69.2, Fleet { turns: 50, ..HOT }),
    ("far, 1 caller a node", 0.210, 47.6, Fleet { callers: 1, ..FAR }),
    ("far, hiccups to 100 ms", 0.600, 16.7, Fleet { hiccups: 100, ..FAR }),
    ("far, work 250 ms", 0.437, 22.9, Fleet { work: 250, ..FAR }),
    ("far, 16 nodes", 1.000, 34.4, Fleet { latencies: &[100; 16], rate: 1_000, burst: 100, ..FAR }),
    ("far, jitter", 0.999, 30.8, Fleet { latencies: &[100; 16], rate: 1_000, burst: 100, jitter: 150, ..FAR }),
    // Claims of several costs that always wait: a part of a claim that was promised is kept until the rest comes.
    ("far, all wait, small burst", 0.999, f64::INFINITY, Fleet { burst: 20, large: 7, callers: 400, ..FAR }),
    ("far, all wait", 0.999, f64::INFINITY, Fleet { large: 7, callers: 400, ..FAR }),
    // A node can get few tokens at a time: those for its waiters, and those it may keep unused, which are a tenth of the
    // burst for each of four nodes. So a request brings 18 tokens at most, and 1,000 tokens take 56 requests at least.
    (
        "few callers, small burst",
        0.99,
        65.0,
        Fleet { rate: 10_000, burst: 100, latencies: &[0; 4], callers: 8, ..LARGE },
    ),
    // Forty nodes would send 400 requests a second, and the store answers 200. The answers come later, and the shares
    // grow: when they have adapted, all minted tokens are granted.
    ("an overloaded store", 0.99, f64::INFINITY, Fleet { service: 5, span: [1_000, 2_000], ..LARGE }),
];

/// Forty busy nodes of a quota with a high rate.
const LARGE: Fleet = Fleet { rate: 20_000, burst: 2_000, latencies: &[1; 40], callers: 250, span: [250, 1_250], ..HOT };

#[tokio::test(start_paused = true)]
async fn every_fleet_keeps_its_rate_and_needs_no_more_requests() {
    let mut wrong = Vec::new();
    for (name, rate, trips, fleet) in FLEETS {
        let figures = fleet.run().await;
        println!("{name}: {figures:?}");
        if figures.rate < rate - 0.0005 || figures.trips > trips + 0.1 || figures.excess > 1e-6 {
            wrong.push((name, figures));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// 20,000/s on nodes a millisecond away. In the first quarter of a second the store does not know all nodes. They send requests
/// in turns of a tenth of a second: ten requests per second each, and at most as many again.
#[tokio::test(start_paused = true)]
async fn many_nodes_share_all_tokens_equally_and_send_requests_in_turns() {
    for (latencies, end) in [(&[1; 40][..], 4_000), (&[1; 4], 1_250)] {
        let callers = 10_000 / latencies.len() as u64;
        let figures = Fleet { latencies, callers, span: [250, end], ..LARGE }.run().await;
        let per_node = figures.trips * 20.0 / latencies.len() as f64;
        println!("{} nodes, {per_node} requests per second each: {figures:?}", latencies.len());
        assert!(figures.rate >= 0.995 && figures.excess <= 0.0 && figures.fairness >= 0.9, "{figures:?}");
        assert!(per_node <= 20.0, "{per_node}");
    }
}

/// A turn, the tokens promised to others before it, and the round trip. One node alone may have a turn and a quarter before it:
/// a tenth of a second each.
#[tokio::test(start_paused = true)]
async fn a_node_with_small_demand_is_not_starved_by_saturated_nodes() {
    let many = Fleet { latencies: &[1; 15], quiet: 5, callers: 1_000, ..LARGE };
    let two = Fleet { latencies: &[0; 2], quiet: 1, callers: 1_000, ..HOT };
    for (fleet, most) in [(many, 300), (two, 230)] {
        let figures = fleet.run().await;
        println!("{figures:?}");
        assert!(figures.excess <= 0.0 && figures.wait > Duration::ZERO && figures.wait <= millis(most), "{figures:?}");
    }
}

/// The others have the whole rate after the time that docs/distributed.md states. Their answers may get lost, too.
#[tokio::test(start_paused = true)]
async fn the_others_have_the_rate_of_a_node_that_crashes() {
    // Their promises last for longer than the quarter of a second in which stores counted them.
    let deep = Fleet { callers: 800, ..FAR };
    for (fleet, bound) in [(HOT, 125), (deep, 1_400)] {
        let store = store_at(millis(fleet.latencies[0]));
        let quota = Quota::per_second(fleet.rate).burst(fleet.burst);
        let (ledger, time) = (Ledger::default(), millis(20_000));
        let mut nodes = Vec::new();
        for _ in fleet.latencies {
            let link = Link::to(&store, Outage::Wait);
            let node = limiter(&link, quota);
            let call = || tokio::spawn(consume_for(node.clone(), 1, time, ledger.clone()));
            nodes.push((link, (0..2 * fleet.callers).map(|_| call()).collect::<Vec<_>>()));
        }
        sleep(millis(8_000)).await;
        store.lose_answers(2);
        sleep(millis(4_000)).await;
        let (link, callers) = nodes.pop().unwrap();
        link.cut(Cut::Silent);
        callers.iter().for_each(|caller| caller.abort());
        sleep(millis(bound)).await;
        let before = ledger.total();
        sleep(millis(3_000)).await;
        let came = ledger.total() - before;
        assert!(came * 100 >= 3 * fleet.rate * 97, "{came} of {}", 3 * fleet.rate);
        let excess = ledger.excess(fleet.rate, fleet.burst) - ((fleet.latencies[0] + 1) * fleet.rate) as f64 / 1e3;
        assert!(excess <= 0.0, "{excess}");
    }
}

/// Processes start, make a claim and crash, as often as this: a node that lives then has tokens within a place's time.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_stops_no_fleet() {
    for (rate, burst, cost, every, bound) in [
        (1, 1, 1, 250, 1_000),
        (1, 1, 1, 83, 2_000),
        (1_000, 100, 1, 100, 10),
        (1_000, 100, 100, 50, 1_000),
        (1_000, 6_000, 6_000, 500, 1_000),
    ] {
        let store = store_at(Duration::from_micros(500));
        let (quota, mut debt) = (Quota::per_second(rate).burst(burst), 0);
        for _ in 0..30_000 / every {
            let link = Link::to(&store, Outage::Wait);
            let node = limiter(&link, quota);
            let claim = tokio::spawn(async move { node.wait(cost).await });
            sleep(millis(50)).await;
            link.cut(Cut::Before);
            claim.abort();
            sleep(millis(every - 50)).await;
            debt = debt.min(store.snapshot().level);
        }
        let began = Instant::now();
        limiter(&store, quota).wait(1).await.unwrap();
        println!("claims of {cost} on {rate}/s each {every} ms: {:?}", began.elapsed());
        assert!(began.elapsed() <= millis(bound), "{rate}/s: {:?}", began.elapsed());
        assert!(debt >= -(rate as i64).div_euclid(4) - 1, "{rate}/s: {debt} tokens");
    }
}

/// The tokens of a place are there for the others when the node does not come.
#[tokio::test(start_paused = true)]
async fn large_claims_that_crash_stop_a_busy_fleet_for_as_long_as_a_place_lasts() {
    let store = store_at(Duration::from_micros(500));
    let (quota, time) = (Quota::per_second(1_000).burst(6_000), millis(30_000));
    let ledger = Ledger::default();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let node = limiter(&store, quota);
        for _ in 0..20 {
            tasks.spawn(consume_for(node.clone(), 1, time, ledger.clone()));
        }
    }
    let (mut before, mut last, mut gap) = (0, Instant::now(), Duration::ZERO);
    sleep(millis(5_000)).await;
    for number in 0..2_500 {
        if number % 50 == 0 && number < 250 {
            let link = Link::to(&store, Outage::Wait);
            let node = limiter(&link, quota);
            let claim = tokio::spawn(async move { node.wait(6_000).await });
            sleep(millis(50)).await;
            link.cut(Cut::Before);
            claim.abort();
        }
        sleep(millis(10)).await;
        if ledger.total() > before || number == 0 {
            (before, last) = (ledger.total(), Instant::now());
        }
        gap = gap.max(last.elapsed());
    }
    println!("{gap:?}");
    assert!(gap <= millis(1_000), "{gap:?}");
}

/// The time in which the tokens of all nodes are minted, and a quarter more.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_waits_no_longer_than_for_what_the_others_were_promised() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(HOT.rate).burst(HOT.burst);
    for _ in 0..4 {
        let node = limiter(&store, quota);
        for _ in 0..8 {
            let node = node.clone();
            tokio::spawn(async move { while node.consume(1).await.is_ok() {} });
        }
    }
    for joins in 0..20 {
        sleep(millis(2_500 + 37 * joins)).await;
        let waited = wait_of(limiter(&store, quota).consume(1)).await;
        assert!(waited <= millis(126), "{waited:?}");
    }
}

/// Many nodes whose callers never wait, and ask for half of the rate.
#[tokio::test(start_paused = true)]
async fn nodes_that_only_try_are_rarely_refused() {
    let store = store_at(Duration::from_micros(500));
    let quota = Quota::per_second(1_000).burst(100);
    let (ledger, time, nodes) = (Ledger::default(), millis(20_000), 50);
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for seed in 0..nodes {
        let (limiter, ledger) = (limiter(&store, quota), ledger.clone());
        callers.spawn(async move {
            let (mut random, mut calls) = (Rng::with_seed(seed), 0);
            while began.elapsed() < time {
                sleep(Duration::from_secs_f64(-0.1 * (1.0 - random.f64()).ln())).await;
                calls += 1;
                if limiter.try_acquire(1).map(|grant| grant.forget()).is_ok() {
                    ledger.note(1);
                }
            }
            calls
        });
    }
    let calls: u64 = callers.join_all().await.into_iter().sum();
    println!("{} of {calls} calls, {} requests", ledger.total(), store.snapshot().round_trips);
    assert!(ledger.total() * 100 >= calls * 90, "{} of {calls} calls", ledger.total());
    assert!(ledger.excess(1_000, 100) <= 0.0);
}
