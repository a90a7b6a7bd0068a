//! A service with a limiter that sends its metrics and spans to an OpenTelemetry collector.
//!
//! `cargo run -p otlp -- http://localhost:4318` exports to that collector. Without an
//! address a stand-in for a collector runs in the same process, and the program prints what has arrived there.

use otlp::{Collector, Point, Telemetry};
use std::error::Error;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tollgate::metrics::Meter;
use tollgate::{Limiter, Quota};
use tracing::{Instrument, info_span};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(endpoint) => {
            let telemetry = Telemetry::install("otlp", &endpoint)?;
            serve().await?;
            let exported = spawn_blocking(|| telemetry.shutdown()).await?;
            exported
                .map_err(|error| format!("{error}: does a collector listen at {endpoint}, with OTLP over HTTP?"))?;
            println!("exported to {endpoint}");
        }
        None => {
            let collector = Collector::start().await?;
            let telemetry = Telemetry::install("otlp", &collector.endpoint)?;
            serve().await?;
            spawn_blocking(|| telemetry.shutdown()).await??;
            print(&collector)?;
        }
    }
    Ok(())
}

/// Twelve requests at once, for a quota of 20 per second with a burst of 5: five pass, four wait, three are refused.
async fn serve() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().quota(Quota::per_second(20).burst(5)).max_waiting(4).build()?;
    let meter = Meter::new("api", &limiter)?;

    // Some time before each export, the series are set to their present values.
    let publishing = tokio::spawn({
        let meter = meter.clone();
        async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                meter.publish();
            }
        }
    });

    let mut requests = JoinSet::new();
    for number in 0..12 {
        let limiter = limiter.clone();
        let request = async move { limiter.consume(1).await.map(drop) };
        requests.spawn(request.instrument(info_span!("request", number)));
    }
    let refused = requests.join_all().await.into_iter().filter(Result::is_err).count();
    println!("{refused} of 12 requests were refused");

    publishing.abort();
    meter.publish();
    Ok(())
}

fn print(collector: &Collector) -> Result<(), Box<dyn Error>> {
    let (points, spans) = (collector.points(), collector.spans());
    println!("\nThe collector has received these series, among others:");
    for (series, Point { kind, unit, value, count }) in &points {
        if *value != 0.0 {
            let count = if *count > 0 { format!(" in {count} values") } else { String::new() };
            println!("  {series}: {kind} {value:.3} {unit}{count}");
        }
    }
    println!("and these spans:");
    for span in &spans {
        println!("  {}", otlp::line_of(span));
    }
    println!("\notlp: series={} spans={}", points.len(), spans.len());
    if points.is_empty() || spans.is_empty() { Err("nothing has arrived".into()) } else { Ok(()) }
}
