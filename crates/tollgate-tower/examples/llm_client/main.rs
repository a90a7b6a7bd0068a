//! A pool of clients of a language model, which learn the provider's limits from its responses.
//!
//! ```text
//! cargo run --release -p tollgate-tower --features http --example llm_client
//! ```
//!
//! The provider limits requests, input tokens and output tokens per minute, and says so in header fields. The pool knows
//! none of the limits. It starts slowly with a limiter for each resource, and each limiter follows the fields that are
//! about its resource ([`HeedLayer`]). In the middle of the run the provider halves all limits, and doubles them again
//! later; then it is also overloaded for a second, and says so with a 429 and `Retry-After`.
//!
//! The cost of an answer is known only when it is complete. So each call reserves its input tokens, an estimate of its
//! output tokens, and both together as tokens in flight ([`reserve`]). It counts the output tokens while the answer
//! streams, and settles what was billed: prompts whose instructions are in the provider's cache cost less. One answer of
//! four is aborted in the middle.
//!
//! The last line printed is machine-readable. The exit code is 1 if a target is missed, and 2 if the program could not
//! run.

mod provider;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use provider::{Books, PHASE, PHASES, Provider};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;
use tollgate::{Limiter, Quota, Reservation, reserve};
use tollgate_tower::http::{Heed, HeedLayer, Heeded};
use tower::{ServiceBuilder, ServiceExt};

type Failure = Box<dyn Error + Send + Sync>;
type Http = Client<HttpConnector, Body>;

const TASKS: u64 = 32;
/// An answer has at most 60 tokens.
const ESTIMATE: u64 = 50;
/// The places of the resources in a reservation, after the request.
const INPUT: usize = 1;
const OUTPUT: usize = 2;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("llm_client: {error}");
        ExitCode::from(2)
    })
}

#[tokio::main]
async fn run() -> Result<ExitCode, Failure> {
    let provider = Provider::start()?;
    let pool = Arc::new(Pool::new(provider.url())?);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let pool = Arc::clone(&pool);
        tasks.spawn(async move {
            for call in (task..).step_by(TASKS as usize) {
                if began.elapsed() >= PHASE * PHASES as u32 {
                    break;
                }
                pool.ask(call).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(report(&pool, &provider.stop()))
}

/// The limiters, and the HTTP client behind them.
struct Pool {
    requests: Limiter,
    input: Limiter,
    output: Limiter,
    /// Input and output tokens of calls that are not complete: what the pool has at stake at once.
    in_flight: Limiter,
    http: Heeded<Heeded<Heeded<Http>>>,
    url: String,
    complete: AtomicU64,
    aborted: AtomicU64,
    refused: AtomicU64,
}

impl Pool {
    /// Each limiter starts with what any provider allows, and gets the rate that the responses tell, up to its `fastest`.
    /// The bursts are the pool's own choice: they stay below what a provider tolerates at once.
    fn new(url: String) -> Result<Self, Failure> {
        let requests = Limiter::new(Quota::per_minute(60).burst(1))?;
        let input = Limiter::new(Quota::per_minute(1_000).burst(200))?;
        let output = Limiter::new(Quota::per_minute(600).burst(ESTIMATE))?;
        let follow = |unit, burst| Heed::default().unit(unit).follow(0, Quota::per_minute(10_000_000).burst(burst));
        let http = ServiceBuilder::new()
            .layer(HeedLayer::new(&requests).with(follow("requests", 20)))
            .layer(HeedLayer::new(&input).with(follow("input-tokens", 2_000)))
            .layer(HeedLayer::new(&output).with(follow("output-tokens", 1_000)))
            .service(Client::builder(TokioExecutor::new()).build_http());
        let in_flight = Limiter::builder().max_in_flight(8_000).build()?;
        let [complete, aborted, refused] = [(); 3].map(|()| AtomicU64::new(0));
        Ok(Self { requests, input, output, in_flight, http, url, complete, aborted, refused })
    }

    /// One call, repeated as often as it is refused.
    async fn ask(&self, call: u64) -> Result<(), Failure> {
        // One of four instructions, and a question.
        let prompt =
            format!("instruction{} {}\n{}", call % 4, "word ".repeat(80), "word ".repeat(20 + call as usize % 60));
        let tokens = prompt.split_whitespace().count() as u64;
        loop {
            let mut reserved = reserve([
                (&self.requests, 1),
                (&self.input, tokens),
                (&self.output, ESTIMATE),
                (&self.in_flight, tokens + ESTIMATE),
            ])
            .await?;
            let request = Request::post(&self.url).body(Body::from(prompt.clone()))?;
            let response = self.http.clone().oneshot(request).await?;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                // The layers have paused the limiters, so no other call passes because of these refunds. The refused
                // request itself stays charged.
                reserved.settle(INPUT, 0);
                reserved.settle(OUTPUT, 0);
                self.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if !response.status().is_success() {
                return Err(format!("the provider answered {}", response.status()).into());
            }
            let stop_after = if call.is_multiple_of(4) { 1 + call / 4 % 3 } else { u64::MAX };
            let is_complete = read(response, &mut reserved, stop_after).await?;
            let count = if is_complete { &self.complete } else { &self.aborted };
            count.fetch_add(1, Ordering::Relaxed);
            // Dropping the reservation settles what was counted of an aborted answer.
            return Ok(());
        }
    }
}

/// Reads an answer, and counts its tokens. Returns false if it was aborted, after so many chunks.
async fn read<B>(response: Response<B>, reserved: &mut Reservation<'_, 4>, mut chunks: u64) -> Result<bool, Failure>
where
    B: axum::body::HttpBody<Data = Bytes, Error: Into<Failure>> + Unpin,
{
    reserved.count(OUTPUT, 0);
    let (mut body, mut line) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        for byte in data {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let event: serde_json::Value = serde_json::from_slice(&line)?;
            line.clear();
            if let Some(billed) = event["input_tokens"].as_u64() {
                reserved.settle(INPUT, billed);
            }
            if let Some(tokens) = event["tokens"].as_u64() {
                reserved.count(OUTPUT, tokens);
                chunks -= 1;
            }
            if let Some(billed) = event["output_tokens"].as_u64() {
                reserved.settle(OUTPUT, billed);
            }
        }
        if chunks == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn report(pool: &Pool, books: &Books) -> ExitCode {
    let [complete, aborted, refused] =
        [&pool.complete, &pool.aborted, &pool.refused].map(|count| count.load(Ordering::Relaxed));
    let left = pool.in_flight.snapshot().in_flight.unwrap_or(0);
    let used = books.used();
    println!("answers     {complete} complete, {aborted} aborted");
    println!("cache       {} input tokens cost nothing", books.cached_tokens);
    println!(
        "budget      {:.3} of the output tokens used with the full limit, {:.3} with half, {:.3} with the full again",
        used[0], used[1], used[2]
    );
    println!("429s        {refused} received, {} of them for lack of units", books.refused);
    println!("violations  {} requests during Retry-After", books.too_early);
    let worst = used.into_iter().fold(f64::INFINITY, f64::min);
    let share = books.refused as f64 / books.requests as f64;
    let Books { refused_settled, too_early, .. } = books;
    println!(
        "\nllm_client: used={worst:.2} refused={share:.3} refused_settled={refused_settled} too_early={too_early} left={left}"
    );
    let is_met = worst >= 0.90 && share <= 0.02 && *refused_settled == 0 && *too_early == 0 && left == 0;
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
