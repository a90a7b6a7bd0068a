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
mod process;
mod promise;
mod report;
mod server;
mod show;
mod work;

use clap::Parser;
use node::{Connected, connections};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tollgate_redis::RedisStore;
use work::Work;

type Failure = Box<dyn Error + Send + Sync>;

/// Let several processes share one quota through a Redis of their own, and check what they got
#[derive(Clone, Parser)]
struct Options {
    #[command(flatten)]
    work: Work,
    /// End one node by `kill -9` half-way
    #[arg(long)]
    kill: bool,
    /// The file for the picture
    #[arg(long, default_value = "target/fleet.svg", value_name = "FILE")]
    plot: PathBuf,
    /// Run as the guard that starts and ends Redis; used by the program itself
    #[arg(long, hide = true)]
    guard: bool,
}

async fn connect(url: &str) -> Result<Connected, Failure> {
    let store = RedisStore::connect(url, "fleet").await?;
    Ok(Connected { store: Arc::new(store.clone()), connections: Box::new(move || connections(&store)) })
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.work.node {
        Some(url) => node::run(&options.work, connect(url)).map(|()| ExitCode::SUCCESS),
        None if options.guard => guard::run().map(|()| ExitCode::SUCCESS),
        None => parent::run(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("fleet: {error}");
        ExitCode::from(2)
    })
}
