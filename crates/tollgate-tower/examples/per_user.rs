//! One quota per user in front of an HTTP server: one user floods it, and the others do not notice.
//!
//! ```text
//! cargo run -p tollgate-tower --features keyed --example per_user
//! ```
//!
//! A request waits in its user's queue for at most a quarter of a second, and is otherwise refused with 429 and Retry-After. The
//! example `axum_api` has the same as a layer.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{ConsumeError, KeyedLimiter, Quota};

type Failure = Box<dyn Error + Send + Sync>;

const MAX_WAIT: Duration = Duration::from_millis(250);
const RUN_FOR: Duration = Duration::from_secs(2);

async fn serve(State(users): State<KeyedLimiter<String>>, headers: HeaderMap) -> Response {
    let Some(user) = headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    match users.consume(&user, 1).within(MAX_WAIT).await {
        Ok(grant) => format!("{} left\n", grant.remaining()).into_response(),
        Err(error) => {
            let wait = if let ConsumeError::TooLate { estimate, .. } = error { estimate.as_secs() + 1 } else { 1 };
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, wait.to_string())]).into_response()
        }
    }
}

/// Sends requests one after the other. Returns how many were served and refused, and the longest wait for an answer.
async fn call(url: String, user: String, pause: Duration) -> Result<(String, u32, u32, Duration), Failure> {
    let (client, began) = (reqwest::Client::new(), Instant::now());
    let (mut served, mut refused, mut longest) = (0, 0, Duration::ZERO);
    while began.elapsed() < RUN_FOR {
        let sent = Instant::now();
        let status = client.get(&url).header("x-user", &user).send().await?.status();
        longest = longest.max(sent.elapsed());
        *(if status == StatusCode::OK { &mut served } else { &mut refused }) += 1;
        sleep(pause).await;
    }
    Ok((user, served, refused, longest))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let users = KeyedLimiter::builder().quota(Quota::per_second(20).burst(10)).max_keys(10_000).build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", get(serve)).with_state(users.clone());
    tokio::spawn(axum::serve(listener, app).into_future());

    let mut calls = JoinSet::new();
    for user in ["ann", "bob", "cyd"] {
        calls.spawn(call(url.clone(), user.to_owned(), Duration::from_millis(100)));
    }
    for _ in 0..32 {
        calls.spawn(call(url.clone(), "flooder".to_owned(), Duration::from_millis(2)));
    }
    let mut answers = BTreeMap::<String, (u32, u32, Duration)>::new();
    while let Some(called) = calls.join_next().await {
        let (user, served, refused, longest) = called??;
        let seen = answers.entry(user).or_default();
        *seen = (seen.0 + served, seen.1 + refused, seen.2.max(longest));
    }
    for (user, (served, refused, longest)) in answers {
        println!("{user:>8}: {served:>3} served, {refused:>4} refused, answers after {longest:.1?} at most");
    }
    println!("refused most: {:?}", users.snapshot().most_refused);
    Ok(())
}
