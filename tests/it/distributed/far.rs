//! Figures of fleets in simulated time: the rate that is reached, the waits, and the round trips per token.

use super::distant::Distant;
use super::law::Ledger;
use super::nodes::{consume_for, limiter, millis};
use super::way::{Cut, Way};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tollgate::distributed::{MemoryStore, Outage};
use tollgate::{Limiter, Quota};

/// A fleet whose callers claim one token after the other.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    rate: u64,
    burst: u64,
    /// The latency between each node and the store, one way.
    latencies: &'static [u64],
    callers: u64,
    /// What a caller does after each grant: it works for this time, less or more by up to a half.
    work: Duration,
    cost: u64,
}

/// What a fleet did between `WARM` and `END`.
#[derive(Debug)]
#[allow(dead_code, reason = "printed")]
struct Figures {
    achieved: f64,
    /// Requests per 1,000 tokens.
    trips: f64,
    /// The fewest tokens of a node by the most.
    fairness: f64,
    /// The median wait of callers that had to wait, in milliseconds.
    wait: f64,
    /// Tokens above the law, the time of an answer allowed.
    excess: f64,
}

const WARM: Duration = millis(2_000);
const END: Duration = millis(8_000);

impl Fleet {
    async fn run(self) -> Figures {
        let store = MemoryStore::new();
        let quota = Quota::per_second(self.rate).burst(self.burst);
        let (began, ledger) = (Instant::now(), Ledger::default());
        let waits = Arc::new(Mutex::new(Vec::new()));
        let mut nodes = Vec::new();
        for (index, latency) in self.latencies.iter().enumerate() {
            let node = limiter(&Distant::new(&store, millis(*latency)), quota);
            let callers = (0..self.callers).map(|caller| {
                let seed = (index as u64) << 32 | caller;
                tokio::spawn(self.call(seed, began, node.clone(), ledger.clone(), waits.clone()))
            });
            nodes.push(callers.collect::<Vec<_>>());
        }
        sleep_until(began + WARM).await;
        let asks = store.asks();
        sleep_until(began + END).await;
        let asks = store.asks() - asks;
        let mut tokens = Vec::new();
        for callers in nodes {
            let mut sum = 0;
            for caller in callers {
                sum += caller.await.unwrap();
            }
            tokens.push(sum);
        }
        let sum: u64 = tokens.iter().sum();
        let mut waits = waits.lock().unwrap();
        waits.sort();
        let late = self.latencies.iter().max().unwrap() + 1;
        Figures {
            achieved: sum as f64 / self.rate as f64 / (END - WARM).as_secs_f64(),
            trips: asks as f64 * 1_000.0 / sum as f64,
            fairness: *tokens.iter().min().unwrap() as f64 / *tokens.iter().max().unwrap() as f64,
            wait: waits.get(waits.len() / 2).map_or(0.0, |wait: &Duration| wait.as_secs_f64() * 1e3),
            excess: ledger.excess(self.rate, self.burst) - (late * self.rate) as f64 / 1e3,
        }
    }

    /// One caller. Returns the tokens that it was granted after `WARM`.
    async fn call(
        self,
        seed: u64,
        began: Instant,
        node: Limiter,
        ledger: Ledger,
        waits: Arc<Mutex<Vec<Duration>>>,
    ) -> u64 {
        let (mut random, mut tokens) = (fastrand::Rng::with_seed(seed), 0);
        loop {
            if !self.work.is_zero() {
                sleep(self.work.mul_f64(0.5 + random.f64())).await;
            }
            let asked = Instant::now();
            if timeout_at(began + END, node.consume(self.cost)).await.is_err() {
                return tokens;
            }
            ledger.note(self.cost);
            if began.elapsed() >= WARM {
                tokens += self.cost;
                // A caller that finds tokens at hand does not wait.
                if asked.elapsed() > Duration::ZERO {
                    waits.lock().unwrap().push(asked.elapsed());
                }
            }
            if began.elapsed() >= END {
                return tokens;
            }
        }
    }
}

