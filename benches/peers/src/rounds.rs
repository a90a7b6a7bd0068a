//! Contenders take turns, round by round, so that a noisy machine is noisy for all of them.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

/// A measured contender: does the work this many times.
pub struct Contender {
    pub name: &'static str,
    pub work: Box<dyn Fn(u64) + Sync>,
}

impl Contender {
    pub fn new(name: &'static str, work: impl Fn(u64) + Sync + 'static) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// Prints a measured number.
pub fn print(case: &str, name: &str, measure: &str, number: f64) {
    println!("{case}\t{name}\t{measure}\t{number}");
}

/// Without numbers: not a number.
pub fn quantile(mut numbers: Vec<f64>, share: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().saturating_sub(1);
    numbers.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The numbers of rounds and operations.
#[derive(Clone, Copy)]
pub struct Extent {
    pub rounds: usize,
    pub operations: u64,
}

/// Runs each contender once per round, in turn, and prints nanoseconds per operation.
pub fn measure(case: &str, contenders: &[Contender], threads: usize, extent: Extent) {
    for _ in 0..extent.rounds {
        for contender in contenders {
            let took = undisturbed(|| on_threads(threads, || (contender.work)(extent.operations)));
            print(case, contender.name, "ns", took.as_nanos() as f64 / extent.operations as f64);
        }
    }
}

/// What happened to a thread during its turn.
#[derive(Clone, Copy, Default)]
pub struct Turn {
    pub took: Duration,
    /// How often the system preempted the thread: the other threads then ran without contention and looked too fast.
    pub preempted: u64,
}

impl Turn {
    pub fn of(work: impl FnOnce()) -> Self {
        let before = preemptions();
        let start = Instant::now();
        work();
        let took = start.elapsed();
        Self { took, preempted: preemptions() - before }
    }

    pub fn and(self, other: Self) -> Self {
        Self { took: self.took.max(other.took), preempted: self.preempted + other.preempted }
    }
}

/// Repeats a disturbed turn a few times, then takes the least disturbed one.
// Short turns are seldom disturbed. A turn of 200,000 contended operations nearly always is, and runs eleven times.
pub fn undisturbed(turn: impl Fn() -> Turn) -> Duration {
    let mut best = turn();
    for _ in 0..10 {
        if best.preempted == 0 {
            break;
        }
        let next = turn();
        if next.preempted < best.preempted {
            best = next;
        }
    }
    best.took
}

/// Of this thread, since it started. Reading it takes some microseconds.
fn preemptions() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Runs `work` on `threads` threads, from a common start.
pub fn on_threads(threads: usize, work: impl Fn() + Sync) -> Turn {
    let start = Start::new(threads);
    let run = |number| {
        stay_on_core(number);
        start.together();
        Turn::of(&work)
    };
    thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        all.into_iter().map(|one| one.join().expect("a contender panicked")).fold(Turn::default(), Turn::and)
    })
}

/// A common start, to the nanosecond: a barrier that sleeps would give the last thread to arrive a head start.
struct Start(AtomicUsize);

impl Start {
    /// For this many threads, each on a core of its own.
    fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    fn together(&self) {
        self.0.fetch_sub(1, AcqRel);
        while self.0.load(Acquire) > 0 {
            spin_loop();
        }
    }
}

/// Two threads on one core do not contend, and would look fast.
fn stay_on_core(number: usize) {
    if let Some(cores) = core_affinity::get_core_ids().filter(|cores| !cores.is_empty()) {
        core_affinity::set_for_current(cores[number % cores.len()]);
    }
}
