//! A limiter whose metrics and spans arrive in an OpenTelemetry collector.
//!
//! ```text
//! cargo run -p otlp -- http://localhost:4318    # where a collector listens, with OTLP over HTTP
//! ```
//!
//! The test of this package shows what arrives there.

use otlp::Telemetry;
use std::error::Error;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tollgate::metrics::Meter;
use tollgate::{Limiter, Quota};
use tracing::{Instrument, info_span};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::args().nth(1).unwrap_or("http://localhost:4318".to_owned());
    let telemetry = Telemetry::install("otlp", &endpoint)?;
    let limiter = Limiter::builder().quota(Quota::per_second(20).burst(5)).max_waiting(4).build()?;
    let meter = Meter::new("api", &limiter)?;

    // Some time before each export, the series are set to their present values.
    let publishing = meter.clone();
    tokio::spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            publishing.publish();
        }
    });

    // Twelve requests at once: five pass, four wait, three are refused.
    let mut requests = JoinSet::new();
    for number in 0..12 {
        let limiter = limiter.clone();
        let request = async move { limiter.consume(1).await.map(drop) };
        requests.spawn(request.instrument(info_span!("request", number)));
    }
    let refused = requests.join_all().await.into_iter().filter(Result::is_err).count();
    println!("{refused} of 12 requests were refused");

    meter.publish();
    let exported = spawn_blocking(|| telemetry.shutdown()).await?;
    Ok(exported.map_err(|error| format!("{error}: does a collector listen at {endpoint}?"))?)
}
