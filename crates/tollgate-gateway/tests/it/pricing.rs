//! The cost of a request, whichever way its path and its method are written.

use super::fixture::*;
use super::raw::Raw;

const ROUTES: &str = "quota = \"100000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\n\
                      [[routes]]\npath = \"/reports\"\ncost = 10\n\
                      [[routes]]\npath = \"/status\"\ncost = 0\n\
                      [[routes]]\npath = \"/jobs\"\nmethods = [\"GET\"]\ncost = 4\n\
                      [[routes]]\npath = \"/jobs\"\nmethods = [\"DELETE\"]\ncost = 6\n\
                      [[routes]]\npath = \"/Caf\u{e9}s\"\ncost = 5\n";

/// The status and the tokens that a request took, by its request line without the version.
async fn took(fixture: &TestGateway, line: &str, headers: &str) -> (String, u64) {
    let granted = || fixture.gateway.limits.all.snapshot().granted;
    let before = granted();
    let request = format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
    let answer = Raw::sent(fixture.address, request).await.rest().await;
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), granted() - before)
}

#[tokio::test]
async fn no_spelling_of_a_path_is_cheaper_than_the_path() {
    let fixture = TestGateway::new(ROUTES).await;
    for path in [
        "/reports",
        "/reports/weekly",
        "http://elsewhere/reports",
        // Case.
        "/REPORTS",
        "/Reports/x",
        "/report%C5%BF",
        // Parameters.
        "/reports;a=1",
        "/reports;/x",
        "/x/..;/reports",
        "/x/..;a=1/reports",
        "/;/reports",
        // Dots and slashes.
        "//reports",
        "/./reports",
        "/x/../reports",
        "/x//../reports",
        "/x/..//reports",
        "/status/../reports",
        "/status/..;/reports",
        "/reports/../status/../x",
        "/reports.",
        "/reports%20",
        // Escapes, once and several times.
        "/%72eports",
        "/%2572eports",
        "/%252572eports",
        "/x/%2e%2e/reports",
        "/x/%252e%252e/reports",
        "/x/..%2freports",
        "/x/..%252freports",
        "/status%2f..%2freports",
        "/reports%3bx",
        "/x/..%3b/reports",
        "/reports%3fx",
        "/reports%253fx",
        "/reports%23x",
        "/reports%00.png",
        // Backslashes.
        "/x\\..\\reports",
        "/x%5c..%5creports",
        "/x/..\\reports",
        "\\reports",
    ] {
        let (status, tokens) = took(&fixture, &format!("GET {path}"), "").await;
        assert!(tokens >= 10 || status == "400", "{path}: {status}, {tokens} tokens");
    }
}

#[tokio::test]
async fn a_path_that_may_mean_less_costs_the_most_that_it_may_mean() {
    let fixture = TestGateway::new(ROUTES).await;
    for (path, expected) in [
        ("/status", 0),
        ("/status/x", 0),
        ("/status/a%20b", 0),
        ("/status?a=/../reports", 0),
        // An upstream may take each of these for another path than `/status`.
        ("/STATUS", 1),
        ("/%73tatus", 1),
        ("/status;a", 1),
        ("/x/../status", 1),
        ("//status", 1),
        // No route.
        ("/", 1),
        ("/reportsx", 1),
        ("/x/reports", 1),
        ("/a%2fb/%C3%A9;v=1/C", 1),
        ("/caf%C3%A9s", 5),
        ("/CAF%C3%89S", 5),
    ] {
        let seen = took(&fixture, &format!("GET {path}"), "").await;
        assert_eq!(seen, ("200".to_owned(), expected), "{path}");
    }
    // Too much to read: the highest price of all.
    let nested = format!("/%{}41", "25".repeat(100));
    let long = format!("/{}", "%61".repeat(2_000));
    for path in [nested, long] {
        assert_eq!(took(&fixture, &format!("GET {path}"), "").await.1, 10, "{path}");
    }
    // No escape at all: refused.
    for path in ["/%zz", "/x%2", "/%u0072eports"] {
        assert_eq!(took(&fixture, &format!("GET {path}"), "").await, ("400".to_owned(), 0), "{path}");
    }
}

#[tokio::test]
async fn a_method_costs_the_most_that_it_may_mean() {
    let fixture = TestGateway::new(ROUTES).await;
    for (line, headers, expected) in [
        ("GET /jobs", "", 4),
        ("HEAD /jobs", "", 4),
        ("get /jobs", "", 4),
        ("POST /jobs", "", 1),
        ("POST /jobs", "x-http-method-override: DELETE\r\n", 6),
        ("POST /jobs", "X-Http-Method: delete\r\n", 6),
        ("DELETE /jobs", "x-method-override: GET\r\n", 6),
    ] {
        assert_eq!(took(&fixture, line, headers).await, ("200".to_owned(), expected), "{line} {headers}");
    }
}

/// Some upstreams take the path from these fields.
#[tokio::test]
async fn no_field_replaces_the_path() {
    let (upstream, address) = super::raw::RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, ROUTES).await;
    let fields = "X-Original-URL: /reports\r\nx-rewrite-url: /reports\r\nx-yours: 1\r\n";
    let _client = Raw::sent(fixture.address, format!("GET /x HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await;
    let head = upstream.accept().await.head().await;
    assert!(!head.contains("/reports") && head.contains("x-yours: 1\r\n"), "{head}");
}
