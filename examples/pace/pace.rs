//! A complete run: many tasks send requests to a real HTTP server, each after `limiter.consume(cost).await`, and the
//! server checks the requests it receives.
//!
//! ```text
//! cargo run --release --example pace
//! cargo run --release --example pace -- --rate 500 --burst 20 --tasks 16 --cost 1..=40 --max-in-flight 60
//! ```
//!
//! A run saturates the limiter on purpose (more tasks than the rate can serve), so the queue is always long. In the
//! picture, `target/pace.svg`, the granted tokens should follow the allowed line closely from below. The last line
//! printed is machine-readable. The exit code is 1 if a check failed: an excess, a request that overtook another, or
//! more in flight than the ceiling allows; and 2 if the program could not run.

mod claim;
mod client;
mod judge;
mod plot;
mod server;

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::{Parser, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use tollgate::{Limiter, Quota};

use claim::ClaimRecorder;
use client::{Load, Sample};
use judge::{Law, Verdict};
use server::Server;

type Failure = Box<dyn Error + Send + Sync>;

/// Send requests to a real HTTP server through a tollgate limiter, and let the server check the pace
#[derive(Parser)]
struct Options {
    /// Tokens per second
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u64).range(1..))]
    rate: u64,
    /// Burst in tokens [default: a tenth of a second's worth]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    burst: Option<u64>,
    /// Tasks that claim at the same time
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u64).range(1..))]
    tasks: u64,
    /// Seconds to run
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Tokens per request: each draws its cost from this range
    #[arg(long, default_value = "1..=10", value_name = "LOW..=HIGH", value_parser = parse_range)]
    cost: RangeInclusive<u64>,
    /// The most tokens in flight; 0: no such ceiling [default: a fifth of a second's worth, or more]
    #[arg(long, value_name = "TOKENS")]
    max_in_flight: Option<u64>,
    /// Seed of the costs
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// The file for the picture
    #[arg(long, default_value = "target/pace.svg", value_name = "FILE")]
    plot: PathBuf,
}

impl Options {
    fn law(&self) -> Law {
        let burst = self.burst.unwrap_or((self.rate / 10).max(1));
        let roomy = (self.rate / 5).max(burst.saturating_mul(2)).max(*self.cost.end());
        let ceiling = self.max_in_flight.unwrap_or(roomy);
        Law { rate: self.rate, burst, ceiling: (ceiling > 0).then_some(ceiling) }
    }
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("pace: {error}");
        ExitCode::from(2)
    })
}

fn run() -> Result<ExitCode, Failure> {
    let options = Options::parse();
    let law = options.law();
    let limiter = build(&law)?;

    let recorder = Arc::new(ClaimRecorder::open());
    let server = Server::start(recorder.clone())?;
    let load = Load {
        tasks: options.tasks,
        costs: options.cost.clone(),
        seed: options.seed,
        run_for: Duration::from_secs_f64(options.seconds),
    };
    let samples = Arc::new(Mutex::new(Vec::new()));
    let client = client::start(load, limiter, recorder, server.address(), samples.clone());
    watch(&client, &samples, options.seconds);
    client.join().expect("the client thread panicked")?;

    let seen = server.stop();
    let samples = samples.lock().expect("the client is done");
    let verdict = judge::judge(&law, &seen)?;
    plot::draw(&options.plot, &law, &seen.arrivals, &samples)?;
    report(&options, &law, &verdict, &samples);
    Ok(if verdict.holds(&law) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(law: &Law) -> Result<Limiter, Failure> {
    let mut builder = Limiter::builder().quota(Quota::per_second(law.rate).burst(law.burst));
    if let Some(ceiling) = law.ceiling {
        builder = builder.max_in_flight(ceiling);
    }
    Ok(builder.build()?)
}

/// Shows the progress until the client has finished. It reads only the samples: a call of the limiter from this thread
/// would serve the queue here, and the order of wake-ups would no longer prove the order of arrival.
fn watch(client: &JoinHandle<Result<(), Failure>>, samples: &Mutex<Vec<Sample>>, seconds: f64) {
    let style = "{wide_bar:.cyan/blue} {msg}";
    let bar = ProgressBar::new((seconds * 1e3) as u64)
        .with_style(ProgressStyle::with_template(style).expect("a valid template"));
    while !client.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        let samples = samples.lock().expect("the client never panics with the lock");
        let Some(last) = samples.last() else { continue };
        let before = &samples[samples.len().saturating_sub(25)]; // half a second ago
        let rate = (last.granted - before.granted) as f64 / ((last.at - before.at).max(1) as f64 / 1e9);
        bar.set_position(last.at / 1_000_000);
        bar.set_message(format!(
            "{rate:.0} tokens/s, waiting {} tasks ({} tokens), in flight {} tokens",
            last.waiting_tasks,
            last.waiting_tokens,
            last.in_flight.map_or("-".into(), |tokens| tokens.to_string()),
        ));
    }
    bar.finish_and_clear();
}

fn report(options: &Options, law: &Law, verdict: &Verdict, samples: &[Sample]) {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantile| verdict.waits_us.value_at_quantile(quantile));
    let Verdict { requests, tokens, rate, achieved, excess_admitted, excess_arrived, overtaken, in_flight_max, .. } =
        verdict;
    let (seconds, delivery) = (ms(verdict.elapsed) / 1e3, ms(verdict.delivery));
    let empty = samples.iter().filter(|sample| sample.waiting_tasks == 0).count();
    let mean = samples.iter().map(|sample| sample.waiting_tasks).sum::<usize>() / samples.len().max(1);
    let late = samples.iter().map(|sample| sample.late).max().unwrap_or(0);
    let ceiling = law.ceiling.map_or("no ceiling".into(), |ceiling| format!("{ceiling} allowed"));

    let rows = [
        ("server saw", format!("{requests} requests, {tokens} tokens in {seconds:.2} s")),
        ("rate", format!("{} tokens/s configured, {rate:.1} achieved after the burst of {}", law.rate, law.burst)),
        ("excess", format!("{excess_admitted} tokens over burst + rate x window, in the worst window of admissions")),
        ("", format!("{excess_arrived} in the worst window of arrivals, less {delivery:.1} ms for the delivery")),
        ("order", format!("{overtaken} requests overtaken")),
        ("waits", format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", ms(p50 * 1000), ms(p99 * 1000), ms(max * 1000))),
        ("waiting", format!("{mean} tasks on average, an empty queue in {empty} of {} samples", samples.len())),
        ("in flight", format!("{in_flight_max} tokens at most, {ceiling}")),
        ("timer", format!("up to {:.1} ms late on the client's runtime", ms(late))),
        ("picture", options.plot.display().to_string()),
    ];
    for (name, text) in rows {
        println!("{name:<12}{text}");
    }
    if *achieved < 0.99 && empty > 0 {
        println!("\nThe queue was empty at times: more --tasks would reach the configured rate.");
    }
    println!(
        "\npace: achieved={achieved:.4} excess={} order_violations={overtaken} waits_p50_us={p50} waits_p99_us={p99} \
         waits_max_us={max} in_flight_max={in_flight_max}",
        verdict.excess(),
    );
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.1 to 3600".into()) }
}

fn parse_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (low, high) = text.split_once("..=").unwrap_or((text, text));
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number; write 1..=10, or 5"));
    let range = number(low)?..=number(high)?;
    if *range.start() == 0 || range.is_empty() { Err("must go up, from at least 1".into()) } else { Ok(range) }
}
