//! One quota per user in front of a real HTTP server: forty users keep it, and one does not.
//!
//! ```text
//! cargo run --release -p tollgate-tower --features keyed --example per_user
//! ```
//!
//! The server asks a `KeyedLimiter` before it works: a request waits in its user's queue for at most a quarter of a
//! second, and is otherwise refused with 429 and Retry-After. The example takes some four seconds, prints the results
//! of each kind of user, and ends with a machine-readable line. The exit code is 1 if the abusive user got more than
//! its quota, or if any other user was refused or delayed, and 2 if the program could not run.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use std::future::IntoFuture;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{ConsumeError, KeyedLimiter, Quota};

type Failure = Box<dyn Error + Send + Sync>;

const USERS: usize = 40;
/// The quota of each user, and the rate of the polite ones.
const RATE: u64 = 20;
const BURST: u64 = 10;
const POLITE_EVERY: Duration = Duration::from_millis(200);
const RUN_FOR: Duration = Duration::from_secs(3);
/// The number of requests that the abusive user has open at any time.
const FLOOD: usize = 64;
const MAX_WAIT: Duration = Duration::from_millis(250);
/// A user with tokens is admitted at once. On a busy machine that may take this long.
const HELD_UP: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("per_user: {error}");
        ExitCode::from(2)
    })
}

/// The server's records, by its own clock.
#[derive(Clone, Debug, Default)]
struct Account {
    served: u64,
    refused: u64,
    /// How long requests waited for the limiter.
    held: Vec<Duration>,
}

#[derive(Clone)]
struct Shop {
    users: KeyedLimiter<String>,
    books: Arc<Mutex<BTreeMap<String, Account>>>,
}

async fn serve(State(shop): State<Shop>, headers: HeaderMap) -> Response {
    let Some(user) = headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let came = Instant::now();
    let answer = shop.users.consume(&user, 1).within(MAX_WAIT).await.map(|grant| grant.remaining());
    let mut books = shop.books.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let account = books.entry(user).or_default();
    account.held.push(came.elapsed());
    match answer {
        Ok(remaining) => {
            account.served += 1;
            (StatusCode::OK, [("ratelimit-remaining", remaining.to_string())]).into_response()
        }
        Err(error) => {
            account.refused += 1;
            let wait = if let ConsumeError::TooLate { estimate, .. } = error { estimate.as_secs() + 1 } else { 1 };
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, wait.to_string())]).into_response()
        }
    }
}

#[tokio::main]
async fn run() -> Result<ExitCode, Failure> {
    let users = KeyedLimiter::builder().quota(Quota::per_second(RATE).burst(BURST)).max_keys(10_000).build()?;
    let shop = Shop { users, books: Arc::default() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let server = axum::serve(listener, Router::new().route("/", get(serve)).with_state(shop.clone()));
    let server = tokio::spawn(server.into_future());

    let began = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..USERS {
        clients.spawn(behave(address, format!("user-{number:02}"), number));
    }
    for _ in 0..FLOOD {
        clients.spawn(flood(address));
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    let took = began.elapsed();
    server.abort();
    let books = shop.books.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    Ok(report(&books, took, &shop.users))
}

/// Sends requests at a regular rate, well within the quota.
async fn behave(address: SocketAddr, user: String, number: usize) -> Result<(), Failure> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    tokio::time::sleep(POLITE_EVERY * number as u32 / USERS as u32).await;
    let mut turns = tokio::time::interval(POLITE_EVERY);
    let end = Instant::now() + RUN_FOR;
    while Instant::now() < end {
        turns.tick().await;
        ask(&client, address, &user).await?;
    }
    Ok(())
}

/// Sends the next request as soon as the last was answered, whatever the response.
async fn flood(address: SocketAddr) -> Result<(), Failure> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let end = Instant::now() + RUN_FOR;
    while Instant::now() < end {
        if ask(&client, address, "abuser").await? == StatusCode::TOO_MANY_REQUESTS {
            // A short pause, so that not even this user floods the loopback device.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(())
}

async fn ask(client: &Client<HttpConnector, Body>, address: SocketAddr, user: &str) -> Result<StatusCode, Failure> {
    let request = Request::get(format!("http://{address}/")).header("x-user", user).body(Body::empty())?;
    let response = client.request(request).await?;
    let status = response.status();
    to_bytes(Body::new(response.into_body()), 1_024).await?;
    Ok(status)
}

fn report(books: &BTreeMap<String, Account>, took: Duration, users: &KeyedLimiter<String>) -> ExitCode {
    let seconds = took.as_secs_f64();
    println!("{:10} {:>9} {:>9} {:>9} {:>12}", "user", "asked/s", "served/s", "refused", "held up, max");
    let (mut refused, mut held_up, mut polite) = (0, 0, 0);
    let mut abuser = Account::default();
    for (user, account) in books {
        let asked = (account.served + account.refused) as f64 / seconds;
        let longest = account.held.iter().max().copied().unwrap_or_default();
        println!(
            "{user:10} {asked:9.1} {:9.1} {:9} {:>12}",
            account.served as f64 / seconds,
            account.refused,
            format!("{:.1} ms", longest.as_secs_f64() * 1e3)
        );
        if user == "abuser" {
            abuser = account.clone();
        } else {
            polite += account.served;
            refused += account.refused;
            held_up += account.held.iter().filter(|held| **held > HELD_UP).count();
        }
    }
    let snapshot = users.snapshot();
    println!("\nkeys in memory: {}, refused most: {:?}", snapshot.keys, snapshot.most_refused);
    // Claims that fall due while a timer is late are delivered together.
    let late = snapshot.lateness.as_secs_f64().max(0.1);
    let allowed = BURST + (RATE as f64 * (seconds + late)).ceil() as u64;
    let is_right = refused == 0 && held_up == 0 && polite > 0 && abuser.served <= allowed && abuser.refused > 0;
    println!(
        "result={} polite_served={polite} polite_refused={refused} polite_held_up={held_up} abuser_served={} \
         abuser_allowed={allowed} abuser_refused={}",
        if is_right { "pass" } else { "fail" },
        abuser.served,
        abuser.refused
    );
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
