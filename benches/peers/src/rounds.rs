//! Contenders in turn, round by round, so that a noisy machine is noisy for all of them.

use crate::results::Results;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Something to measure: does the work so many times.
pub struct Contender {
    pub name: &'static str,
    pub work: Box<dyn Fn(u64) + Sync>,
}

impl Contender {
    pub fn new(name: &'static str, work: impl Fn(u64) + Sync + 'static) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// How much of everything.
#[derive(Clone, Copy)]
pub struct Extent {
    pub rounds: usize,
    pub operations: u64,
}

/// Everybody once per round, in turn: nanoseconds per operation.
pub fn measure(results: &mut Results, case: &str, contenders: &[Contender], threads: usize, extent: Extent) {
    for _ in 0..extent.rounds {
        for contender in contenders {
            let took = on_threads(threads, || (contender.work)(extent.operations));
            results.add(case, contender.name, "ns", took.as_nanos() as f64 / extent.operations as f64);
        }
    }
}

/// How long it takes until `threads` threads have all done `work`, from a common start.
fn on_threads(threads: usize, work: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let run = |number| {
        stay_on_core(number);
        barrier.wait();
        let start = Instant::now();
        work();
        start.elapsed()
    };
    thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        all.into_iter().map(|one| one.join().expect("a contender panicked")).fold(Duration::ZERO, Duration::max)
    })
}

/// Two threads on one core do not contend, and would look fast.
pub fn stay_on_core(number: usize) {
    if let Some(cores) = core_affinity::get_core_ids().filter(|cores| !cores.is_empty()) {
        core_affinity::set_for_current(cores[number % cores.len()]);
    }
}
