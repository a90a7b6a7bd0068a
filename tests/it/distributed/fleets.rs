//! Figures of fleets in simulated time: the rate that is reached, requests to the store, and waits.

use super::fleet::{FAR, Figures, Fleet, HOT};
use super::law::Ledger;
use super::link::{Cut, Link};
use super::nodes::{consume_for, limiter, millis};
use fastrand::Rng;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::Quota;
use tollgate::distributed::{MemoryStore, Outage};

/// The rows that each run judges.
const JUDGED: &[&str] = &[
    "hot, 20 ms",
    "turns of 50 ms",
    "far, 1 caller a node",
    "far, hiccups to 100 ms",
    "far, work 250 ms",
    "far, 16 nodes, 1,000/s",
    "far, 16 nodes, 1,000/s, jitter",
];

/// A fleet, and the figures that it reaches.
#[derive(Debug)]
struct Row {
    name: &'static str,
    fleet: Fleet,
    rate: f64,
    /// Requests per 1,000 tokens.
    trips: f64,
}

const fn row(name: &'static str, rate: f64, trips: f64, fleet: Fleet) -> Row {
    Row { name, fleet, rate, trips }
}

#[rustfmt::skip]
const FLEETS: &[Row] = &[
    row("hot", 1.000, 90.9, HOT),
    row("hot, 2 ms", 1.000, 90.9, Fleet { latencies: &[1; 4], ..HOT }),
    row("hot, 20 ms", 1.000, 90.9, Fleet { latencies: &[10; 4], ..HOT }),
    row("hot, 100 callers a node", 1.000, 40.0, Fleet { callers: 100, ..HOT }),
    row("hot, 20 callers a node", 1.000, 42.0, Fleet { callers: 20, ..HOT }),
    row("hot, 16 nodes", 1.000, 200.0, Fleet { latencies: &[0; 16], ..HOT }),
    row("hot, 2 nodes", 1.000, 58.8, Fleet { latencies: &[0; 2], ..HOT }),
    row("hot, 1 node", 1.000, 38.4, Fleet { latencies: &[0; 1], ..HOT }),
    row("hot, 10,000 tokens/s", 1.000, 9.5, Fleet { rate: 10_000, burst: 1_000, ..HOT }),
    row("hot, 1 caller a node", 1.000, 90.9, Fleet { callers: 1, ..HOT }),
    row("hot, burst 1", 1.000, 625.0, Fleet { burst: 1, ..HOT }),
    row("hot, burst 1, 100 callers", 1.000, 40.0, Fleet { burst: 1, callers: 100, ..HOT }),
    row("hot, work 1 ms", 1.000, 88.8, Fleet { work: 1, ..HOT }),
    row("hot, work 2 ms", 1.000, 88.8, Fleet { work: 2, ..HOT }),
    row("hot, work 5 ms", 1.000, 87.8, Fleet { work: 5, ..HOT }),
    row("hot, work 10 ms", 1.000, 87.8, Fleet { work: 10, ..HOT }),
    row("hot, work 20 ms", 1.000, 89.4, Fleet { work: 20, ..HOT }),
    row("hot, work 28 ms", 1.000, 89.7, Fleet { work: 28, ..HOT }),
    row("hot, work 60 ms", 0.530, 91.0, Fleet { work: 60, ..HOT }),
    row("hot, hiccups to 30 ms", 1.000, 88.1, Fleet { hiccups: 30, ..HOT }),
    row("hot, hiccups to 100 ms", 1.000, 83.8, Fleet { hiccups: 100, ..HOT }),
    row("1 busy, 7 quiet", 1.000, 179.8, Fleet { latencies: &[0; 8], quiet: 7, ..HOT }),
    row("4 busy, 4 quiet", 1.000, 164.9, Fleet { latencies: &[0; 8], quiet: 4, ..HOT }),
    row("3 busy, 1 quiet", 1.000, 93.3, Fleet { quiet: 1, ..HOT }),
    row("turns of 50 ms", 0.999, 69.2, Fleet { turns: 50, ..HOT }),
    row("turns of 200 ms", 1.000, 86.5, Fleet { turns: 200, ..HOT }),
    row("turns of 500 ms", 1.000, 89.8, Fleet { turns: 500, ..HOT }),
    row("turns of 2 s", 0.989, 90.5, Fleet { turns: 2_000, ..HOT }),
    row("far", 0.600, 16.7, FAR),
    row("far, burst 1,000", 1.000, 10.0, Fleet { burst: 1_000, ..FAR }),
    row("far, cost 10", 0.600, 1.7, Fleet { cost: 10, rate: 20_000, burst: 2_000, ..FAR }),
    row("far, 1 caller a node", 0.210, 47.6, Fleet { callers: 1, ..FAR }),
    row("far, 16 nodes", 0.615, 16.3, Fleet { latencies: &[100; 16], rate: 8_000, burst: 800, ..FAR }),
    row("far, 16 nodes, 1,000/s", 1.000, 34.4, Fleet { latencies: &[100; 16], rate: 1_000, burst: 100, ..FAR }),
    row("far, 16 nodes, 1,000/s, jitter", 0.999, 30.8, Fleet { latencies: &[100; 16], rate: 1_000, burst: 100, jitter: 150, ..FAR }),
    row("far, burst 1", 0.500, 20.0, Fleet { burst: 1, ..FAR }),
    row("far, 1 busy, 7 quiet", 0.539, 18.3, Fleet { latencies: &[100; 8], callers: 400, quiet: 7, ..FAR }),
    row("far, 3 busy, 1 quiet", 0.577, 14.5, Fleet { quiet: 1, callers: 133, ..FAR }),
    row("far, turns of 500 ms", 0.583, 12.9, Fleet { turns: 500, ..FAR }),
    row("far, turns of 2 s", 0.335, 17.9, Fleet { turns: 2_000, ..FAR }),
    row("far, hiccups to 100 ms", 0.600, 16.7, Fleet { hiccups: 100, ..FAR }),
    row("far, work 150 ms", 0.555, 18.0, Fleet { work: 150, ..FAR }),
    row("far, work 250 ms", 0.437, 22.9, Fleet { work: 250, ..FAR }),
    row("far, work 600 ms", 0.268, 37.4, Fleet { work: 600, ..FAR }),
    row("one far node", 1.000, 32.6, Fleet { latencies: &[0, 0, 0, 100], ..FAR }),
    row("one far node, hot", 0.998, 91.8, Fleet { latencies: &[1, 1, 1, 100], ..HOT }),
    row("hot, 1 of 4 works", 1.000, 90.7, Fleet { work: 30, late: 1, ..HOT }),
];

