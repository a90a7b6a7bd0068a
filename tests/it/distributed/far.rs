//! Figures of fleets in simulated time: the rate that is reached, requests to the store, and waits.

use super::fleet::{FAR, Figures, Fleet, HOT};
use super::fleets::FLEETS;
use super::law::Ledger;
use super::link::{Cut, Link};
use super::nodes::{consume_for, limiter, millis};
use tokio::time::{Instant, sleep};
use tollgate::Quota;
use tollgate::distributed::{MemoryStore, Outage};

/// Rows of docs/BENCHMARKS.md that each run judges.
const JUDGED: &[&str] = &[
    "hot, 20 ms",
    "turns of 50 ms",
    "far, 1 caller a node",
    "far, hiccups to 100 ms",
    "far, work 250 ms",
    "prefetch, 200 ms",
];

/// With `TOLLGATE_FLEETS=all`, prints the table of docs/BENCHMARKS.md, and judges each row.
#[tokio::test(start_paused = true)]
async fn every_fleet_keeps_its_rate_and_needs_no_more_requests() {
    let all = std::env::var("TOLLGATE_FLEETS").is_ok();
    println!("{:30} {:>5} {:>6} {:>8} {:>5} {:>5} {:>6}", "fleet", "rate", "trips", "fairness", "p50", "p99", "quiet");
    let mut wrong = Vec::new();
    for row in FLEETS.iter().filter(|row| all || JUDGED.contains(&row.name)) {
        let figures = row.fleet.run().await;
        let Figures { rate, trips, fairness, wait, wait_99, quiet, excess } = figures;
        println!("{:30} {rate:>5.3} {trips:>6.1} {fairness:>8.2} {wait:>5.0} {wait_99:>5.0} {quiet:>6.0}", row.name);
        // A node that asks for callers to come may lose one token in 64, and some once. Other nodes do what they did.
        let foresees = row.fleet.prefetch > 0 || row.fleet.latencies.iter().any(|latency| *latency > 25);
        // Among near nodes, a node that is far away asks a little more often.
        let (lost, more) = if foresees { (0.018, row.trips / 100.0) } else { (0.0005, 0.0) };
        if rate < row.rate - lost || trips > row.trips + more + 0.1 || excess > 1e-6 {
            wrong.push(format!("{} {figures:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_far_from_its_store_reaches_the_rate_and_its_callers_wait_for_one_round_trip() {
    let large = Fleet { latencies: &[100; 16], rate: 8_000, burst: 800, ..FAR };
    for fleet in [FAR, Fleet { cost: 10, rate: 20_000, burst: 2_000, ..FAR }, large] {
        let figures = fleet.run().await;
        assert!(figures.rate >= 0.95 && figures.fairness >= 0.9, "{fleet:?} {figures:?}");
        assert!(figures.wait <= 240.0 && figures.excess <= 0.0, "{fleet:?} {figures:?}");
    }
}

/// The others have the whole rate after the time that docs/distributed.md states. Their answers may get lost, too.
#[tokio::test(start_paused = true)]
async fn the_others_have_the_rate_of_a_node_that_crashes() {
    // Their promises last for longer than the quarter of a second in which stores counted them.
    let deep = Fleet { callers: 800, ..FAR };
    let ahead = Fleet { prefetch: 200, ..HOT };
    for (fleet, bound) in [(HOT, 125), (FAR, 1_400), (deep, 1_400), (ahead, 250)] {
        let store = MemoryStore::new().prefetch(millis(fleet.prefetch));
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

/// With latencies that vary, lost answers, and claims that are given up.
#[tokio::test(start_paused = true)]
async fn random_fleets_that_ask_ahead_keep_the_law() {
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
            prefetch: one_of(&[0, 0, 50, 300]),
        };
        let figures = fleet.run().await;
        assert!(figures.excess <= 1e-6 && figures.rate > 0.0, "{seed}: {fleet:?} {figures:?}");
    }
}

/// With a burst of 1 a node keeps nothing, so what was granted and not claimed was asked for on behalf of callers to come.
#[tokio::test(start_paused = true)]
async fn callers_that_stop_cost_no_more_than_they_have_paid_for() {
    let store = MemoryStore::new();
    store.set_latency(millis(100));
    let node = limiter(&store, Quota::per_second(1_000).burst(1));
    // The tokens of 1.25 round trips.
    let size = 250;
    let (mut random, mut claimed, mut lost) = (fastrand::Rng::with_seed(1), 0, 0);
    for _ in 0..40 {
        let until = Instant::now() + millis(random.u64(200..5_000));
        let callers: Vec<_> = (0..random.u64(1..300))
            .map(|_| {
                let node = node.clone();
                tokio::spawn(async move {
                    let mut claimed = 0;
                    while Instant::now() < until {
                        drop(node.consume(1).await.unwrap());
                        claimed += 1;
                    }
                    claimed
                })
            })
            .collect();
        for caller in callers {
            claimed += caller.await.unwrap();
        }
        lost = store.snapshot().granted - claimed;
        assert!(lost <= claimed / 64 + size * 3 / 4, "{lost} of {claimed}");
        sleep(millis(random.u64(..1_500))).await;
    }
    assert!(lost > 200, "{lost}: the node asks for callers to come");
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
