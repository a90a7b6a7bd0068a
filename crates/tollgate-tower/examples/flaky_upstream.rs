//! A client of an upstream that fails at times, hangs at times, and says when to come back.
//!
//! ```text
//! cargo run -p tollgate-tower --features http --example flaky_upstream
//! ```
//!
//! Each attempt passes the limiter, so retries cannot exceed the rate. After a 503 with Retry-After all callers pause. A
//! request that hangs keeps one of four places for half a second, not for ever.

use axum::http::{Response, StatusCode, header::RETRY_AFTER};
use axum::{Router, routing::get};
use reqwest::{Body, Client, Method, Request, Url};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::{net::TcpListener, time::sleep};
use tollgate::{Limiter, Quota};
use tollgate_tower::{LimitError, LimitLayer, http::HeedLayer};
use tower::{ServiceBuilder, ServiceExt};

/// Every fifth request fails, every seventh hangs.
async fn upstream() -> Result<&'static str, (StatusCode, [(axum::http::HeaderName, &'static str); 1])> {
    static SEEN: AtomicU64 = AtomicU64::new(1);
    match SEEN.fetch_add(1, Relaxed) {
        n if n % 5 == 0 => return Err((StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")])),
        n if n % 7 == 0 => sleep(Duration::from_secs(3_600)).await,
        _ => {}
    }
    Ok("ok")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url: Url = format!("http://{}/", listener.local_addr()?).parse()?;
    tokio::spawn(axum::serve(listener, Router::new().route("/", get(upstream))).into_future());

    let limiter = Limiter::builder().quota(Quota::per_second(50).burst(5)).max_in_flight(4).build()?;
    let http = Client::builder().timeout(Duration::from_millis(500)).build()?;
    let client = ServiceBuilder::new()
        .layer(LimitLayer::new(&limiter).within(Duration::from_secs(10)))
        .layer(HeedLayer::new(&limiter)) // pauses the limiter as the upstream says
        .service(http.map_response(Response::<Body>::from));
    let began = Instant::now();
    let call = async |number: u32| {
        for attempt in 1..=4 {
            let outcome = match client.clone().oneshot(Request::new(Method::GET, url.clone())).await {
                Ok(response) if response.status().is_success() => "ok".to_owned(),
                Ok(response) => response.status().to_string(),
                Err(LimitError::Inner(error)) if error.is_timeout() => "no answer".to_owned(),
                Err(error) => return println!("call {number}: {error}"), // the limiter refused, or no connection
            };
            println!("{:5.2} s: call {number}, attempt {attempt}: {outcome}", began.elapsed().as_secs_f64());
            if outcome == "ok" {
                return;
            }
        }
    };
    futures::future::join_all((0..20).map(call)).await;
    Ok(())
}
