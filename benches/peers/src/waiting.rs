//! A long queue: tasks that claim again as soon as they are served.

use crate::Failure;
use crate::job::{Job, Outcome, Plan};
use crate::peers::{Peer, Scenario, Waits, present};
use crate::rounds::quantile;
use cpu_time::ProcessTime;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Tasks and tokens per second: each number of tasks at the middle rate, and the middle number at each rate.
const CASES: [(usize, u32); 5] =
    [(100, 100_000), (10_000, 1_000), (10_000, 100_000), (10_000, 1_000_000), (100_000, 100_000)];

pub fn run(plan: &Plan) -> Result<(), Failure> {
    for (tasks, rate) in CASES {
        let job = |peer| Job::Waiting { peer, tasks, rate, seconds: plan.seconds };
        plan.run(&format!("waiting, {tasks} tasks, {rate} tokens/s"), job)?;
    }
    for peer in Peer::ALL {
        plan.run_in_child("order, 1000 tasks, 100000 tokens/s, 1 worker", peer.name(), &Job::Order { peer })?;
    }
    Ok(())
}

pub fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A tenth of a second's worth: a queue that is served late, or empty for a moment, loses no tokens.
fn burst(rate: u32) -> u32 {
    rate / 10
}

/// The records of the tasks.
struct Ledger {
    start: Instant,
    granted: AtomicU64,
    asked: AtomicU64,
    /// The lateness in nanoseconds, of a sample of the grants only, since recording it costs time.
    late: Mutex<Vec<i64>>,
    one_in: u64,
    nanos_per_token: f64,
    /// Whether lateness is recorded yet.
    counts: AtomicI64,
}

impl Ledger {
    /// The k-th grant was due when the k-th token fell due, whichever task gets it.
    fn note(&self) {
        let k = self.granted.fetch_add(1, Relaxed) + 1;
        if k.is_multiple_of(self.one_in) && self.counts.load(Relaxed) != 0 {
            let due = k as f64 * self.nanos_per_token;
            let late = self.start.elapsed().as_nanos() as f64 - due;
            self.late.lock().expect("no panics").push(late as i64);
        }
    }
}

struct Line<'a> {
    runtime: &'a Runtime,
    tasks: usize,
    rate: u32,
    seconds: f64,
}

pub fn measure(peer: Peer, tasks: usize, rate: u32, seconds: f64) -> Outcome {
    let runtime = two_workers();
    let _inside = runtime.enter();
    present(peer, rate, burst(rate), Line { runtime: &runtime, tasks, rate, seconds })
}

impl Scenario for Line<'_> {
    type Outcome = Outcome;

    fn run<W: Waits>(self, limiter: W) -> Outcome {
        let ledger = Arc::new(Ledger {
            start: Instant::now(),
            granted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            late: Mutex::new(Vec::with_capacity(1 << 20)),
            one_in: u64::from(self.rate / 20_000).max(1),
            nanos_per_token: 1e9 / f64::from(self.rate),
            counts: AtomicI64::new(0),
        });
        for _ in 0..self.tasks {
            let (limiter, ledger) = (limiter.clone(), ledger.clone());
            self.runtime.spawn(async move {
                ledger.asked.fetch_add(1, Relaxed);
                loop {
                    limiter.acquire(1).await;
                    ledger.note();
                }
            });
        }
        while ledger.asked.load(Relaxed) < self.tasks as u64 {
            std::thread::sleep(Duration::from_millis(10));
        }
        // All tasks wait now. Let the queue settle.
        std::thread::sleep(Duration::from_millis(300));
        ledger.counts.store(1, Relaxed);
        let (start, cpu, before) = (Instant::now(), ProcessTime::now(), ledger.granted.load(Relaxed));
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let granted = (ledger.granted.load(Relaxed) - before) as f64;
        let (took, cpu) = (start.elapsed(), cpu.elapsed());
        let late: Vec<f64> = ledger.late.lock().expect("no panics").iter().map(|nanos| *nanos as f64 / 1e3).collect();
        vec![
            ("achieved / configured", granted / (f64::from(self.rate) * took.as_secs_f64())),
            ("CPU per grant, us", cpu.as_micros() as f64 / granted),
            ("late p50, ms", quantile(late.clone(), 0.5) / 1e3),
            ("late p99, ms", quantile(late, 0.99) / 1e3),
        ]
    }
}

struct Order<'a> {
    runtime: &'a Runtime,
}

/// Counts the tasks that are served before a task that claimed earlier. On one worker, where the order of the claims is
/// known.
pub fn order(peer: Peer) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    present(peer, 100_000, 1_000, Order { runtime: &runtime })
}

impl Scenario for Order<'_> {
    type Outcome = Outcome;

    fn run<W: Waits>(self, limiter: W) -> Outcome {
        const GRANTS: usize = 50_000;
        let (asked, served) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::with_capacity(GRANTS))));
        for _ in 0..1_000 {
            let (limiter, asked, served) = (limiter.clone(), asked.clone(), served.clone());
            self.runtime.spawn(async move {
                loop {
                    let number = asked.fetch_add(1, Relaxed);
                    limiter.acquire(1).await;
                    served.lock().expect("no panics").push(number);
                }
            });
        }
        self.runtime.block_on(async {
            while served.lock().expect("no panics").len() < GRANTS {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let (served, mut latest) = (served.lock().expect("no panics"), 0);
        let overtaken = served.iter().filter(|number| {
            latest = latest.max(**number);
            **number < latest
        });
        vec![("overtaken, %", overtaken.count() as f64 * 100.0 / served.len() as f64)]
    }
}
