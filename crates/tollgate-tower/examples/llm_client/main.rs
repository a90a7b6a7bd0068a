//! A pool of clients of a language model, which learn the provider's limits from its responses.
//!
//! ```text
//! cargo run -p tollgate-tower --features http --example llm_client
//! ```
//!
//! The provider limits requests, input tokens and output tokens per minute, and says so in header fields. The pool starts slowly
//! with a limiter for each resource, and each limiter follows the fields that are about its resource ([`HeedLayer`]).
//!
//! The cost of an answer is known only when it is complete. So each call reserves its input tokens, an estimate of its output
//! tokens, and both together as tokens in flight ([`reserve`]). It counts the output tokens while the answer streams.

mod provider;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;
use tollgate::{Limiter, Quota, reserve};
use tollgate_tower::http::{Heed, HeedLayer, Heeded};
use tower::{ServiceBuilder, ServiceExt};

type Failure = Box<dyn Error + Send + Sync>;

/// Output tokens: more than most answers have.
const ESTIMATE: u64 = 50;
/// The places of the resources in a reservation, after the request.
const INPUT: usize = 1;
const OUTPUT: usize = 2;

/// The limiters, and the HTTP client behind them.
struct Pool {
    requests: Limiter,
    input: Limiter,
    output: Limiter,
    /// Input and output tokens of calls that are not complete: what the pool has at stake at once.
    in_flight: Limiter,
    http: Heeded<Heeded<Heeded<Client<HttpConnector, Body>>>>,
    url: String,
    tokens: AtomicU64,
    refused: AtomicU64,
}

impl Pool {
    /// Each limiter starts with what any provider allows, and gets the rate that the responses tell, up to its fastest.
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
        let [tokens, refused] = [(); 2].map(|()| AtomicU64::new(0));
        Ok(Self { requests, input, output, in_flight, http, url, tokens, refused })
    }

    /// One call, repeated as often as it is refused.
    async fn ask(&self, prompt: &str) -> Result<(), Failure> {
        let input = prompt.split_whitespace().count() as u64;
        loop {
            let claims = [
                (&self.requests, 1),
                (&self.input, input),
                (&self.output, ESTIMATE),
                (&self.in_flight, input + ESTIMATE),
            ];
            let mut reserved = reserve(claims).await?;
            let request = Request::post(&self.url).body(Body::from(prompt.to_owned()))?;
            let response = self.http.clone().oneshot(request).await?;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                // The layers have paused the limiters, so no other call passes because of these refunds. The refused
                // request itself stays charged.
                reserved.settle(INPUT, 0);
                reserved.settle(OUTPUT, 0);
                self.refused.fetch_add(1, Relaxed);
                continue;
            }
            let mut answer = Body::new(response.into_body()).into_data_stream();
            while let Some(data) = answer.next().await {
                let tokens = data?.len() as u64; // this provider's tokens are bytes
                reserved.count(OUTPUT, tokens);
                self.tokens.fetch_add(tokens, Relaxed);
            }
            // Dropping the reservation settles what was counted, also of an answer that is aborted.
            return Ok(());
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let pool = Arc::new(Pool::new(provider::start().await?)?);
    for task in 0..32 {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let prompt = "word ".repeat(80 + task);
            while pool.ask(&prompt).await.is_ok() {}
        });
    }
    for second in 1..=8 {
        sleep(Duration::from_secs(1)).await;
        let quotas =
            [&pool.requests, &pool.input, &pool.output].map(|limiter| limiter.snapshot().quotas[0].quota.to_string());
        let (tokens, refused) = (pool.tokens.load(Relaxed), pool.refused.load(Relaxed));
        println!("{second} s: {tokens} output tokens, {refused} times 429; learned {}", quotas.join("; "));
    }
    Ok(())
}
