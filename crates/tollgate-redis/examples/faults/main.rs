//! What faults do to a fleet: real processes that share one quota, real servers, and one fault after the other.
//!
//! ```text
//! cargo run --release -p tollgate-redis --all-features --example faults                    # all of them
//! cargo run --release -p tollgate-redis --all-features --example faults -- redis-killed    # by name
//! cargo run --release -p tollgate-redis --all-features --example faults -- --list
//! scripts/faults                                               # writes the table of docs/distributed.md
//! ```
//!
//! Four processes use the quota up before, during and after each fault. They report their grants with the instants of
//! the schedule, as in the example `fleet`, whose nodes these are. This program then says by how many tokens the law of
//! docs/distributed.md was exceeded, which share of the rate was granted during the fault, how long it took until the
//! whole rate was granted again, and how many connections that cost.
//!
//! The exit code is 1 if an excess is above its bound, and 2 if a fault could not be tried. A fault whose server or
//! program is not installed is skipped, and the output says so.
//!
//! It needs `redis-server`, PostgreSQL and `libfaketime`. It starts servers of its own on free loopback ports, and uses
//! no others.

mod catalog;
#[path = "../fleet/clock.rs"]
mod clock;
mod failover;
#[path = "../../../../examples/fleet_sim/law.rs"]
#[allow(dead_code, reason = "`fleet_keys` uses the rest")]
mod law;
#[path = "../fleet/leases.rs"]
mod leases;
#[path = "../fleet/log.rs"]
#[allow(dead_code, reason = "`fleet` uses the rest")]
mod log;
#[path = "../../tests/it/masters.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod masters;
mod network;
#[path = "../fleet/node.rs"]
mod node;
mod nodes;
mod outcome;
mod postgres;
#[path = "../../../tollgate-postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod postgres_server;
#[path = "../fleet/process.rs"]
mod process;
#[path = "../fleet/promise.rs"]
mod promise;
#[path = "../../tests/it/proxy.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod proxy;
mod redis_server;
#[path = "../fleet/report.rs"]
mod report;
mod rollout;
#[path = "../../tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;
mod stores;
mod table;
mod trial;
#[path = "../fleet/work.rs"]
mod work;

use catalog::{FAULTS, Fault};
use clap::Parser;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use table::Row;
use trial::{Ran, Trial};

type Failure = Box<dyn Error + Send + Sync>;

/// Try faults on a fleet of processes that share one quota
#[derive(Clone, Parser)]
struct Options {
    /// The faults to try [default: all]
    #[arg(value_name = "FAULT", value_parser = Fault::named)]
    faults: Vec<&'static Fault>,
    /// Print the names of all faults
    #[arg(long)]
    list: bool,
    /// Write the table into this file, between the lines `<!-- faults -->` and `<!-- end of faults -->`
    #[arg(long, value_name = "FILE")]
    publish: Option<PathBuf>,
    /// The example `fleet` of an earlier version of this crate, for the fault `upgrade`
    #[arg(long, value_name = "PROGRAM")]
    earlier: Option<PathBuf>,
}

fn main() -> ExitCode {
    // The process of a node has other options.
    let done = match std::env::args().any(|argument| argument == "--node") {
        true => stores::run_node(),
        false => run(&Options::parse()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("faults: {error}");
        ExitCode::from(2)
    })
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let chosen: Vec<&Fault> = if options.faults.is_empty() { FAULTS.iter().collect() } else { options.faults.clone() };
    if options.list {
        chosen.iter().for_each(|fault| println!("{:24} {}", fault.name, fault.what));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Vec::new();
    for fault in chosen {
        let mut trial = Trial::new(options.earlier.clone())?;
        let ran = (fault.run)(&mut trial).map_err(|error| format!("{}: {error}", fault.name))?;
        let outcome = match ran {
            Ran::Yes => Ok(trial.judge()),
            Ran::No(why) => Err(why),
        };
        let row = Row { fault, outcome };
        println!("{}", row.line());
        rows.push(row);
    }
    if let Some(file) = &options.publish {
        table::publish(file, &rows)?;
    }
    let is_kept = rows.iter().all(|row| row.outcome.as_ref().map_or(true, |outcome| outcome.is_kept()));
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
