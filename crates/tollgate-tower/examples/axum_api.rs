//! An API with a limit for each key, 429 with header fields, and a limit that changes without a restart.
//!
//! ```text
//! cargo run -p tollgate-tower --features keyed,http --example axum_api
//! for i in 1 2 3; do curl -i -H 'x-api-key: ann' http://127.0.0.1:3000/; done   # the third: 429, Retry-After
//! curl -X PUT -d '5/s, burst 10' http://127.0.0.1:3000/limit                    # from a machine of your own only
//! ```

use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Router, extract::State};
use std::error::Error;
use tokio::net::TcpListener;
use tollgate::{KeyedLimiter, Quota};
use tollgate_tower::{LimitLayer, key};

/// One limit for each API key, and one for requests without a key. The keys are the header values, as bytes.
type Keys = KeyedLimiter<Option<axum::http::HeaderValue>>;

fn app(keys: Keys) -> Router {
    // Refuses with 429, Retry-After, RateLimit and RateLimit-Policy. Replace `refuse()` by `within(..)` to let requests
    // wait.
    let limit = LimitLayer::keyed(&keys, key::header("x-api-key")).refuse().respond();
    let api = Router::new().route("/", get(async || "hello\n")).layer(limit.problem_json());
    Router::new().route("/limit", put(set_limit)).with_state(keys).merge(api)
}

/// Takes effect at once, also for keys in use: their tokens so far count at the old rate. `set_quota` replaces all quotas
/// of the keys: with a second one, pass both, `keys.set_quota([quota, PER_DAY])`.
async fn set_limit(State(keys): State<Keys>, text: String) -> (StatusCode, String) {
    let changed = text.trim().parse::<Quota>().map_err(|error| error.to_string());
    match changed.and_then(|quota| keys.set_quota(quota).map(|()| quota).map_err(|error| error.to_string())) {
        Ok(quota) => (StatusCode::OK, format!("each key has {quota} now\n")),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let keys = KeyedLimiter::builder().quota(Quota::per_second(1).burst(2)).max_keys(100_000).build()?;
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app(keys)).await?)
}
