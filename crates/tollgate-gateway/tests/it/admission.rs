//! Admission: how many requests pass, from which clients, and at which cost. The test moves the clock by hand, so that
//! it knows exactly which requests pass.

use super::fixture::*;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use reqwest::StatusCode;

/// A large quota for keys, where the test is about another limit.
const ROOMY: &str = "[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\nunlisted = \"by-key\"\n";

#[tokio::test]
async fn exactly_the_burst_and_the_rate_come_through_in_order() {
    let fixture = TestGateway::new(&format!("quota = \"10/s, burst 20\"\nmax_wait = \"1h\"\n{ROOMY}")).await;
    let answers: FuturesUnordered<_> = (0..300).map(|_| fixture.send("/x", "a")).collect();
    until("all wait", || fixture.waiting() == (0, 280)).await;
    for step in [SECOND, SECOND * 3 / 5, SECOND * 39 / 100, SECOND / 100] {
        fixture.advance(step);
    }
    // 10, 6, 3 and 1.
    until("served", || fixture.upstream.count() == 40).await;
    short_pause().await;
    assert_eq!((fixture.upstream.count(), fixture.waiting()), (40, (0, 260)));
    fixture.advance(SECOND * 26);
    let statuses: Vec<_> = answers.map(|answer| answer.unwrap().status()).collect().await;
    assert_eq!((statuses.len(), fixture.upstream.count()), (300, 300));
    assert!(statuses.iter().all(|status| *status == StatusCode::OK));
}

#[tokio::test]
async fn keys_are_limited_each_by_itself() {
    let fixture = TestGateway::new(
        "quota = \"10000/s\"\nmax_wait = \"1h\"\n[keys]\nheader = \"authorization\"\nquota = \"2/s, burst 5\"\n\
         unlisted = \"by-key\"\n[keys.listed.ann]\nkey = \"k-ann\"\nquota = \"20/s, burst 30\"\n",
    )
    .await;
    // Keys are read from the header that the file names, and from no other.
    let send = |key: &str| {
        let request = reqwest::Client::new().get(format!("http://{}/", fixture.address));
        let request = request.header("authorization", format!("Bearer {key}")).header("x-api-key", key);
        tokio::spawn(async move { request.send().await.unwrap().status() })
    };
    let mut answers = Vec::new();
    for _ in 0..60 {
        answers.extend(["k-ann", "bob", "eve"].map(send));
    }
    until("all wait", || fixture.waiting() == (30 + 55 + 55, 0)).await;
    until("served", || fixture.upstream.count() == 40).await;
    let counts = || ["k-ann", "bob", "eve"].map(|key| fixture.upstream.count_of(key));
    assert_eq!(counts(), [30, 5, 5]);
    fixture.advance(SECOND);
    until("served", || fixture.upstream.count() == 64).await;
    short_pause().await;
    assert_eq!(counts(), [50, 7, 7]);
    fixture.advance(SECOND * 26);
    until("served", || fixture.upstream.count() == 60 + 59 + 59).await;
    short_pause().await;
    assert_eq!((counts(), fixture.waiting()), ([60, 59, 59], (2, 0)));
}

