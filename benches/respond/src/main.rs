//! What `respond()` costs a request that passes: without it, with it, and with fields on every response, for one limiter
//! and for a keyed one. The rows of a round run one after the other; each time is the median of the rounds, and so is each
//! difference to the first row of its group.
//!
//! `cargo run --release --manifest-path benches/respond/Cargo.toml`

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::time::Instant;

use futures::FutureExt;
use http::{Request, Response};
use tollgate::{KeyedLimiter, Limiter, Quota};
use tollgate_tower::LimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

type Body = String;

const ROUNDS: usize = 201;
const CALLS: u32 = 2_000;

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::new())))
}

/// Nanoseconds for each call.
fn time<S: Service<Request<Body>> + Clone>(service: &S) -> f64
where
    S::Error: std::fmt::Debug,
{
    let began = Instant::now();
    for _ in 0..CALLS {
        let request = Request::get("/").header("x-api-key", "ann").body(Body::new()).expect("it is valid");
        let response = service.clone().oneshot(request).now_or_never().expect("no call waits");
        black_box(response.is_ok());
    }
    began.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, rows: &[(&str, &dyn Fn() -> f64)]) {
    let rounds: Vec<Vec<f64>> = (0..ROUNDS).map(|_| rows.iter().map(|(_, time)| time()).collect()).collect();
    for (index, (row, _)) in rows.iter().enumerate() {
        let all = median(rounds.iter().map(|round| round[index]).collect());
        let more = median(rounds.iter().map(|round| round[index] - round[0]).collect());
        println!("| {name}, {row} | {all:.0} | {more:+.0} |");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // No call is delayed.
    let quota = Quota::per_second(1_000_000_000);
    let limiter = Limiter::new(quota)?;
    let clients = KeyedLimiter::new(quota)?;
    let key = |request: &Request<Body>| {
        (request.headers()["x-api-key"].to_str().unwrap_or_default().to_owned(), 1)
    };
    println!("| | ns a call | more than the first row |\n|---|---|---|");
    let plain = LimitLayer::new(&limiter).layer(service_fn(answer));
    let refusals = LimitLayer::new(&limiter).respond().layer(service_fn(answer));
    let always = LimitLayer::new(&limiter).respond().on_every_response().layer(service_fn(answer));
    report(
        "one limiter",
        &[
            ("no `respond()`", &|| time(&plain)),
            ("`respond()`", &|| time(&refusals)),
            ("`respond().on_every_response()`", &|| time(&always)),
        ],
    );
    let plain = LimitLayer::keyed(&clients, key).layer(service_fn(answer));
    let refusals = LimitLayer::keyed(&clients, key).respond().layer(service_fn(answer));
    let always = LimitLayer::keyed(&clients, key).respond().on_every_response().layer(service_fn(answer));
    report(
        "a limiter for each key",
        &[
            ("no `respond()`", &|| time(&plain)),
            ("`respond()`", &|| time(&refusals)),
            ("`respond().on_every_response()`", &|| time(&always)),
        ],
    );
    Ok(())
}
