//! What `respond()` costs a request that passes: without it, with it, and with fields on every response, for one limiter,
//! for a keyed one, and for a keyed one with a million keys. The rows of a round run one after the other; each time is the
//! median of the rounds, and so is each difference to the first row of its group. All times are CPU time of the thread,
//! so other programs on the machine do not count, except for what they push out of the caches.
//!
//! `cargo run --release --manifest-path benches/respond/Cargo.toml`

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;

use futures::FutureExt;
use http::{Request, Response};
use rustix::time::{ClockId, clock_gettime};
use tollgate::{KeyedLimiter, Limiter, Quota};
use tollgate_tower::LimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

type Body = String;

const ROUNDS: usize = 201;
const CALLS: u32 = 2_000;

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::new())))
}

/// The keys of the last group.
const KEYS: u64 = 1_000_000;

/// The CPU time of this thread, in nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds for each call.
fn time<S: Service<Request<Body>> + Clone>(service: &S) -> f64
where
    S::Error: std::fmt::Debug,
{
    let began = now();
    for _ in 0..CALLS {
        let request = Request::get("/").header("x-api-key", "ann").body(Body::new()).expect("it is valid");
        let response = service.clone().oneshot(request).now_or_never().expect("no call waits");
        black_box(response.is_ok());
    }
    (now() - began) / f64::from(CALLS)
}

/// The median and the longest single call of one with each key, in random order, in nanoseconds.
fn time_each<S: Service<Request<Body>> + Clone>(service: &S) -> (f64, f64)
where
    S::Error: std::fmt::Debug,
{
    // All numbers below a power of two, each once, in an order that looks random.
    let numbers = (0..KEYS.next_power_of_two())
        .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS.next_power_of_two());
    let times = numbers.filter(|number| *number < KEYS).map(|number| {
        let request = Request::get("/").header("x-api-key", number.to_string()).body(Body::new()).expect("it is valid");
        let began = now();
        let response = service.clone().oneshot(request).now_or_never().expect("no call waits");
        let took = now() - began;
        black_box(response.is_ok());
        took
    });
    let times: Vec<f64> = times.collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    (median(times), longest)
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
    let key = |request: &Request<Body>| (request.headers()["x-api-key"].to_str().unwrap_or_default().to_owned(), 1);
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
    // None of them is forgotten during a run.
    let slow = Quota::per_hour(1).burst(1_000);
    let clients = KeyedLimiter::new(slow)?;
    let plain = LimitLayer::keyed(&clients, key).layer(service_fn(answer));
    let clients = KeyedLimiter::new(slow)?;
    let always = LimitLayer::keyed(&clients, key).respond().on_every_response().layer(service_fn(answer));
    println!("\n| a million keys, ns with two readings of the clock | median | longest call |\n|---|---|---|");
    // The first time the keys are new, and the tables grow.
    for keys in ["new keys", "known keys"] {
        let (plain, always) = (time_each(&plain), time_each(&always));
        println!("| {keys}, no `respond()` | {:.0} | {:.0} |", plain.0, plain.1);
        println!("| {keys}, `respond().on_every_response()` | {:.0} | {:.0} |", always.0, always.1);
    }
    Ok(())
}
