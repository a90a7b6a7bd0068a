//! Tollgate, its peers and the floors: throughput, lateness and fairness, in one run.
//!
//! All contenders of a table take turns, round by round, in one process, so that a noisy machine is noisy for all of
//! them. Those that wait have a process each, round by round. Compare the ratios; absolute times depend on the machine.

mod awaited;
mod cancel;
mod child;
mod fair;
mod hogs;
mod hot;
mod idle;
mod job;
mod memory;
mod peers;
mod plot;
mod publish;
mod results;
mod rounds;
mod table;
mod targets;
mod waiting;

use clap::{Parser, ValueEnum};
use peers::Peer;
use results::Results;
use rounds::Extent;
use std::path::PathBuf;
use std::time::Duration;

pub type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Hot,
    Denied,
    Capped,
    Awaited,
    Waiting,
    Fair,
    Cancel,
    Idle,
    Memory,
    Hogs,
    All,
}

/// Measure tollgate, its peers and the floors in one run, and report which targets are met
#[derive(Parser)]
struct Options {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    what: Vec<What>,
    /// Rounds of a hot loop, in which the contenders take turns; the median counts
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Rounds of child processes, for the cases that wait; the median counts. Peers that burn a core take part in the
    /// first round only
    #[arg(long, default_value_t = 5)]
    child_rounds: usize,
    /// Operations in each round of a hot loop
    #[arg(long, default_value_t = 50_000)]
    operations: u64,
    /// Seconds that each waiting case is measured
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only waiting cases with this in their title
    #[arg(long)]
    only: Option<String>,
    /// Leave out all peers that wait, except tokio's Semaphore
    #[arg(long)]
    no_peers: bool,
    /// Write the numbers to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measure nothing: read these files, pool them and print
    #[arg(long, num_args = 1..)]
    read: Vec<PathBuf>,
    /// Rewrite the tables between markers in README.md and docs/, and the plots, in this directory
    #[arg(long)]
    publish: Option<PathBuf>,
    /// A case to run in this process, as JSON
    #[arg(long, hide = true)]
    child: Option<String>,
}

/// How the waiting cases are run.
pub struct Plan {
    pub child_rounds: usize,
    pub seconds: f64,
    only: Option<String>,
    no_peers: bool,
}

impl Plan {
    pub fn wants(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|part| case.contains(part.as_str()))
    }

    pub fn invites(&self, peer: Peer, round: usize) -> bool {
        matches!(peer, Peer::Tollgate | Peer::Semaphore) || (round == 0 && !self.no_peers)
    }

    /// The timeout of a child process, after which it counts as hung.
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds * 2.0 + 15.0)
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    if let Some(job) = &options.child {
        return child::work(job);
    }
    let results = if options.read.is_empty() { measure(&options)? } else { Results::read(&options.read)? };
    for case in results.cases("") {
        println!("\n{case}\n\n{}", table::of_case(&results, case));
    }
    println!("\n{}", targets::table(&targets::judge(&results)));
    if let Some(path) = &options.json {
        results.write(path)?;
    }
    if let Some(directory) = &options.publish {
        publish::publish(&results, directory)?;
    }
    Ok(())
}

fn measure(options: &Options) -> Result<Results, Failure> {
    let mut results = Results::here();
    let wants = |what| options.what.contains(&what) || options.what.contains(&What::All);
    let extent = Extent { rounds: options.rounds, operations: options.operations };
    for count in [1, 2] {
        if wants(What::Hot) {
            hot::run_granted(&mut results, count, extent);
        }
        if wants(What::Denied) {
            hot::run_denied(&mut results, count, extent);
        }
        if wants(What::Capped) {
            hot::run_capped(&mut results, count, extent);
        }
        if wants(What::Awaited) {
            awaited::run(&mut results, count, extent);
        }
    }
    if wants(What::Memory) {
        memory::run(&mut results);
    }
    let plan = Plan {
        child_rounds: options.child_rounds,
        seconds: options.seconds,
        only: options.only.clone(),
        no_peers: options.no_peers,
    };
    type Run = fn(&mut Results, &Plan) -> Result<(), Failure>;
    let runs: [(What, Run); 5] = [
        (What::Waiting, waiting::run),
        (What::Fair, fair::run),
        (What::Cancel, cancel::run),
        (What::Idle, idle::run),
        (What::Hogs, hogs::run),
    ];
    for (_, run) in runs.into_iter().filter(|(what, _)| wants(*what)) {
        run(&mut results, &plan)?;
    }
    Ok(results)
}
