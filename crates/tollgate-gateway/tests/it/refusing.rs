//! Refusals: their contents, and that they cost no tokens.

use super::fixture::*;

use reqwest::StatusCode;

const LIMITS: &str = "quota = \"10/s, burst 4\"\nmax_wait = \"99ms\"\nmax_waiting = 1\n\
                      rate_limit_fields = \"always\"\n[keys]\nheader = \"x-api-key\"\nquota = \"2/s, burst 3\"\n\
                      unlisted = \"by-key\"\n[keys.listed.ann]\nkey = \"k-ann\"\nquota = \"90/s\"\n";

#[tokio::test]
async fn a_refusal_says_when_to_come_back_and_every_response_what_is_left() {
    let fixture = TestGateway::new(LIMITS).await;
    let ask = async || {
        let response = fixture.get("/", "bob").send().await.unwrap();
        let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let observed = [field("ratelimit-policy"), field("ratelimit"), field("retry-after")];
        (response.status(), observed.map(Option::unwrap_or_default), response.text().await.unwrap())
    };
    let policy = "\"key\";q=2;w=1;tollgate-burst=3";
    for left in ["\"key\";r=2;t=1", "\"key\";r=1;t=1", "\"key\";r=0;t=1"] {
        let (status, observed, body) = ask().await;
        assert_eq!((status, observed, &*body), (StatusCode::OK, [policy, left, ""].map(str::to_owned), "hello"));
    }
    let (status, observed, body) = ask().await;
    assert_eq!(
        (status, observed),
        (StatusCode::TOO_MANY_REQUESTS, [policy, "\"key\";r=0;t=1", "1"].map(str::to_owned))
    );
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["status"], &body["violated-policies"][0]), (&429.into(), &"key".into()));
    assert_eq!(fixture.upstream.count(), 3);
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.came, counts.answered, counts.refused_each), (4, 3, 1));
}

#[tokio::test]
async fn a_refusal_by_the_limit_of_all_costs_no_tokens_and_reports_both_limits() {
    let fixture = TestGateway::new(&LIMITS.replace("99ms", "1h")).await;
    for _ in 0..4 {
        assert_eq!(fixture.get("/", "k-ann").send().await.unwrap().status(), StatusCode::OK);
    }
    let waits = fixture.send("/", "k-ann");
    until("it waits", || fixture.waiting() == (0, 1)).await;
    let response = fixture.get("/", "bob").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["ratelimit"], "\"key\";r=3;t=1, \"all\";r=0;t=1");
    fixture.advance(SECOND / 10);
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.answered, counts.refused_all, counts.refused_each), (5, 1, 0));
}

#[tokio::test]
async fn a_refusal_by_the_limit_of_all_blames_it_and_not_the_key() {
    let fixture = TestGateway::new(LIMITS).await;
    for _ in 0..4 {
        assert_eq!(fixture.get("/", "k-ann").send().await.unwrap().status(), StatusCode::OK);
    }
    let response = fixture.get("/", "bob").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["ratelimit"], "\"key\";r=3;t=1, \"all\";r=0;t=1");
    let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["all"]));
}

/// The client's own requests fill the queue of its key: 429. A full common queue is 503.
#[tokio::test]
async fn a_client_that_fills_its_own_queue_gets_429() {
    let fixture = TestGateway::new(&LIMITS.replace("99ms", "1h")).await;
    for _ in 0..3 {
        assert_eq!(fixture.get("/", "bob").send().await.unwrap().status(), StatusCode::OK);
    }
    let waits = fixture.send("/", "bob");
    until("it waits in the queue of its key", || fixture.waiting() == (1, 0)).await;
    let response = fixture.get("/", "bob").send().await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
    fixture.advance(SECOND / 2);
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
    assert_eq!(fixture.gateway.counters.counts().refused_each, 1);
}

