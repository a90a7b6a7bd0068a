//! A fleet of nodes whose callers claim without end, in simulated time, and its figures.

use super::distant::{Busy, Distant};
use super::law::Ledger;
use super::nodes::{limiter, millis};
use crate::fixture::*;
use tokio::time::timeout_at;

/// A fleet. All times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    pub rate: u64,
    pub burst: u64,
    /// The latency between each node and the store, one way.
    pub latencies: &'static [u64],
    pub callers: u64,
    pub cost: u64,
    /// The cost of one claim in five, if it is not 0.
    pub large: u64,
    /// The time for which a caller works after each grant, less or more by up to a half.
    pub work: u64,
    /// Callers claim for such a time, and then pause as long. Every second node begins with the pause. 0: no pauses.
    pub turns: u64,
    /// So many of the nodes, the last ones, have a single caller, which claims one token every 130 ms.
    pub quiet: usize,
    /// Now and then all callers of a node stand still for up to this time, as the threads of a process do on a busy machine.
    pub hiccups: u64,
    /// Messages between nodes and the store take up to this time longer, and one answer in `losses` is lost.
    pub jitter: u64,
    pub losses: u32,
    /// The time that the store needs for a request.
    pub service: u64,
    /// From when to when the figures are taken.
    pub span: [u64; 2],
}

/// Four nodes next to a store with one hot quota.
pub const HOT: Fleet = Fleet {
    rate: 1_000,
    burst: 100,
    latencies: &[0; 4],
    callers: 8,
    cost: 1,
    large: 0,
    work: 0,
    turns: 0,
    quiet: 0,
    hiccups: 0,
    jitter: 0,
    losses: 0,
    service: 0,
    span: [8_000, 20_000],
};
/// 100 ms to the store and 100 ms back.
pub const FAR: Fleet = Fleet { rate: 2_000, burst: 200, latencies: &[100; 4], callers: 100, ..HOT };

/// What a fleet did in its span.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Tokens granted, as a part of those that were minted.
    pub rate: f64,
    /// Requests to the store per 1,000 tokens.
    pub trips: f64,
    /// The fewest tokens of a node that is not quiet, as a part of the most.
    pub fairness: f64,
    /// The longest wait of a quiet node.
    pub wait: Duration,
    /// Whole tokens above the law. An answer may be on its way, and a timer late by a millisecond.
    pub excess: f64,
}

struct World {
    fleet: Fleet,
    began: Instant,
    ledger: Ledger,
    busy: Busy,
}

impl Fleet {
    /// Runs the fleet. Time must be paused.
    pub async fn run(self) -> Figures {
        let store = MemoryStore::new();
        let quota = Quota::per_second(self.rate).burst(self.burst);
        let busy = Busy::new(millis(self.service));
        let world = Arc::new(World { fleet: self, began: Instant::now(), ledger: Ledger::default(), busy });
        let loud = self.latencies.len() - self.quiet;
        let mut callers = JoinSet::new();
        for (index, latency) in self.latencies.iter().enumerate() {
            let connection = Distant::new(&store, millis(*latency), index as u64);
            let connection = connection.unreliable(millis(self.jitter), self.losses).served(&world.busy);
            let node = limiter(&connection, quota);
            for caller in 0..if index < loud { self.callers } else { 1 } {
                callers.spawn(Arc::clone(&world).call(index, caller, node.clone(), index >= loud));
            }
        }
        let [warm, end] = self.span.map(|at| world.began + millis(at));
        sleep_until(warm).await;
        let asks = store.asks();
        sleep_until(end).await;
        let asks = store.asks() - asks;
        let (mut got, mut wait) = (vec![0; self.latencies.len()], Duration::ZERO);
        for (node, tokens, longest) in callers.join_all().await {
            got[node] += tokens;
            wait = if node < loud { wait } else { wait.max(longest) };
        }
        let sum: u64 = got.iter().sum();
        let range = got[..loud].iter().min().zip(got[..loud].iter().max()).unwrap();
        let late = self.latencies.iter().max().unwrap() + self.jitter + 1;
        Figures {
            rate: sum as f64 / self.rate as f64 / (end - warm).as_secs_f64(),
            trips: asks as f64 * 1_000.0 / sum as f64,
            fairness: *range.0 as f64 / *range.1 as f64,
            wait,
            excess: (world.ledger.excess(self.rate, self.burst) - (late * self.rate) as f64 / 1e3).max(0.0),
        }
    }
}

impl World {
    /// One caller. Returns its node, and the tokens that it was granted in the span and its longest wait for them.
    async fn call(
        self: Arc<Self>,
        node: usize,
        caller: u64,
        limiter: Limiter,
        is_quiet: bool,
    ) -> (usize, u64, Duration) {
        let Fleet { work, turns, span, .. } = self.fleet;
        let [warm, end] = span.map(|at| self.began + millis(at));
        let (work, turns) = if is_quiet { (130, 0) } else { (work, turns) };
        let mut random = fastrand::Rng::with_seed((node as u64) << 32 | caller);
        let (mut tokens, mut longest) = (0, Duration::ZERO);
        loop {
            if work > 0 {
                sleep(millis(work).mul_f64(0.5 + random.f64())).await;
            }
            sleep_until(self.began + self.resumes(node, turns)).await;
            let asked = Instant::now();
            let is_large = self.fleet.large > 0 && random.u32(..5) == 0;
            let cost = match is_quiet {
                true => 1,
                false if is_large => self.fleet.large,
                false => self.fleet.cost,
            };
            _ = timeout_at(end, limiter.consume(cost)).await;
            if Instant::now() >= end {
                return (node, tokens, longest);
            }
            self.ledger.note(cost);
            if Instant::now() >= warm {
                (tokens, longest) = (tokens + cost, longest.max(asked.elapsed()));
            }
        }
    }

    /// When the callers of a node that are ready now claim again, from the beginning of the run.
    fn resumes(&self, node: usize, turns: u64) -> Duration {
        let now = self.began.elapsed();
        let millis_now = now.as_millis() as u64;
        if turns > 0 && (millis_now / turns + node as u64) % 2 == 1 {
            return millis((millis_now / turns + 1) * turns);
        }
        // Some 4 times a second.
        let slot = millis_now / 250;
        let mut random = fastrand::Rng::with_seed(slot * 64 + node as u64);
        if self.fleet.hiccups > 0 {
            let begins = slot * 250 + random.u64(..200);
            let ends = begins + random.u64(..=self.fleet.hiccups);
            if (begins..ends).contains(&millis_now) {
                return millis(ends);
            }
        }
        now
    }
}
