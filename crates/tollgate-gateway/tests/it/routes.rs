//! The limits of routes, besides those of keys and of all.

use super::fixture::*;

use reqwest::StatusCode;

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Large limits of keys and of all, then these routes.
fn limits(max_wait: &str, routes: &str) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"{max_wait}\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n\
         unlisted = \"by-key\"\n[keys.listed.ann]\nkey = \"k-ann\"\nweight = 3\n{routes}"
    )
}

async fn status(fixture: &TestGateway, path: &str, key: &str) -> StatusCode {
    fixture.get(path, key).send().await.unwrap().status()
}

fn granted(fixture: &TestGateway) -> u64 {
    let all = fixture.gateway.limits.all.snapshot();
    all.granted - all.refunded
}

#[tokio::test]
async fn a_request_takes_the_tokens_of_its_key_its_route_and_all() {
    let routes = "[[routes]]\npath = \"/reports\"\ncost = 2\nquota = \"2/s, burst 6\"\n";
    let fixture = TestGateway::new(&limits("0s", routes)).await;
    for key in ["a", "b", "k-ann"] {
        assert_eq!(status(&fixture, "/reports/weekly", key).await, OK);
    }
    let refused = fixture.get("/reports", "c").send().await.unwrap();
    assert_eq!((refused.status(), &refused.headers()["retry-after"]), (REFUSED, &"1".parse().unwrap()));
    let field = |name: &str| refused.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        field("ratelimit-policy"),
        "\"key\";q=1000;w=1, \"route /reports\";q=2;w=1;tollgate-burst=6",
        "the limit that refused has its name"
    );
    assert_eq!(field("ratelimit"), "\"key\";r=1000;t=1, \"route /reports\";r=0;t=1");
    let body: serde_json::Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["route /reports"]));
    assert_eq!(granted(&fixture), 6, "a refused request keeps the tokens of all");
    let unlisted = fixture.gateway.limits.clients.unlisted.snapshot();
    assert_eq!(unlisted.granted - unlisted.refunded, 4, "and those of its key");
    // No spelling of the path evades the limit, and other paths have none.
    for path in ["/REPORTS", "//reports", "/x/../reports", "/%2572eports", "/reports;a=1"] {
        assert_eq!(status(&fixture, path, "c").await, REFUSED, "{path}");
    }
    assert_eq!(status(&fixture, "/other", "c").await, OK);
    fixture.advance(SECOND);
    assert_eq!(status(&fixture, "/reports", "c").await, OK);
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.refused_rule, counts.refused_each, counts.refused_all), (6, 0, 0));
    let metrics = fixture.page("/metrics").await;
    for expected in [
        "gateway_requests_total{outcome=\"refused_rule\"}",
        "gateway_refusals_total{reason=\"rule_quota\",limit=\"route /reports\"}",
    ] {
        assert!(metrics.contains(expected), "{metrics}");
    }
    assert!(
        metrics.contains("rate_limit_waiting_requests{key=\"route /reports\"}")
            || metrics.contains("key=\"route /reports\"")
    );
}

#[tokio::test]
async fn each_key_has_a_quota_of_its_own_on_a_route() {
    let routes = "[[routes]]\npath = \"/reports\"\nname = \"slow\"\nkey_quota = \"1/h, burst 2\"\n";
    let fixture = TestGateway::new(&limits("0s", routes)).await;
    for key in ["a", "k-ann", "a", "k-ann"] {
        assert_eq!(status(&fixture, "/reports", key).await, OK, "{key}");
    }
    for key in ["a", "k-ann"] {
        let refused = fixture.get("/reports", key).send().await.unwrap();
        let policy = refused.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(policy.ends_with("\"route slow each\";q=1;w=3600;tollgate-burst=2"), "{policy}");
        assert_eq!((refused.status(), &refused.headers()["retry-after"]), (REFUSED, &"3600".parse().unwrap()));
        assert_eq!(status(&fixture, "/elsewhere", key).await, OK);
    }
    assert_eq!(status(&fixture, "/reports", "b").await, OK);
}

/// A path that may mean either route takes the tokens of both.
#[tokio::test]
async fn an_ambiguous_path_takes_the_tokens_of_each_route_that_it_may_mean() {
    let routes =
        "[[routes]]\npath = \"/a\"\nquota = \"1/h, burst 1\"\n[[routes]]\npath = \"/b\"\nquota = \"1/h, burst 2\"\n";
    let fixture = TestGateway::new(&limits("0s", routes)).await;
    assert_eq!(status(&fixture, "/a/..;/b", "x").await, OK);
    assert_eq!(status(&fixture, "/a", "x").await, REFUSED);
    assert_eq!(status(&fixture, "/b", "x").await, OK);
    assert_eq!(status(&fixture, "/b", "x").await, REFUSED);
}

