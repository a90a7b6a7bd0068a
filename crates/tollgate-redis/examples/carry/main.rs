//! How many requests of nodes a single Redis can answer: the nodes only send requests, as fast as they are answered.
//!
//! ```text
//! cargo run --release -p tollgate-redis --example carry
//! cargo run --release -p tollgate-redis --example carry -- --nodes 100 1000 --seconds 10
//! ```
//!
//! It starts a Redis of its own. The exit code is 2 if it could not run.

#[path = "../fleet/guard.rs"]
mod guard;
mod measure;
#[path = "../fleet/server.rs"]
mod server;

use clap::{Parser, value_parser};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

/// Measure how many requests of nodes a single Redis answers
#[derive(Parser)]
struct Options {
    /// Nodes that send requests at the same time
    #[arg(long, default_values_t = [4, 100, 1_000, 10_000], num_args = 1.., value_parser = value_parser!(u64).range(1..))]
    nodes: Vec<u64>,
    /// Tokens per second, for all nodes together
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    rate: u64,
    /// Seconds for each number of nodes
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Run as the process that starts and ends Redis; used by the program itself
    #[arg(long, hide = true)]
    guard: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.guard { guard::run() } else { carry(&options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("carry: {error}");
            ExitCode::from(2)
        }
    }
}

fn carry(options: &Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!(
        "{:>6} {:>10} {:>18} {:>17} {:>18}",
        "nodes", "requests/s", "script, us/req.", "Redis, us/req.", "requests/s per core"
    );
    for &nodes in &options.nodes {
        let load = runtime.block_on(measure::measure(nodes, options.rate, Duration::from_secs(options.seconds)))?;
        println!(
            "{:>6} {:>10.0} {:>18.1} {:>17.1} {:>18.0}",
            load.nodes,
            load.asks_per_second,
            load.script_micros,
            load.redis_micros,
            1e6 / load.redis_micros
        );
    }
    Ok(())
}