/// With `TOLLGATE_FLEETS=all`, prints the table, and judges each row.
#[tokio::test(start_paused = true)]
async fn every_fleet_keeps_its_rate_and_needs_no_more_requests() {
    let all = std::env::var("TOLLGATE_FLEETS").is_ok();
    println!("{:30} {:>5} {:>6} {:>8} {:>5} {:>5} {:>6}", "fleet", "rate", "trips", "fairness", "p50", "p99", "quiet");
    let mut wrong = Vec::new();
    for row in FLEETS.iter().filter(|row| all || JUDGED.contains(&row.name)) {
        let figures = row.fleet.run().await;
        let Figures { rate, trips, fairness, wait, wait_99, quiet, excess } = figures;
        println!("{:30} {rate:>5.3} {trips:>6.1} {fairness:>8.2} {wait:>5.0} {wait_99:>5.0} {quiet:>6.0}", row.name);
        if rate < row.rate - 0.0005 || trips > row.trips + 0.1 || excess > 1e-6 {
            wrong.push(format!("{} {figures:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The others have the whole rate after the time that docs/distributed.md states. Their answers may get lost, too.
#[tokio::test(start_paused = true)]
async fn the_others_have_the_rate_of_a_node_that_crashes() {
    // Their promises last for longer than the quarter of a second in which stores counted them.
    let deep = Fleet { callers: 800, ..FAR };
    for (fleet, bound) in [(HOT, 125), (deep, 1_400)] {
        let store = MemoryStore::new();
        store.set_latency(millis(fleet.latencies[0]));
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
        let store = MemoryStore::new();
        store.set_latency(Duration::from_micros(500));
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
    let store = MemoryStore::new();
    store.set_latency(Duration::from_micros(500));
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

/// With latencies that vary, lost answers, and claims that are given up.
#[tokio::test(start_paused = true)]
async fn random_fleets_keep_the_law() {
    const LATENCIES: [&[u64]; 6] = [&[0; 2], &[0; 4], &[1, 1, 20], &[100; 3], &[0, 0, 100], &[250; 2]];
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut one_of = |choices: &[u64]| choices[random.usize(..choices.len())];
        let (burst, cost) = (one_of(&[2, 20, 100, 400]), one_of(&[1, 1, 1, 7]));
        let fleet = Fleet {
            rate: one_of(&[50, 500, 2_000]),
            burst,
            latencies: LATENCIES[one_of(&[0, 1, 2, 3, 4, 5]) as usize],
            callers: one_of(&[1, 3, 8, 50]),
            cost: cost.min(burst / 2),
            large: one_of(&[0, 0, 1, 5]).min(burst / 2),
            work: one_of(&[0, 0, 2, 15, 100]),
            late: 0,
            turns: one_of(&[0, 0, 100, 1_500]),
            quiet: one_of(&[0, 1]) as usize,
            hiccups: one_of(&[0, 40]),
            jitter: one_of(&[0, 5, 80]),
            losses: one_of(&[0, 10, 100]) as u32,
            hasty: one_of(&[0, 3, 20]) as u32,
        };
        let figures = fleet.run().await;
        assert!(figures.excess <= 1e-6 && figures.rate > 0.0, "{seed}: {fleet:?} {figures:?}");
    }
}

/// Claims of several costs that always wait: a part of a claim that was promised is kept until the rest comes.
#[tokio::test(start_paused = true)]
async fn a_fleet_whose_callers_always_wait_loses_no_token() {
    let mut wrong = Vec::new();
    for burst in [20, 200] {
        let fleet = Fleet { burst, large: 7, callers: 400, ..FAR };
        let figures = fleet.run().await;
        if figures.rate < 0.999 || figures.excess > 1e-6 {
            wrong.push((fleet, figures));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
        let began = Instant::now();
        drop(limiter(&store, quota).consume(1).await.unwrap());
        assert!(began.elapsed() <= millis(126), "{:?}", began.elapsed());
    }
}

/// Many nodes whose callers never wait, and ask for half of the rate.
#[tokio::test(start_paused = true)]
async fn nodes_that_only_try_are_rarely_refused() {
    let store = MemoryStore::new();
    store.set_latency(Duration::from_micros(500));
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
