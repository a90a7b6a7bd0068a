//! 1,000 limiters that had a waiter once: their cost when no claim waits any more.

use crate::Failure;
use crate::job::{Job, Outcome, Plan};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::waiting::two_workers;
use cpu_time::ProcessTime;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const CASE: &str = "idle, 1,000 limiters that were waited for once";
const NOTHING: &str = "floor: a runtime and no limiter";
const LIMITERS: usize = 1_000;

pub fn run(plan: &Plan) -> Result<(), Failure> {
    for _ in 0..plan.rounds {
        plan.run_in_child(CASE, NOTHING, &Job::Idle { peer: None, seconds: plan.seconds })?;
    }
    plan.run(CASE, |peer| Job::Idle { peer: Some(peer), seconds: plan.seconds })
}

struct WaitOnce<'a>(&'a Runtime);

impl Scenario for WaitOnce<'_> {
    type Outcome = Box<dyn std::any::Any>;

    fn run<W: Waits>(self, limiter: W) -> Self::Outcome {
        self.0
            .block_on(self.0.spawn({
                let limiter = limiter.clone();
                async move { limiter.acquire(1).await }
            }))
            .expect("no panics");
        Box::new(limiter)
    }
}

pub fn measure(peer: Option<Peer>, seconds: f64) -> Outcome {
    let runtime = two_workers();
    let _inside = runtime.enter();
    let count = if peer.is_some() { LIMITERS } else { 0 };
    let _limiters: Vec<_> = (0..count).filter_map(|_| Some(present(peer?, 1_000, 10, WaitOnce(&runtime)))).collect();
    std::thread::sleep(Duration::from_millis(200));
    let metrics = runtime.metrics();
    let parks = || (0..metrics.num_workers()).map(|worker| metrics.worker_park_count(worker)).sum::<u64>();
    let (start, cpu, before, switches) = (Instant::now(), ProcessTime::now(), parks(), worker_switches());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let took = start.elapsed().as_secs_f64();
    vec![
        ("cores", cpu.elapsed().as_secs_f64() / took),
        ("worker wake-ups/s", (parks() - before) as f64 / took),
        ("voluntary context switches/s", (worker_switches() - switches) as f64 / took),
    ]
}

/// The voluntary context switches of all threads except this one.
fn worker_switches() -> u64 {
    let own = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let others = tasks.filter(|task| *task.file_name() != *own.as_str());
    let status = others.map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default());
    status
        .filter_map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}
