//! A client with a limiter for each host, which slows down and pauses as the host's responses say.
//!
//! ```text
//! cargo run -p tollgate-tower --features keyed,http --example polite_client -- http://127.0.0.1:3000/ 10
//! ```
//!
//! The example `axum_api` is a server to try it with.

use reqwest::Request;
use std::error::Error;
use std::time::{Duration, Instant};
use tollgate::{KeyedLimiter, Quota};
use tollgate_tower::http::{Heed, HeedLayer};
use tollgate_tower::{LimitError, LimitLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

/// The maximum for each host, with 4 requests at once.
const FASTEST: Quota = Quota::per_second(10).burst(4);

fn host(request: &Request) -> String {
    request.url().authority().to_owned()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: polite_client URL [COUNT]")?.parse::<reqwest::Url>()?;
    let count = arguments.next().map_or(Ok(10), |count| count.parse())?;
    // For each host at most `FASTEST`, and slower if the host says so.
    let hosts = KeyedLimiter::builder().quota(FASTEST).max_in_flight(4).max_keys(10_000).build()?;
    let began = Instant::now();
    let mut client = ServiceBuilder::new()
        .layer(LimitLayer::keyed(&hosts, |request: &Request| (host(request), 1)).within(Duration::from_secs(60)))
        .layer(HeedLayer::keyed(&hosts, host).with(Heed::default().follow(0, FASTEST)))
        .service(reqwest::Client::new().map_response(axum::http::Response::<reqwest::Body>::from));
    for _ in 0..count {
        match client.ready().await?.call(Request::new(reqwest::Method::GET, url.clone())).await {
            Ok(response) => println!("{:6.2} s: {}", began.elapsed().as_secs_f64(), response.status()),
            Err(LimitError::Refused(refused)) => println!("not sent: {refused}"),
            Err(LimitError::Inner(error)) => return Err(error.into()),
        }
    }
    Ok(())
}
