//! A client of a language model, for a provider that limits requests per minute and tokens per minute.
//!
//! ```text
//! cargo run --release -p tollgate-tower --example llm_client
//! ```
//!
//! The cost of an answer is known only when it is complete. So each call claims an estimate in both limiters at once,
//! and settles the tokens afterwards. When the provider answers with 429 and Retry-After, all calls pause for that
//! long.
//!
//! The provider is a real HTTP server on a thread of its own, with its own clock and its own arithmetic. It counts
//! every request that breaks its rules. The last line printed is machine-readable. The exit code is 1 if any rule was
//! broken, and 2 if the program could not run.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header::RETRY_AFTER};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tollgate::{Limiter, Quota, join};

use provider::Provider;

type Failure = Box<dyn Error + Send + Sync>;

const CALLS: u64 = 130;
const TASKS: u64 = 16;

/// The provider's terms: each limit with the burst it tolerates.
const REQUESTS_PER_MINUTE: u64 = 1_200;
const REQUEST_BURST: u64 = 20;
const TOKENS_PER_MINUTE: u64 = 120_000;
const TOKEN_BURST: u64 = 4_000;

/// How late a request may reach the provider after its grant: because of a timer, a busy machine, the network.
const JITTER: Duration = Duration::from_millis(250);

/// The estimate of the tokens in an answer; it has at most 30 more.
const EXPECTED_ANSWER: u64 = 100;
const MAX_BEYOND: u64 = 30;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("llm_client: {error}");
        ExitCode::from(2)
    })
}

