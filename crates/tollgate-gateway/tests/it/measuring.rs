//! The metrics of the program itself: the upstream's latency and status, refusals by reason, and buckets.

use super::fixture::{Upstream, nowhere, serve};
use super::process::Process;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::collections::BTreeMap;
use std::net::SocketAddr;

async fn metrics(admin: SocketAddr) -> BTreeMap<String, f64> {
    let text = reqwest::get(format!("http://{admin}/metrics")).await.unwrap().text().await.unwrap();
    let series = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect()
}

async fn status(address: SocketAddr, path: &str, key: &str) -> StatusCode {
    let request = reqwest::Client::new().get(format!("http://{address}{path}")).header("x-api-key", key);
    request.send().await.unwrap().status()
}

fn limits(more: &str) -> String {
    format!("quota = \"1000/s\"\nmax_wait = \"2s\"\n[keys]\nheader = \"x-api-key\"\nunlisted = \"refuse\"\n{more}")
}

const KEYS: &str = "quota = \"1/h, burst 4\"\n[keys.listed.ann]\nkey = \"k-ann\"\n";

#[tokio::test]
async fn the_upstream_has_a_histogram_and_counters_by_class_and_by_fault() {
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/gone", get(async || StatusCode::GONE))
        .route("/broken", get(async || StatusCode::INTERNAL_SERVER_ERROR));
    let gateway = Process::start("measuring", serve(router).await, &limits(KEYS));
    for (path, expected) in [("/", 200), ("/", 200), ("/gone", 410), ("/broken", 500), ("/", 429)] {
        assert_eq!(status(gateway.address, path, "k-ann").await, expected);
    }
    assert_eq!(status(gateway.address, "/", "unlisted").await, 401);
    let seen = metrics(gateway.admin).await;
    for (name, expected) in [
        ("gateway_upstream_responses_total{class=\"2xx\"}", 2.0),
        ("gateway_upstream_responses_total{class=\"4xx\"}", 1.0),
        ("gateway_upstream_responses_total{class=\"5xx\"}", 1.0),
        ("gateway_upstream_errors_total{reason=\"connect\"}", 0.0),
        ("gateway_upstream_duration_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("gateway_upstream_duration_seconds_bucket{le=\"50\"}", 4.0),
        ("gateway_upstream_duration_seconds_count", 4.0),
        ("gateway_wait_seconds_count", 4.0),
        ("gateway_refusals_total{reason=\"own_quota\",limit=\"key\"}", 1.0),
        ("gateway_refusals_total{reason=\"unknown_key\",limit=\"none\"}", 1.0),
    ] {
        assert_eq!(seen.get(name), Some(&expected), "{name}: {seen:#?}");
    }
    assert!(seen["gateway_upstream_duration_seconds_sum"] > 0.0);
    assert!(seen.contains_key("gateway_upstream_duration_seconds_bucket{le=\"0.025\"}"));
}

#[tokio::test]
async fn an_upstream_that_is_not_there_counts_as_an_error_of_connecting() {
    let gateway = Process::start("unconnected", nowhere(), &limits(KEYS));
    assert_eq!(status(gateway.address, "/", "k-ann").await, 502);
    let seen = metrics(gateway.admin).await;
    assert_eq!(seen["gateway_upstream_errors_total{reason=\"connect\"}"], 1.0);
    assert_eq!(seen["gateway_upstream_duration_seconds_count"], 0.0);
}

#[tokio::test]
async fn the_waits_of_a_dry_run_have_buckets() {
    let (_upstream, address) = Upstream::start().await;
    let keys = "dry_run = true\nquota = \"1/s, burst 1\"\n[keys.listed.ann]\nkey = \"k-ann\"\n";
    let gateway = Process::start("rehearsed", address, &limits(keys));
    for _ in 0..2 {
        assert_eq!(status(gateway.address, "/", "k-ann").await, 200);
    }
    let seen = metrics(gateway.admin).await;
    let name = "rate_limit_would_wait_seconds_bucket{key=\"listed\",le=";
    assert_eq!(seen.get(&format!("{name}\"+Inf\"}}")), seen.get(&format!("{name}\"2.5\"}}")), "{seen:#?}");
    assert!(seen.keys().any(|series| series.starts_with(name)), "{seen:#?}");
}