/// 100 ms to the store and 100 ms back.
const FAR: Fleet = Fleet { rate: 2_000, burst: 200, latencies: &[100; 4], callers: 100, work: Duration::ZERO, cost: 1 };
/// One hot quota near the store.
const HOT: Fleet = Fleet { rate: 1_000, burst: 100, latencies: &[0; 4], callers: 8, work: Duration::ZERO, cost: 1 };

#[tokio::test(start_paused = true)]
async fn a_fleet_far_from_its_store_reaches_the_rate_and_its_callers_wait_for_one_round_trip() {
    for fleet in [FAR, Fleet { burst: 1_000, ..FAR }, Fleet { cost: 10, rate: 20_000, burst: 2_000, ..FAR }] {
        let figures = fleet.run().await;
        assert!(figures.achieved >= 0.95 && figures.fairness >= 0.9, "{fleet:?} {figures:?}");
        assert!(figures.wait <= 240.0 && figures.excess <= 0.0, "{fleet:?} {figures:?}");
    }
}

/// The tokens that callers claim while a request is under way are part of that request.
#[tokio::test(start_paused = true)]
async fn callers_far_from_a_store_that_has_tokens_wait_for_one_round_trip_at_most() {
    for work in [150, 250, 600] {
        let figures = Fleet { work: millis(work), ..FAR }.run().await;
        assert!(figures.wait <= 205.0 && figures.excess <= 0.0, "{work} ms: {figures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hot_quota_takes_twenty_requests_per_thousand_tokens_at_most() {
    for latencies in [&[0; 4], &[1; 4], &[10; 4]] {
        let figures = Fleet { latencies, ..HOT }.run().await;
        assert!(figures.trips <= 20.0 && figures.achieved >= 0.99, "{latencies:?} {figures:?}");
        assert!(figures.fairness >= 0.9 && figures.excess <= 0.0, "{latencies:?} {figures:?}");
    }
}

/// Tokens of a share come faster than these callers take them, so tokens asked for ahead are lost, until the nodes have
/// learnt how many are not.
#[tokio::test(start_paused = true)]
async fn tokens_for_callers_that_do_not_come_cost_little_of_the_rate() {
    for (work, least) in [(2, 0.99), (20, 0.99), (28, 0.985)] {
        let figures = Fleet { work: millis(work), ..HOT }.run().await;
        assert!(figures.achieved >= least && figures.fairness >= 0.9, "{work} ms: {figures:?}");
        assert!(figures.excess <= 0.0, "{work} ms: {figures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_far_node_among_near_ones_has_its_part() {
    for fleet in [Fleet { latencies: &[0, 0, 0, 100], ..FAR }, Fleet { latencies: &[1, 1, 1, 100], ..HOT }] {
        let figures = fleet.run().await;
        assert!(figures.achieved >= 0.98 && figures.fairness >= 0.65, "{fleet:?} {figures:?}");
        assert!(figures.excess <= 0.0, "{fleet:?} {figures:?}");
    }
}

/// The others have the whole rate after the time that docs/distributed.md states. Their answers may get lost, too.
#[tokio::test(start_paused = true)]
async fn the_others_have_the_rate_of_a_node_that_crashes() {
    for (fleet, bound) in [(HOT, 313), (FAR, 850)] {
        let store = MemoryStore::new();
        store.set_latency(millis(fleet.latencies[0]));
        let quota = Quota::per_second(fleet.rate).burst(fleet.burst);
        let (ledger, time) = (Ledger::default(), millis(10_000));
        let mut nodes = Vec::new();
        for _ in fleet.latencies {
            let way = Way::to(&store, Outage::Wait);
            let node = limiter(&way, quota);
            let call = || tokio::spawn(consume_for(node.clone(), 1, time, ledger.clone()));
            nodes.push((way, (0..2 * fleet.callers).map(|_| call()).collect::<Vec<_>>()));
        }
        sleep(millis(2_000)).await;
        store.lose_answers(2);
        sleep(millis(2_000)).await;
        let (way, callers) = nodes.pop().unwrap();
        way.cut(Cut::Silent);
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