#[tokio::main]
async fn run() -> Result<ExitCode, Failure> {
    let provider = Provider::start()?;
    let model = Arc::new(Model::new(provider.url())?);
    let began = Instant::now();

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let model = model.clone();
        tasks.spawn(async move {
            for call in (task..CALLS).step_by(TASKS as usize) {
                // Short questions first, so that requests are scarce; then longer ones, so that tokens are.
                model.ask(&"word ".repeat(10 + call as usize * 3 / 4)).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(report(&model, &provider.stop(), began.elapsed()))
}

/// The client, with its limiters.
struct Model {
    requests: Limiter,
    tokens: Limiter,
    http: Client<HttpConnector, Body>,
    url: String,
    pauses: AtomicU64,
    estimated: AtomicU64,
}

enum Reply {
    Answer { used: u64 },
    Busy { retry_after: Duration },
}

impl Model {
    /// Both limiters stay a little below the terms, because of what no client can know: the provider counts a request
    /// when it arrives, up to `JITTER` after its grant, and an answer may be longer than its estimate. Both are
    /// subtracted from the burst. The rate is reduced by 5 % only so that a bucket that is low here is never lower
    /// there.
    fn new(url: String) -> Result<Self, Failure> {
        let on_its_way = |per_minute: u64| per_minute * JITTER.as_millis() as u64 / 60_000;
        let (requests, tokens) = (REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE);
        let request_burst = REQUEST_BURST - on_its_way(requests);
        let token_burst = TOKEN_BURST - on_its_way(tokens) - TASKS * MAX_BEYOND;
        Ok(Self {
            requests: Limiter::new(Quota::per_minute(requests * 95 / 100).burst(request_burst))?,
            tokens: Limiter::new(Quota::per_minute(tokens * 95 / 100).burst(token_burst))?,
            http: Client::builder(TokioExecutor::new()).build_http(),
            url,
            pauses: AtomicU64::new(0),
            estimated: AtomicU64::new(0),
        })
    }

    /// One call, repeated as often as needed. Returns the number of tokens used.
    async fn ask(&self, prompt: &str) -> Result<u64, Failure> {
        let estimate = tokens_in(prompt) + EXPECTED_ANSWER;
        loop {
            let [_request, mut tokens] = join([(&self.requests, 1), (&self.tokens, estimate)]).await?;
            match self.send(prompt).await? {
                Reply::Answer { used } => {
                    tokens.settle(used);
                    self.estimated.fetch_add(estimate, Ordering::Relaxed);
                    return Ok(used);
                }
                Reply::Busy { retry_after } => {
                    // Before anything is refunded: a refund would let the next call pass.
                    self.requests.pause_for(retry_after);
                    self.tokens.pause_for(retry_after);
                    tokens.settle(0);
                    self.pauses.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    async fn send(&self, prompt: &str) -> Result<Reply, Failure> {
        let answer = self.http.request(Request::post(&self.url).body(Body::from(prompt.to_owned()))?).await?;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            let seconds = answer.headers().get(RETRY_AFTER).ok_or("429 without Retry-After")?;
            return Ok(Reply::Busy { retry_after: Duration::from_secs(seconds.to_str()?.parse()?) });
        }
        if !answer.status().is_success() {
            return Err(format!("the provider answered {}", answer.status()).into());
        }
        let body = to_bytes(Body::new(answer.into_body()), 1 << 20).await?;
        let answer: serde_json::Value = serde_json::from_slice(&body)?;
        Ok(Reply::Answer { used: answer["usage"]["total_tokens"].as_u64().ok_or("an answer without its usage")? })
    }
}

fn tokens_in(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn report(model: &Model, books: &provider::Books, took: Duration) -> ExitCode {
    let seconds = took.as_secs_f64();
    let (requests, tokens) = (books.requests.taken, books.tokens.taken);
    let (estimated, pauses) = (model.estimated.load(Ordering::Relaxed), model.pauses.load(Ordering::Relaxed));
    let violations = books.violations();
    let [of_requests, of_tokens, too_early] = [books.requests.exceeded, books.tokens.exceeded, books.too_early];
    println!("served      {requests} requests, {tokens} tokens in {seconds:.1} s");
    println!("estimates   {estimated} tokens were claimed for them, the rest was refunded");
    println!("429s        {pauses} received, all calls paused");
    println!("violations  {of_requests} of requests, {of_tokens} of tokens per minute, {too_early} during Retry-After");
    println!(
        "\nllm_client: requests={requests} tokens={tokens} violations={violations} pauses={pauses} seconds={seconds:.2}"
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The other side. This module does not use tollgate.
mod provider {
    use super::{CALLS, EXPECTED_ANSWER, Failure, JITTER, MAX_BEYOND};
    use super::{REQUEST_BURST, REQUESTS_PER_MINUTE, TOKEN_BURST, TOKENS_PER_MINUTE, tokens_in};
    use axum::Router;
    use axum::extract::State;
    use axum::http::{StatusCode, header::RETRY_AFTER};
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use std::future::IntoFuture;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};
    use tokio::net::TcpListener;
    use tokio::runtime::Runtime;

    /// Overloaded once, in the middle, for a second.
    const OVERLOADED_AT: u64 = CALLS / 2;
    const RETRY: Duration = Duration::from_secs(1);

    pub(crate) struct Provider {
        runtime: Runtime,
        address: SocketAddr,
        books: Arc<Mutex<Books>>,
    }

    impl Provider {
        /// Starts on a thread of its own.
        pub(crate) fn start() -> Result<Self, Failure> {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let books = Arc::new(Mutex::new(Books::open()));
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let app = Router::new().route("/v1/complete", post(complete)).with_state(books.clone());
            runtime.spawn(async move { axum::serve(TcpListener::from_std(listener)?, app).into_future().await });
            Ok(Self { runtime, address, books })
        }

        pub(crate) fn url(&self) -> String {
            format!("http://{}/v1/complete", self.address)
        }

        /// To be called when every request has been answered.
        pub(crate) fn stop(self) -> Books {
            self.runtime.shutdown_background();
            self.books.lock().expect("handlers never panic with the lock").clone()
        }
    }

    async fn complete(State(books): State<Arc<Mutex<Books>>>, prompt: String) -> Response {
        let answer = fastrand::u64(10..=EXPECTED_ANSWER + MAX_BEYOND);
        let used = tokens_in(&prompt) + answer;
        if let Err(retry) = books.lock().expect("handlers never panic with the lock").enter(used) {
            let seconds = retry.as_secs().to_string();
            return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)]).into_response();
        }
        tokio::time::sleep(Duration::from_millis(answer)).await; // words are generated one by one
        format!(r#"{{"answer": "...", "usage": {{"total_tokens": {used}}}}}"#).into_response()
    }

    #[derive(Clone)]
    pub(crate) struct Books {
        pub(crate) requests: Account,
        pub(crate) tokens: Account,
        /// Requests that arrived before their Retry-After had passed.
        pub(crate) too_early: u64,
        overloaded: Option<Instant>,
    }

    impl Books {
        fn open() -> Self {
            Self {
                requests: Account::new(REQUESTS_PER_MINUTE, REQUEST_BURST),
                tokens: Account::new(TOKENS_PER_MINUTE, TOKEN_BURST),
                too_early: 0,
                overloaded: None,
            }
        }

        /// Charges an arriving request at once. The one that meets the overload gets a Retry-After.
        fn enter(&mut self, used: u64) -> Result<(), Duration> {
            let now = Instant::now();
            self.requests.take(1, now);
            if self.requests.arrived == OVERLOADED_AT {
                self.overloaded = Some(now);
                return Err(RETRY);
            }
            self.tokens.take(used, now);
            // Requests that were in transit when the 429 was sent do not count, and the client's second began after the
            // provider's.
            let forbidden = |since: Instant| (JITTER..RETRY).contains(&(now - since));
            self.too_early += u64::from(self.overloaded.is_some_and(forbidden));
            Ok(())
        }

        pub(crate) fn violations(&self) -> u64 {
            self.requests.exceeded + self.tokens.exceeded + self.too_early
        }
    }

    /// A simple bucket: full at first, refilled by the clock, in floating point.
    #[derive(Clone)]
    pub(crate) struct Account {
        per_second: f64,
        burst: f64,
        level: f64,
        at: Instant,
        pub(crate) arrived: u64,
        pub(crate) taken: f64,
        /// Requests that found too few tokens. They take none, as if they had been refused.
        pub(crate) exceeded: u64,
    }

    impl Account {
        fn new(per_minute: u64, burst: u64) -> Self {
            let (per_second, burst) = (per_minute as f64 / 60.0, burst as f64);
            Self { per_second, burst, level: burst, at: Instant::now(), arrived: 0, taken: 0.0, exceeded: 0 }
        }

        fn take(&mut self, amount: u64, now: Instant) {
            self.level = self.burst.min(self.level + (now - self.at).as_secs_f64() * self.per_second);
            self.at = now;
            self.arrived += 1;
            if amount as f64 > self.level {
                self.exceeded += 1;
            } else {
                self.level -= amount as f64;
                self.taken += amount as f64;
            }
        }
    }
}