#[tokio::test]
async fn made_up_keys_gain_nothing_where_addresses_count() {
    let fixture = TestGateway::new(
        "quota = \"10000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/s, burst 5\"\n\
         [keys.listed.ann]\nkey = \"k-ann\"\n",
    )
    .await;
    let mut passed = 0;
    for number in 0..50 {
        let status = fixture.get("/", &format!("made-up-{number}")).send().await.unwrap().status();
        passed += usize::from(status == StatusCode::OK);
    }
    assert_eq!((passed, fixture.upstream.count()), (5, 5));
    // A forged `X-Forwarded-For` gains nothing either.
    let elsewhere = fixture.get("/", "x").header("x-forwarded-for", "192.0.2.1").send().await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fixture.get("/", "k-ann").send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn behind_a_proxy_only_the_address_it_appended_is_trusted() {
    let fixture = TestGateway::new(
        "quota = \"10000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/s, burst 2\"\n\
         proxies_before = 1\n",
    )
    .await;
    let status = async |seen: &str| fixture.get("/", "").header("x-forwarded-for", seen).send().await.unwrap().status();
    for lie in ["198.51.100.1, 192.0.2.1", "198.51.100.2, 192.0.2.1"] {
        assert_eq!(status(lie).await, StatusCode::OK);
    }
    assert_eq!(status("198.51.100.3, 192.0.2.1").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status("192.0.2.2").await, StatusCode::OK);
    // Addresses of one /64 network are one client.
    for (address, expected) in
        [("1::1", StatusCode::OK), ("1::2", StatusCode::OK), ("1::3", StatusCode::TOO_MANY_REQUESTS)]
    {
        assert_eq!(status(&format!("2001:db8:0:{address}")).await, expected, "{address}");
    }
}

#[tokio::test]
async fn a_route_costs_what_the_file_says() {
    let fixture = TestGateway::new(&format!(
        "quota = \"10/s, burst 20\"\nmax_wait = \"1h\"\n{ROOMY}\
         [[routes]]\npath = \"/reports\"\nmethods = [\"GET\"]\ncost = 10\n[[routes]]\npath = \"/status\"\ncost = 0\n"
    ))
    .await;
    for path in ["/reports/weekly", "//reports"] {
        assert_eq!(fixture.get(path, "a").send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(fixture.gateway.limits.all.available(), 0);
    let third = fixture.send("/%72eports", "a");
    until("it waits", || fixture.waiting() == (0, 1)).await;
    // A request of cost 0 does not wait.
    assert_eq!(fixture.get("/status", "a").send().await.unwrap().status(), StatusCode::OK);
    let cheap = fixture.send("/reportsx", "a");
    until("both wait", || fixture.waiting() == (0, 2)).await;
    fixture.advance(SECOND - MILLI);
    short_pause().await;
    assert_eq!(fixture.waiting(), (0, 2));
    fixture.advance(MILLI);
    assert_eq!(third.await.unwrap().status(), StatusCode::OK);
    assert_eq!(fixture.waiting(), (0, 1), "the queue is strictly in order");
    fixture.advance(SECOND / 10);
    assert_eq!(cheap.await.unwrap().status(), StatusCode::OK);
    assert_eq!(fixture.gateway.limits.all.snapshot().granted, 31);
}

#[tokio::test]
async fn a_slow_streaming_body_is_in_flight_to_its_last_byte() {
    let fixture = TestGateway::new(&format!("quota = \"1000/s\"\nin_flight = 2\nmax_wait = \"1h\"\n{ROOMY}")).await;
    let streams: Vec<_> = (0..3).map(|_| fixture.upstream.stream()).collect();
    let mut first = fixture.get("/stream", "a").send().await.unwrap();
    let second = fixture.get("/stream", "a").send().await.unwrap();
    let third = fixture.send("/stream", "a");
    until("it waits", || fixture.waiting() == (0, 1)).await;
    for _ in 0..3 {
        streams[0].unbounded_send("more").unwrap();
        assert_eq!(first.chunk().await.unwrap().unwrap(), "more");
        assert_eq!((fixture.waiting(), fixture.upstream.count()), ((0, 1), 2));
    }
    streams[0].close_channel();
    assert!(first.chunk().await.unwrap().is_none());
    let third = third.await.unwrap();
    assert_eq!((fixture.waiting(), fixture.upstream.count()), ((0, 0), 3));
    // The tokens are also released when the client leaves early, or when the upstream breaks.
    drop(second);
    until("landed", || fixture.gateway.limits.all.snapshot().in_flight == Some(1)).await;
    drop((third, streams));
    until("landed", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

/// Requests of the key wait in its own queue, and those of other keys do not wait.
#[tokio::test]
async fn a_key_at_its_cap_in_flight_delays_no_other_key() {
    let fixture = TestGateway::new(
        "quota = \"1000/s\"\nmax_wait = \"1h\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\nin_flight = 2\n\
         unlisted = \"by-key\"\n",
    )
    .await;
    let streams: Vec<_> = (0..4).map(|_| fixture.upstream.stream()).collect();
    let flying = || fixture.gateway.limits.clients.unlisted.snapshot().in_flight;
    let mut first = fixture.get("/stream", "a").send().await.unwrap();
    let second = fixture.get("/stream", "a").send().await.unwrap();
    let third = fixture.send("/stream", "a");
    until("it waits in the queue of its key", || fixture.waiting() == (1, 0)).await;
    let other = fixture.get("/stream", "b").send().await.unwrap();
    assert_eq!((flying(), fixture.upstream.count_of("a")), (Some(3), 2));
    streams[0].close_channel();
    assert!(first.chunk().await.unwrap().is_none());
    let third = third.await.unwrap();
    assert_eq!((flying(), fixture.upstream.count_of("a"), fixture.waiting()), (Some(3), 3, (0, 0)));
    // The tokens are also released when the client leaves early, or when the upstream breaks.
    drop(second);
    until("landed", || flying() == Some(2)).await;
    drop((third, other, streams));
    until("landed", || flying() == Some(0)).await;
    assert!(fixture.page("/metrics").await.contains("rate_limit_in_flight_tokens{key=\"unlisted\"} 0"));
}

#[tokio::test]
async fn a_request_refused_by_the_limit_of_all_keeps_the_tokens_of_its_key() {
    for cap in ["", "in_flight = 1\n"] {
        let fixture = TestGateway::new(&format!(
            "quota = \"1/h, burst 1\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/h, burst 3\"\n{cap}"
        ))
        .await;
        assert_eq!(fixture.get("/", "a").send().await.unwrap().status(), StatusCode::OK);
        for _ in 0..5 {
            assert_eq!(fixture.get("/", "a").send().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        }
        let (counts, each) = (fixture.gateway.counters.counts(), fixture.gateway.limits.clients.unlisted.snapshot());
        assert_eq!((counts.refused_each, counts.refused_all), (0, 5), "never by its own limit");
        assert_eq!((each.granted - each.refunded, each.in_flight), (1, (!cap.is_empty()).then_some(0)));
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_its_queue_at_once() {
    let fixture = TestGateway::new(
        "quota = \"1/s, burst 1\"\nmax_wait = \"1h\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/s, burst 2\"\n\
         unlisted = \"by-key\"\n",
    )
    .await;
    assert_eq!(fixture.get("/", "a").send().await.unwrap().status(), StatusCode::OK);
    let for_all = fixture.send("/", "a");
    until("it waits for the limit of all", || fixture.waiting() == (0, 1)).await;
    let own = fixture.send("/", "a");
    until("it waits for the limit of its key", || fixture.waiting() == (1, 1)).await;
    let last = fixture.send("/last", "b");
    until("it waits behind the first", || fixture.waiting() == (1, 2)).await;
    own.abort();
    until("gone", || fixture.waiting() == (0, 2)).await;
    for_all.abort();
    until("gone", || fixture.waiting() == (0, 1)).await;
    // The tokens of its own key were not used.
    until("given back", || fixture.gateway.limits.clients.unlisted.snapshot().keys > 0).await;
    fixture.advance(SECOND);
    assert_eq!(last.await.unwrap().status(), StatusCode::OK);
    short_pause().await;
    assert_eq!((fixture.upstream.count(), fixture.gateway.limits.all.snapshot().granted), (2, 2));
    until("counted", || fixture.gateway.counters.counts().left == 2).await;
}