#[tokio::test]
async fn clients_share_the_quota_of_a_route_by_weight() {
    let routes = "[[routes]]\npath = \"/r\"\nquota = \"10/s, burst 1\"\n";
    let fixture = TestGateway::new(&limits("1h", routes).replace("\nmax_wait", "\nmax_waiting = 1000\nmax_wait")).await;
    assert_eq!(status(&fixture, "/r", "first").await, OK);
    let flood: Vec<_> = (0..60).map(|_| fixture.send("/r", "flood")).collect();
    let shared = fixture.gateway.limits.rules.shared(super::app::request::name::Name::new("route /r")).unwrap();
    until("all wait", || shared.fair_queue.waiting() == 60).await;
    let listed: Vec<_> = (0..9).map(|_| fixture.send("/r", "k-ann")).collect();
    until("all wait", || shared.fair_queue.waiting() == 69).await;
    fixture.advance(SECOND);
    until("served", || fixture.upstream.count() == 11).await;
    assert_eq!(fixture.upstream.count_of("k-ann"), 9, "listed keys get nine of ten tokens");
    for request in listed {
        assert_eq!(request.await.unwrap().status(), OK);
    }
    // Clients that hang up leave the queue, and the tokens in flight come back.
    flood.iter().for_each(tokio::task::JoinHandle::abort);
    until("gone", || shared.fair_queue.waiting() == 0).await;
    until("landed", || shared.limiter.snapshot().in_flight == Some(0)).await;
}

#[tokio::test]
async fn a_cap_in_flight_of_a_route_holds_to_the_last_byte_and_leaks_nothing() {
    let routes = "[[routes]]\npath = \"/stream\"\nin_flight = 2\n";
    let fixture = TestGateway::new(&limits("1h", routes)).await;
    let streams: Vec<_> = (0..3).map(|_| fixture.upstream.stream()).collect();
    let mut first = fixture.get("/stream", "a").send().await.unwrap();
    let second = fixture.get("/stream", "b").send().await.unwrap();
    let shared = fixture.gateway.limits.rules.shared(super::app::request::name::Name::new("route /stream")).unwrap();
    let third = fixture.send("/stream", "c");
    until("it waits", || shared.fair_queue.waiting() == 1).await;
    assert_eq!(status(&fixture, "/", "c").await, OK);
    streams[0].close_channel();
    assert!(first.chunk().await.unwrap().is_none());
    let third = third.await.unwrap();
    drop((second, third, streams));
    until("landed", || shared.limiter.snapshot().in_flight == Some(0)).await;
    until("landed", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

#[tokio::test]
async fn a_change_keeps_levels_and_serves_what_waits_for_a_limit_that_is_gone() {
    let route = |more: &str| limits("1h", &format!("[[routes]]\npath = \"/r\"\n{more}"));
    let fixture = TestGateway::new(&route("quota = \"1/h, burst 3\"\nkey_quota = \"1/h, burst 1\"\n")).await;
    assert_eq!(status(&fixture, "/r", "a").await, OK);
    let name = super::app::request::name::Name::new("route /r");
    let shared = fixture.gateway.limits.rules.shared(name).unwrap();
    assert_eq!(shared.limiter.available(), 2);
    change(&fixture, &route("quota = \"1/h, burst 5\"\nkey_quota = \"1/h, burst 2\"\n")).unwrap();
    assert_eq!(shared.limiter.available(), 2, "a larger burst fills up to it");
    let own = fixture.send("/r", "a");
    for key in ["b", "c"] {
        assert_eq!(status(&fixture, "/r", key).await, OK);
    }
    let last = fixture.send("/r", "d");
    until("it waits for the route", || shared.fair_queue.waiting() == 1).await;
    until("both came", || fixture.gateway.counters.counts().came == 5).await;
    assert_eq!(fixture.upstream.count(), 3, "the first key has no token of its own");
    change(&fixture, &route("")).unwrap();
    fixture.advance(MILLI);
    shared.limiter.tick();
    assert_eq!(own.await.unwrap().status(), OK);
    assert_eq!(last.await.unwrap().status(), OK);
    assert!(fixture.gateway.limits.rules.shared(name).is_none());
    change(&fixture, &route("quota = \"1/h, burst 1\"\n")).unwrap();
    assert_eq!(fixture.gateway.limits.rules.shared(name).unwrap().limiter.available(), 1);
}

#[test]
fn wrong_limits_of_routes_are_refused_with_their_line() {
    for (route, line, expected) in [
        ("quota = \"often\"", "^^^^^", "rate"),
        ("quota = \"1/s, burst 0\"", "^^^^^^^^^^^^", "burst"),
        ("cost = 9\nquota = \"1/s, burst 2\"", "^^^^^^^^^^^^", "a cost of 9 waits for 7s even in a full bucket"),
        ("cost = 9\nkey_quota = \"1/s\"", "^^^", "of each client of `route /r`"),
        ("cost = 9\nin_flight = 3", "^", "a cost of 9 exceeds `in_flight`"),
        ("in_flight = 0", "^", "no request could ever pass"),
        ("cost = 0\nquota = \"1/s\"", "^", "its limits have no effect"),
        ("name = \"\"\nquota = \"9/s\"", "^^", "this name is empty"),
        (
            "quota = \"9/s\"\n[[routes]]\npath = \"/r\"\nmethods = [\"PUT\"]\nquota = \"1/s\"",
            "^^^^",
            "give one a `name`",
        ),
    ] {
        let said = problem(&limits("0s", &format!("[[routes]]\npath = \"/r\"\n{route}\n")));
        assert!(said.contains(expected) && said.contains(line), "{route}: {said}");
    }
}