/// With the real clock: the wait for a place in flight has no schedule.
#[tokio::test]
async fn in_flight_caps_answer_429_for_the_own_key_and_503_for_all() {
    for (caps, expected) in [
        ("[keys]\nin_flight = 1\n", StatusCode::TOO_MANY_REQUESTS),
        ("in_flight = 1\n[keys]\n", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let limits = format!("quota = \"90/s\"\nmax_wait = \"30ms\"\n{caps}header = \"x-api-key\"\nquota = \"90/s\"\n");
        let fixture = TestGateway::by_the_clock(&limits).await;
        let stream = fixture.upstream.stream();
        let first = fixture.get("/stream", "ann").send().await.unwrap();
        let second = fixture.get("/", "ann").send().await.unwrap();
        assert_eq!((second.status(), &second.headers()["retry-after"]), (expected, &"1".parse().unwrap()));
        drop((first, stream));
        until("landed", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
    }
}

#[tokio::test]
async fn a_client_without_a_known_key_gets_401_with_the_reason() {
    let limits = LIMITS.replace("by-key", "refuse");
    let fixture = TestGateway::new(&limits).await;
    let unlisted = fixture.get("/", "nobody").send().await.unwrap();
    assert_eq!(unlisted.status(), StatusCode::UNAUTHORIZED);
    assert!(unlisted.text().await.unwrap().contains("in the header x-api-key"));
    assert_eq!(fixture.get("/", "k-ann").send().await.unwrap().status(), StatusCode::OK);
    assert_eq!((fixture.upstream.count(), fixture.gateway.counters.counts().unknown), (1, 1));
}

#[tokio::test]
async fn the_admin_address_never_shows_a_key() {
    let fixture = TestGateway::new(LIMITS).await;
    let secret = "sk-0123456789abcdefghij";
    for key in ["k-ann", secret, "qx7z"] {
        for _ in 0..5 {
            fixture.get("/metrics", key).send().await.unwrap();
        }
    }
    // The API may have a /metrics of its own.
    assert!(fixture.upstream.came.lock().unwrap().iter().all(|(_, path)| path == "/metrics"));
    let mut events = fixture.client.get(format!("http://{}/events", fixture.gateway.admin)).send().await.unwrap();
    let mut seen = fixture.page("/metrics").await + &fixture.page("/").await;
    while !["\"client\":\"ann\"", "\"client\":\"sk-0\u{2026}"].iter().all(|client| seen.contains(client)) {
        seen.push_str(&String::from_utf8_lossy(&events.chunk().await.unwrap().unwrap()));
    }
    for hidden in ["k-ann", secret, &secret[..6], "qx7z"] {
        assert!(!seen.contains(hidden), "{hidden}");
    }
    assert!(seen.contains("gateway_requests_total{outcome=\"refused_each\"} "));
    assert_eq!(fixture.page("/health").await, "ok\n");
    assert_eq!(fixture.page("/elsewhere").await, "");
}

const FULL: &str = "quota = \"100000/s\"\nmax_wait = \"0s\"\nrate_limit_fields = \"always\"\n[keys]\n\
                    header = \"x-api-key\"\nquota = \"1/h, burst 2\"\nunlisted = \"by-key\"\nmax_keys = 3\n\
                    [keys.listed.ann]\nkey = \"k-ann\"\n[keys.listed.bob]\nkey = \"k-bob\"\nquota = \"1/h, burst 3\"\n";

/// The status of a response, and its fields about limits.
async fn fields(fixture: &TestGateway, key: &str) -> (StatusCode, [String; 3]) {
    let response = fixture.get("/", key).send().await.unwrap();
    let field = |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    (response.status(), ["ratelimit-policy", "ratelimit", "retry-after"].map(field))
}

#[tokio::test]
async fn listed_keys_have_a_place_when_unlisted_clients_fill_the_table() {
    for cap in ["", "in_flight = 5\n"] {
        let fixture = TestGateway::new(&FULL.replace("max_keys", &format!("{cap}max_keys"))).await;
        for key in ["x", "y", "z", "more", "and more", "k-ann", "k-ann", "k-bob", "k-bob", "k-bob", "x"] {
            assert_eq!(fields(&fixture, key).await.0, StatusCode::OK, "{key}");
        }
        for key in ["k-ann", "k-bob", "x"] {
            assert_eq!(fields(&fixture, key).await.0, StatusCode::TOO_MANY_REQUESTS, "{key}");
        }
    }
}

#[tokio::test]
async fn unlisted_clients_without_a_place_share_a_bucket_and_are_told_its_state() {
    let fixture = TestGateway::new(FULL).await;
    for key in ["x", "y", "z"] {
        assert_eq!(fields(&fixture, key).await.0, StatusCode::OK);
    }
    let policy = "\"overflow\";q=1;w=3600;tollgate-burst=2";
    for (key, status, left, retry_after) in [
        ("u", StatusCode::OK, "\"overflow\";r=1;t=3600", ""),
        ("v", StatusCode::OK, "\"overflow\";r=0;t=3600", ""),
        ("w", StatusCode::TOO_MANY_REQUESTS, "\"overflow\";r=0;t=3600", "3600"),
        ("u", StatusCode::TOO_MANY_REQUESTS, "\"overflow\";r=0;t=3600", "3600"),
    ] {
        assert_eq!(fields(&fixture, key).await, (status, [policy, left, retry_after].map(str::to_owned)), "{key}");
    }
    assert_eq!(fixture.gateway.counters.counts().refused_each, 2);
}
