//! One task with large claims among tasks with small ones, and one task alone.

use crate::Failure;
use crate::job::{Job, Outcome, Plan};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::waiting::two_workers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub fn run(plan: &Plan) -> Result<(), Failure> {
    let seconds = plan.seconds;
    plan.run("fair, one asker of 500 among 99 of 1, 50000 tokens/s", |peer| Job::Fair { peer, seconds })?;
    plan.run("alone, one waiter, burst 1, 1000 tokens/s", |peer| Job::Alone { peer, seconds })
}

struct Askers<'a> {
    runtime: &'a Runtime,
    costs: Vec<u32>,
    seconds: f64,
}

impl Scenario for Askers<'_> {
    /// The tokens of each task, and the seconds they took.
    type Outcome = (Vec<f64>, f64);

    fn run<W: Waits>(self, limiter: W) -> Self::Outcome {
        let mut tokens = Vec::new();
        for cost in self.costs {
            let (limiter, count) = (limiter.clone(), Arc::new(AtomicU64::new(0)));
            tokens.push(count.clone());
            self.runtime.spawn(async move {
                loop {
                    limiter.acquire(cost).await;
                    count.fetch_add(cost.into(), Relaxed);
                }
            });
        }
        let read = || tokens.iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>();
        std::thread::sleep(Duration::from_millis(300));
        let (start, before) = (Instant::now(), read());
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let got = read().into_iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
        (got, start.elapsed().as_secs_f64())
    }
}

pub fn measure(peer: Peer, seconds: f64) -> Outcome {
    let runtime = two_workers();
    let _inside = runtime.enter();
    let costs = std::iter::once(500).chain([1; 99]).collect();
    let (got, took) = present(peer, 50_000, 500, Askers { runtime: &runtime, costs, seconds });
    let all: f64 = got.iter().sum();
    let small = &got[1..];
    vec![
        ("achieved / configured", all / (50_000.0 * took)),
        // In strict order each round of the queue is one claim of 500 and 99 of 1.
        ("share of the large / fair share", got[0] / all / (500.0 / 599.0)),
        (
            "small: least / mean",
            small.iter().copied().fold(f64::MAX, f64::min) * 99.0 / small.iter().sum::<f64>().max(1.0),
        ),
    ]
}

pub fn alone(peer: Peer, seconds: f64) -> Outcome {
    let runtime = two_workers();
    let _inside = runtime.enter();
    let (got, took) = present(peer, 1_000, 1, Askers { runtime: &runtime, costs: vec![1], seconds });
    vec![("achieved / configured", got[0] / (1_000.0 * took))]
}
