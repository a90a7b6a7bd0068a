//! Quotas of keys in dry run: they refuse no request, and the metrics have what they would have refused.

use super::app::config::Config;
use super::world::*;

use reqwest::StatusCode;
use std::path::Path;

fn limits(dry_run: bool) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/h, burst 2\"\n\
         unlisted = \"by-key\"\ndry_run = {dry_run}\n[keys.listed.ann]\nkey = \"k-ann\"\n"
    )
}

#[tokio::test]
async fn quotas_of_keys_in_dry_run_refuse_no_request_and_report_what_they_would() {
    let (upstream, address) = Upstream::start().await;
    let world = TestGateway::before(upstream, address, &limits(true)).await;
    let status = async |key: &str| world.get("/", key).send().await.unwrap().status();
    let upload = async |key: &str| world.get("/", key).body("a body").send().await.unwrap().status();
    for key in ["k-ann", "stranger"] {
        for _ in 0..4 {
            assert_eq!(status(key).await, StatusCode::OK);
        }
        // The wait of a request with a body is looked at before the body is read.
        assert_eq!(upload(key).await, StatusCode::OK);
    }
    let metrics = world.page("/metrics").await;
    for key in ["listed", "unlisted"] {
        let series = format!("rate_limit_would_refuse_total{{key=\"{key}\",reason=\"too_late\"}} 3");
        assert!(metrics.contains(&series), "{metrics}");
    }
    let change = |dry_run| {
        let path = Path::new("gateway.toml");
        world.gateway.limits.change(Config::parse(path, &file(address, &limits(dry_run))).unwrap(), path).unwrap();
    };
    change(false);
    for key in ["k-ann", "stranger"] {
        assert_eq!([status(key).await, upload(key).await], [StatusCode::TOO_MANY_REQUESTS; 2]);
    }
    change(true);
    assert_eq!([status("k-ann").await, upload("k-ann").await], [StatusCode::OK; 2]);
}
