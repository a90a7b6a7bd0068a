//! Keeps the rate of a real HTTP server: many tasks send requests, each after `limiter.consume(cost).await`.
//!
//! ```text
//! cargo run --release --example pace
//! cargo run --release --example pace -- --rate 500 --burst 20 --tasks 16 --cost 40 --max-in-flight 60 --seconds 10
//! ```
//!
//! The tasks claim more than the rate allows, so there is always a queue. The last line has the share of the allowed tokens
//! that were granted, the whole tokens above `burst + rate x window` in the worst of all windows, and the requests that were
//! granted after one that claimed later. The exit code is 1 if there is an excess or a violation of the order.

mod judge;
mod load;
mod server;

use judge::{Law, Verdict};
use load::Load;
use server::Server;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tollgate::{Limiter, Quota};

type Failure = Box<dyn Error + Send + Sync>;

/// The options of the command line, each a whole number.
struct Options {
    /// Tokens per second.
    rate: u64,
    burst: u64,
    tasks: u64,
    /// The cost of each request is at random, from 1 to this.
    cost: u64,
    /// The most tokens in flight.
    max_in_flight: u64,
    seconds: u64,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self { rate: 2_000, burst: 200, tasks: 128, cost: 10, max_in_flight: 400, seconds: 5 };
        while let Some(name) = words.next() {
            let option = match name.as_str() {
                "--rate" => &mut options.rate,
                "--burst" => &mut options.burst,
                "--tasks" => &mut options.tasks,
                "--cost" => &mut options.cost,
                "--max-in-flight" => &mut options.max_in_flight,
                "--seconds" => &mut options.seconds,
                _ => return Err(format!("no option is named `{name}`: see the first lines of pace.rs").into()),
            };
            let number = words.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
            *option = number.ok_or_else(|| format!("`{name}` needs a whole number, at least 1"))?;
        }
        Ok(options)
    }
}

fn main() -> Result<ExitCode, Failure> {
    let Options { rate, burst, tasks, cost, max_in_flight, seconds } = Options::parse(std::env::args().skip(1))?;
    let quota = Quota::per_second(rate).burst(burst);
    let limiter = Limiter::builder().quota(quota).max_in_flight(max_in_flight).build()?;
    let server = Server::start()?;
    let load = Load { tasks, cost, time: Duration::from_secs(seconds) };
    let granted = load.run(&limiter, server.address())?;
    let received = server.stop();

    let verdict =
        Verdict::of(&Law { rate, burst }, granted).ok_or("no request was granted: the run needs more --seconds")?;
    let Verdict { tokens, achieved, excess, overtaken, waits } = verdict;
    let wait = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("granted     {} requests, {tokens} tokens; {rate}/s and a burst of {burst} are allowed", waits.len());
    println!("received    {} requests, {} tokens by the server", received.requests, received.tokens);
    println!("in flight   {} tokens at most, {max_in_flight} allowed", received.in_flight_max);
    println!("waits       p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", wait(50), wait(99), wait(100));
    println!("pace: achieved={achieved:.4} excess={excess} order_violations={overtaken}");
    Ok(ExitCode::from(u8::from(excess > 0 || overtaken > 0)))
}
