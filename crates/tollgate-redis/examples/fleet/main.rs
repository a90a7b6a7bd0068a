//! One quota, several processes: each has a limiter of its own, and all of them use one store in a Redis that this
//! program starts.
//!
//! ```text
//! cargo run --release -p tollgate-redis --example fleet
//! cargo run --release -p tollgate-redis --example fleet -- --nodes 8 --rate 50000 --seconds 10 --kill
//! ```
//!
//! Every node has more tasks than its share can serve, so the quota is saturated. Each node reports its grants with
//! their instants by the schedule, and this process checks them: a machine that is busy delays the delivery, and excuses
//! no grant. `--kill` ends one node by `kill -9` half-way. The picture, `target/fleet.svg`, shows the tokens of each node
//! over time. The last line printed is machine-readable. The exit code is 1 if more was granted than the quota allows, or
//! if tokens were promised to the killed node for longer than docs/distributed.md says; it is 2 if the program could not
//! run.
//!
//! It needs `redis-server`, starts its own on a free loopback port, and uses no other.

mod clock;
mod guard;
mod judge;
#[path = "../../../../examples/fleet_sim/law.rs"]
mod law;
mod leases;
mod log;
mod node;
mod parent;
mod plot;
mod report;
mod server;
mod show;

use clap::{Parser, value_parser};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

type Failure = Box<dyn Error + Send + Sync>;

/// Let several processes share one quota through a Redis of their own, and check what they got
#[derive(Clone, Parser)]
struct Options {
    /// Processes that share the quota
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(1..=100))]
    nodes: u64,
    /// Tokens per second, for all processes together
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    rate: u64,
    /// Burst in tokens, for all processes together [default: a tenth of a second's worth]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    burst: Option<u64>,
    /// Tasks of each process that claim at the same time [default: a fifth of a second's worth of the rate of each
    /// node]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    tasks: Option<u64>,
    /// Seconds to run
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    seconds: f64,
    /// End one node by `kill -9` half-way
    #[arg(long)]
    kill: bool,
    /// The file for the picture
    #[arg(long, default_value = "target/fleet.svg", value_name = "FILE")]
    plot: PathBuf,
    /// Run as the node that uses the Redis at this address; used by the program itself
    #[arg(long, hide = true, value_name = "URL")]
    node: Option<String>,
    /// Run as the guard that starts and ends Redis; used by the program itself
    #[arg(long, hide = true)]
    guard: bool,
}

impl Options {
    fn burst(&self) -> u64 {
        self.burst.unwrap_or((self.rate / 10).max(1))
    }

    fn tasks(&self) -> u64 {
        self.tasks.unwrap_or((self.rate / 5 / self.nodes).max(4))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.node {
        Some(url) => node::run(&options, url).map(|()| ExitCode::SUCCESS),
        None if options.guard => guard::run().map(|()| ExitCode::SUCCESS),
        None => parent::run(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("fleet: {error}");
        ExitCode::from(2)
    })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.5..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.5 to 3600".into()) }
}
