//! Tollgate, its peers and the floors: throughput, lateness and fairness, in one run.
//!
//! All contenders of a case take turns, round by round, in one process, so that a noisy machine is noisy for all of
//! them. Those that wait have a process each, round by round. Each measured number is a line: case, contender, measure
//! and number, separated by tabs. `scripts/bench` makes the tables of docs/BENCHMARKS.md from them.

mod awaited;
mod cancel;
mod fair;
mod hogs;
mod hot;
mod idle;
mod job;
mod keyed;
mod memory;
mod peers;
mod respond;
mod rounds;
mod waiting;

use clap::{Parser, ValueEnum};
use job::{Job, Plan};
use rounds::Extent;

pub type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Hot,
    Denied,
    Capped,
    Awaited,
    Memory,
    Waiting,
    Fair,
    Cancel,
    Idle,
    Hogs,
    Keyed,
    Respond,
}

/// Measure tollgate, its peers and the floors in one run
#[derive(Parser)]
struct Options {
    /// What to measure
    #[arg(value_enum)]
    what: Vec<What>,
    /// Rounds of a hot loop, in which the contenders take turns
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Rounds of child processes, for the cases that wait. Peers that burn a core take part in the first round only
    #[arg(long, default_value_t = 5)]
    child_rounds: usize,
    /// Operations in each round of a hot loop
    #[arg(long, default_value_t = 50_000)]
    operations: u64,
    /// Seconds that each waiting case is measured
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A case to run in this process, as JSON
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> Result<(), Failure> {
    let Options { what, rounds, child_rounds, operations, seconds, child } = Options::parse();
    if let Some(job) = &child {
        return work(job);
    }
    let (extent, plan) = (Extent { rounds, operations }, Plan { rounds: child_rounds, seconds });
    // Of longer calls: a short turn is seldom disturbed.
    let fewer = Extent { operations: operations / 5, ..extent };
    for what in what {
        match what {
            What::Hot => [1, 2].into_iter().for_each(|threads| hot::run_granted(threads, extent)),
            What::Denied => [1, 2].into_iter().for_each(|threads| hot::run_denied(threads, extent)),
            What::Capped => [1, 2].into_iter().for_each(|threads| hot::run_capped(threads, extent)),
            What::Awaited => [1, 2].into_iter().for_each(|tasks| awaited::run(tasks, extent)),
            What::Memory => memory::run(),
            What::Waiting => waiting::run(&plan)?,
            What::Fair => fair::run(&plan)?,
            What::Cancel => cancel::run(&plan)?,
            What::Idle => idle::run(&plan)?,
            What::Hogs => hogs::run(&plan)?,
            What::Keyed => keyed::run(fewer, &plan),
            What::Respond => respond::run(fewer),
        }
    }
    Ok(())
}

/// In the child: prints measures and numbers, and exits at once without waiting for the tasks that still wait.
fn work(job: &str) -> Result<(), Failure> {
    let outcome = match serde_json::from_str(job)? {
        Job::Waiting { peer, tasks, rate, seconds } => waiting::measure(peer, tasks, rate, seconds),
        Job::Order { peer } => waiting::order(peer),
        Job::Fair { peer, seconds } => fair::measure(peer, seconds),
        Job::Alone { peer, seconds } => fair::alone(peer, seconds),
        Job::Cancel { peer } => cancel::measure(peer),
        Job::Idle { peer, seconds } => idle::measure(peer, seconds),
        Job::Hogs { contender, hogs, seconds } => hogs::measure(contender, hogs, seconds),
    };
    for (measure, number) in outcome {
        println!("{measure}\t{number}");
    }
    std::process::exit(0)
}
