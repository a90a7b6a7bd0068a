//! The provider: a real HTTP server on a thread of its own, with its own clock and its own arithmetic. It does not use
//! tollgate.

use crate::Failure;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header::DATE, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::{StreamExt, stream};
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The limit is full, half, and full again, for so long each.
pub(crate) const PHASE: Duration = Duration::from_secs(4);
pub(crate) const PHASES: usize = 3;
/// The figures leave out this much of each phase.
const SETTLING: Duration = Duration::from_millis(1_500);
/// The full limits per minute.
const LIMITS: [(&str, f64); 3] = [("requests", 6_000.0), ("input-tokens", 600_000.0), ("output-tokens", 120_000.0)];
/// The units of so many seconds are tolerated at once.
const TOLERANCE: f64 = 2.0;
/// Overloaded once, at the beginning of the last phase, for a second.
const OVERLOAD: Duration = Duration::from_secs(1);
/// Requests that arrive so soon after the overload were on their way when it was announced.
const ON_THEIR_WAY: Duration = Duration::from_millis(250);
/// A chunk of an answer.
const CHUNK: u64 = 10;
const CHUNK_TIME: Duration = Duration::from_millis(25);

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
        let app = Router::new().route("/v1/messages", post(answer)).with_state(Arc::clone(&books));
        runtime.spawn(async move { axum::serve(TcpListener::from_std(listener)?, app).into_future().await });
        Ok(Self { runtime, address, books })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/messages", self.address)
    }

    /// Ends the server. Call it when all requests have been answered.
    pub(crate) fn stop(self) -> Books {
        self.runtime.shutdown_background();
        locked(&self.books).clone()
    }
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().expect("no code panics with this lock")
}

/// Streams an answer of 20 to 60 tokens: a line with the input tokens that are billed, a line for each chunk, and a line
/// with the output tokens. Output tokens are charged while they are generated, so an answer that is aborted costs less.
async fn answer(State(books): State<Arc<Mutex<Books>>>, prompt: String) -> Response {
    let entered = locked(&books).enter(&prompt);
    let mut response = match entered {
        Err(refused) => refused.into_response(),
        Ok(billed) => {
            let total = fastrand::u64(20..=60);
            let head = stream::iter([format!("{{\"input_tokens\": {billed}}}\n")]);
            let generated = Arc::clone(&books);
            let chunks = stream::unfold(0, move |made| {
                let books = Arc::clone(&generated);
                async move {
                    let chunk = CHUNK.min(total - made);
                    if chunk == 0 {
                        return None;
                    }
                    tokio::time::sleep(CHUNK_TIME).await;
                    locked(&books).generate(chunk);
                    Some((format!("{{\"text\": \"...\", \"tokens\": {chunk}}}\n"), made + chunk))
                }
            });
            let tail = stream::iter([format!("{{\"output_tokens\": {total}}}\n")]);
            Body::from_stream(head.chain(chunks).chain(tail).map(Ok::<_, Infallible>)).into_response()
        }
    };
    locked(&books).write_fields(&mut response);
    response
}

/// A refusal, with the seconds of `Retry-After`.
struct Refused(u64);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, self.0.to_string())]).into_response()
    }
}

#[derive(Clone)]
pub(crate) struct Books {
    began: Instant,
    accounts: [Account; 3],
    /// The instructions that earlier prompts began with: their tokens cost nothing.
    cached: HashSet<String>,
    is_overloaded: bool,
    pub(crate) requests: u64,
    pub(crate) cached_tokens: u64,
    /// Refused for lack of units, in the settling times and outside of them.
    pub(crate) refused: u64,
    pub(crate) refused_settled: u64,
    /// Requests that arrived before their `Retry-After` had passed.
    pub(crate) too_early: u64,
    /// Output tokens of each phase, outside of the settling times.
    generated: [f64; PHASES],
}

