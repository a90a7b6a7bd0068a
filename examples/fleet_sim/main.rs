//! Past this machine: a thousand nodes that share a million tokens per second, simulated.
//!
//! ```text
//! cargo run --release --features distributed --example fleet_sim
//! cargo run --release --features distributed --example fleet_sim -- --nodes 1000 --quiet 200 --latency-ms 5
//! ```
//!
//! Limiters and the tasks that ask are the real ones; time is tokio's paused time, and the line is in memory, where it does what
//! the script in Redis does. The exit code is 1 if more was granted than the quota allows. How many requests a real Redis
//! answers: the example `carry` of `tollgate-redis`.

mod law;
mod served;
mod world;

use clap::{Parser, value_parser};
use law::Law;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::World;

type Failure = Box<dyn Error + Send + Sync>;

/// Simulate many nodes that share one quota
#[derive(Parser)]
struct Options {
    /// Nodes that are saturated
    #[arg(long, default_values_t = [4, 100, 1_000, 10_000], num_args = 1.., value_parser = value_parser!(u64).range(1..))]
    nodes: Vec<u64>,
    /// Nodes on which somebody asks for a token now and then
    #[arg(long, default_value_t = 10)]
    quiet: u64,
    /// Tokens per second, for all of them
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    rate: u64,
    /// Tokens at once [default: a tenth of a second's worth]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    burst: Option<u64>,
    /// Tokens per claim
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    cost: u64,
    /// Simulated seconds
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Milliseconds to the line, and as long back
    #[arg(long, default_value_t = 1)]
    latency_ms: u64,
    /// Microseconds for which the line is busy with an ask; the default is what the example `carry` found
    #[arg(long, default_value_t = 26)]
    service_us: u64,
}

fn main() -> ExitCode {
    simulate(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("fleet_sim: {error}");
        ExitCode::from(2)
    })
}

fn simulate(options: &Options) -> Result<ExitCode, Failure> {
    let law = Law { rate: options.rate, burst: options.burst.unwrap_or((options.rate / 10).max(1)) };
    println!(
        "{} tokens/s, burst {}, {} ms each way, {} us per ask, {} s",
        law.rate, law.burst, options.latency_ms, options.service_us, options.seconds
    );
    println!(
        "{:>6} {:>9} {:>7} {:>9} {:>8} {:>13} {:>13} {:>10}",
        "nodes", "achieved", "excess", "fairness", "asks/s", "per 1,000", "quiet waits", "lived in"
    );
    let mut is_lawful = true;
    for &busy in &options.nodes {
        let world = World {
            busy,
            // For two seconds: nobody runs dry while it waits for its next turn, however long that takes.
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
            "{busy:>6} {:>9.4} {:>7} {:>9.3} {asks:>8.0} {:>13.1} {:>10.0} ms {:>8.1} s",
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
