//! Quotas in dry run: they refuse no request, and the metrics have what they would have refused.

use super::app::config::Config;
use super::fixture::*;

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
    let fixture = TestGateway::before(upstream, address, &limits(true)).await;
    let status = async |key: &str| fixture.get("/", key).send().await.unwrap().status();
    let upload = async |key: &str| fixture.get("/", key).body("a body").send().await.unwrap().status();
    for key in ["k-ann", "unlisted"] {
        for _ in 0..4 {
            assert_eq!(status(key).await, StatusCode::OK);
        }
        // The wait of a request with a body is looked at before the body is read.
        assert_eq!(upload(key).await, StatusCode::OK);
    }
    let metrics = fixture.page("/metrics").await;
    for key in ["listed", "unlisted"] {
        let series = format!("rate_limit_would_refuse_total{{key=\"{key}\",reason=\"too_late\"}} 3");
        assert!(metrics.contains(&series), "{metrics}");
    }
    let change = |dry_run| {
        let path = Path::new("gateway.toml");
        fixture.gateway.limits.change(Config::parse(path, &file(address, &limits(dry_run))).unwrap(), path).unwrap();
    };
    change(false);
    for key in ["k-ann", "unlisted"] {
        assert_eq!([status(key).await, upload(key).await], [StatusCode::TOO_MANY_REQUESTS; 2]);
    }
    change(true);
    assert_eq!([status("k-ann").await, upload("k-ann").await], [StatusCode::OK; 2]);
}

fn route(settings: &str) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n\
         unlisted = \"by-key\"\n[[routes]]\npath = \"/reports\"\nquota = \"1/h, burst 3\"\n\
         key_quota = \"1/h, burst 2\"\n{settings}\n"
    )
}

#[tokio::test]
async fn a_route_in_dry_run_refuses_no_request_and_reports_what_it_would() {
    let fixture = TestGateway::new(&route("dry_run = true")).await;
    let status = async |key: &str| fixture.get("/reports", key).send().await.unwrap().status().as_u16();
    for key in ["ann", "ann", "ann", "bob", "bob"] {
        assert_eq!(status(key).await, 200, "{key}");
    }
    let metrics = fixture.page("/metrics").await;
    for (limit, count) in [("route /reports each", 1), ("route /reports", 2)] {
        let series = format!("rate_limit_would_refuse_total{{key=\"{limit}\",reason=\"too_late\"}} {count}\n");
        assert!(metrics.contains(&series), "{series} is not in {metrics}");
    }
    // Enforced, the quota of the route goes on with its level, and those of its clients begin full.
    change(&fixture, &route("")).unwrap();
    assert_eq!(status("cid").await, 429);
    change(&fixture, &route("").replace("1/h, burst 3", "1000/s")).unwrap();
    fixture.advance(SECOND);
    for (key, expected) in [("ann", 200), ("ann", 200), ("ann", 429)] {
        assert_eq!(status(key).await, expected, "{key}");
    }
    // And in dry run again.
    change(&fixture, &route("dry_run = true")).unwrap();
    assert_eq!(status("ann").await, 200);
}

#[tokio::test]
async fn a_request_that_an_enforced_limit_refuses_takes_no_tokens_of_a_dry_run() {
    // The limit of all comes after those of routes, and admits one request.
    let text = route("dry_run = true").replacen("1000/s", "1/h, burst 1", 1);
    let fixture = TestGateway::new(&text).await;
    let mut statuses = Vec::new();
    for key in ["ann", "bob", "cid", "dan", "eve"] {
        statuses.push(fixture.get("/reports", key).send().await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 429, 429]);
    change(&fixture, &text.replace("dry_run = true", "").replace("1/h, burst 1", "1000/s, burst 9")).unwrap();
    fixture.advance(SECOND);
    statuses.clear();
    for key in ["ann", "bob", "cid"] {
        statuses.push(fixture.get("/reports", key).send().await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429], "one token was used");
}

#[test]
fn what_cannot_be_in_dry_run_is_refused_with_what_to_write() {
    for (settings, expected) in [
        ("dry_run = true\nin_flight = 3", "leave out `dry_run` or `in_flight`"),
        ("[[networks]]\ncidr = \"10.0.0.0/8\"\ndry_run = true", "`dry_run` has no effect without a quota"),
        (
            "[[networks]]\ncidr = \"10.0.0.0/8\"\nrefuse = true\ndry_run = true",
            "`dry_run` has no effect without a quota",
        ),
    ] {
        let said = problem(&route(settings));
        assert!(said.contains(expected) && said.contains("^^^^"), "{expected}: {said}");
    }
}
