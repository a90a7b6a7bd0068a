//! Beyond one machine: a simulation of a thousand nodes that share a million tokens per second.
//!
//! ```text
//! cargo run --release --features distributed --example fleet_sim
//! cargo run --release --features distributed --example fleet_sim -- --nodes 1000 --quiet 200 --latency-ms 5
//! cargo run --release --features distributed --example fleet_sim -- --carry
//! ```
//!
//! The limiters and their refill tasks are the real ones. Time is tokio's paused time, and the store is in memory,
//! where it gives the same answers as the script in Redis. The exit code is 1 if more was granted than the quota
//! allows, and 2 if the program could not run. `--carry` measures how many requests a real Redis answers: it runs the
//! example `carry` of `tollgate-redis`, because this crate does not know Redis.

mod law;
mod served;
mod world;

use clap::{Parser, value_parser};
use law::Law;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use world::World;

type Failure = Box<dyn Error + Send + Sync>;

/// Simulate many nodes that share one quota
#[derive(Parser)]
struct Options {
    /// Nodes that are saturated
    #[arg(long, default_values_t = [4, 100, 1_000, 10_000], num_args = 1.., value_parser = value_parser!(u64).range(1..))]
    nodes: Vec<u64>,
    /// Nodes on which a caller claims a token now and then
    #[arg(long, default_value_t = 10)]
    quiet: u64,
    /// Tokens per second, for all nodes together
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    rate: u64,
    /// Burst in tokens [default: a tenth of a second's worth]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    burst: Option<u64>,
    /// Tokens per claim
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    cost: u64,
    /// Simulated seconds
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Milliseconds to the store, and as many back
    #[arg(long, default_value_t = 1)]
    latency_ms: u64,
    /// Microseconds for which a request occupies the store; the default was measured by the example `carry`
    #[arg(long, default_value_t = 26)]
    service_us: u64,
    /// Measure on a real Redis how many requests a store answers, with these nodes, rate and seconds
    #[arg(long)]
    carry: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.carry { carry(&options) } else { simulate(&options) };
    done.unwrap_or_else(|error| {
        eprintln!("fleet_sim: {error}");
        ExitCode::from(2)
    })
}

/// Runs the example `carry` with the same options: the program beside this one, or else built in the same profile.
fn carry(options: &Options) -> Result<ExitCode, Failure> {
    let beside = std::env::current_exe()?.with_file_name("carry");
    let mut command = if beside.exists() { Command::new(beside) } else { cargo_run_carry() };
    for (name, value) in [("--rate", options.rate), ("--seconds", options.seconds)] {
        command.args([name, &value.to_string()]);
    }
    command.arg("--nodes").args(options.nodes.iter().map(u64::to_string));
    let status = command.status().map_err(|error| format!("the example carry does not start: {error}"))?;
    Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
}

fn cargo_run_carry() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/tollgate-redis/Cargo.toml");
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    command.args(["run", "--quiet", "--profile", profile, "--manifest-path", manifest, "--example", "carry", "--"]);
    command
}

fn simulate(options: &Options) -> Result<ExitCode, Failure> {
    let law = Law { rate: options.rate, burst: options.burst.unwrap_or((options.rate / 10).max(1)) };
    println!(
        "{} tokens/s, burst {}, {} ms each way, {} us per request, {} s",
        law.rate, law.burst, options.latency_ms, options.service_us, options.seconds
    );
    println!(
        "{:>6} {:>9} {:>7} {:>9} {:>10} {:>13} {:>13} {:>10}",
        "nodes", "achieved", "excess", "fairness", "requests/s", "per 1,000", "quiet waits", "run time"
    );
    let mut is_lawful = true;
    for &busy in &options.nodes {
        let world = World {
            busy,
            // Tokens for two seconds, so that no node runs out while it waits for its next turn.
            tasks: (law.rate * 2 / busy / options.cost).max(4),
            cost: options.cost,
            quiet: options.quiet,
            law,
            time: Duration::from_secs(options.seconds),
            latency: Duration::from_millis(options.latency_ms),
            service: Duration::from_micros(options.service_us),
        };
        let began = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let outcome = runtime.block_on(world.live());
        let asks = outcome.asks as f64 / options.seconds as f64;
        println!(
            "{busy:>6} {:>9.4} {:>7} {:>9.3} {asks:>10.0} {:>13.1} {:>10.0} ms {:>8.1} s",
            outcome.achieved(&world),
            outcome.excess(&world),
            outcome.fairness(),
            outcome.asks as f64 * 1e3 / outcome.tokens() as f64,
            outcome.longest_wait().as_secs_f64() * 1e3,
            began.elapsed().as_secs_f64(),
        );
        is_lawful &= outcome.excess(&world) == 0;
    }
    Ok(if is_lawful { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[test]
fn carry_is_an_option() {
    let options =
        Options::try_parse_from(["fleet_sim", "--carry", "--nodes", "4"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(options.carry);
}