impl Books {
    fn open() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            accounts: LIMITS.map(|(_, per_minute)| Account {
                per_minute,
                level: per_minute / 60.0 * TOLERANCE,
                at: now,
            }),
            cached: HashSet::new(),
            is_overloaded: false,
            requests: 0,
            cached_tokens: 0,
            refused: 0,
            refused_settled: 0,
            too_early: 0,
            generated: [0.0; PHASES],
        }
    }

    /// The share of its output tokens that each phase has used.
    pub(crate) fn used(&self) -> [f64; PHASES] {
        let seconds = (PHASE - SETTLING).as_secs_f64();
        std::array::from_fn(|phase| self.generated[phase] / (limit(phase, LIMITS[2].1) / 60.0 * seconds))
    }

    /// The phase, and the time since its beginning.
    fn phase(&self) -> (usize, Duration) {
        let elapsed = self.began.elapsed();
        let phase = (elapsed.as_secs_f64() / PHASE.as_secs_f64()) as usize;
        (phase, elapsed.saturating_sub(PHASE * phase as u32))
    }

    /// Brings the accounts up to date.
    fn refill(&mut self) -> (usize, Duration) {
        let (phase, since) = self.phase();
        for (account, (_, full)) in self.accounts.iter_mut().zip(LIMITS) {
            account.refill(limit(phase, full));
        }
        (phase, since)
    }

    /// Charges a request, and returns the billed input tokens.
    fn enter(&mut self, prompt: &str) -> Result<u64, Refused> {
        let (phase, since) = self.refill();
        self.requests += 1;
        if phase == PHASES - 1 && !self.is_overloaded {
            self.is_overloaded = true;
            return Err(Refused(OVERLOAD.as_secs()));
        }
        if self.is_overloaded && phase == PHASES - 1 && (ON_THEIR_WAY..OVERLOAD).contains(&since) {
            self.too_early += 1;
        }
        let (instructions, question) = prompt.split_once('\n').unwrap_or(("", prompt));
        let is_cached = self.cached.contains(instructions);
        let billed = tokens_in(question) + if is_cached { 0 } else { tokens_in(instructions) };
        let [requests, input, output] = &mut self.accounts;
        if requests.level < 1.0 || input.level < billed as f64 || output.level <= 0.0 {
            self.refused += 1;
            self.refused_settled += u64::from(since >= SETTLING);
            return Err(Refused(1));
        }
        requests.level -= 1.0;
        input.level -= billed as f64;
        self.cached_tokens += if is_cached { tokens_in(instructions) } else { 0 };
        self.cached.insert(instructions.to_owned());
        Ok(billed)
    }

    fn generate(&mut self, tokens: u64) {
        let (phase, since) = self.refill();
        self.accounts[2].level -= tokens as f64;
        if since >= SETTLING && phase < PHASES {
            self.generated[phase] += tokens as f64;
        }
    }

    /// Writes the limits as Anthropic does.
    fn write_fields(&mut self, response: &mut Response) {
        self.refill();
        let now = SystemTime::now();
        let headers = response.headers_mut();
        for (account, (resource, _)) in self.accounts.iter().zip(LIMITS) {
            let full_in = (account.capacity() - account.level) / account.per_minute * 60.0;
            for (what, value) in [
                ("limit", (account.per_minute as u64).to_string()),
                ("remaining", (account.level.max(0.0) as u64).to_string()),
                // An instant, which Anthropic writes in the format of RFC 3339.
                ("reset", httpdate::fmt_http_date(now + Duration::from_secs_f64(full_in.max(0.0).ceil()))),
            ] {
                let name = HeaderName::try_from(format!("anthropic-ratelimit-{resource}-{what}"));
                headers.insert(name.expect("a valid name"), HeaderValue::try_from(value).expect("a valid value"));
            }
        }
        headers.insert(DATE, HeaderValue::try_from(httpdate::fmt_http_date(now)).expect("a valid value"));
    }
}

/// The limit of a phase. The phase after the last one is like it.
fn limit(phase: usize, full: f64) -> f64 {
    if phase == 1 { full / 2.0 } else { full }
}

fn tokens_in(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// A bucket that is refilled by the clock, in floating point.
#[derive(Clone)]
struct Account {
    per_minute: f64,
    level: f64,
    at: Instant,
}

impl Account {
    fn capacity(&self) -> f64 {
        self.per_minute / 60.0 * TOLERANCE
    }

    fn refill(&mut self, per_minute: f64) {
        let now = Instant::now();
        let added = (now - self.at).as_secs_f64() * per_minute / 60.0;
        (self.per_minute, self.at) = (per_minute, now);
        self.level = (self.level + added).min(self.capacity());
    }
}
