//! Shutdown: every accepted request gets a response.

use super::fixture::*;
use super::process::Process;

use reqwest::StatusCode;

const KEYS: &str = "[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\nunlisted = \"by-key\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_and_forwarded_requests_are_served_and_no_connection_is_accepted() {
    for signal in ["TERM", "INT"] {
        let (upstream, address) = Upstream::start().await;
        let stream = upstream.stream();
        let limits = format!("quota = \"20/s, burst 5\"\nmax_wait = \"1h\"\ngrace = \"1h\"\n{KEYS}");
        let process = Process::start(&format!("ending-{signal}"), address, &limits);
        let url = format!("http://{}", process.address);
        let mut flying = reqwest::get(format!("{url}/stream")).await.unwrap();
        let ask = || tokio::spawn(reqwest::Client::new().get(&url).send());
        let line: Vec<_> = (0..20).map(|_| ask()).collect();
        until("come", || upstream.count() >= 5).await;
        // All connections have been accepted as soon as a sample shows that all requests have arrived.
        let mut events = reqwest::get(format!("http://{}/events", process.admin)).await.unwrap();
        let mut seen = String::new();
        while !seen.contains("\"came\":21,") {
            seen.push_str(&String::from_utf8_lossy(&events.chunk().await.unwrap().unwrap()));
        }
        process.signal(signal);
        process.says("ending", 1).await;
        for answer in line {
            assert_eq!(answer.await.unwrap().expect("an answer").status(), StatusCode::OK);
        }
        assert_eq!(upstream.count(), 21);
        assert!(ask().await.unwrap().is_err(), "the address is no longer listened on");
        let health = reqwest::get(format!("http://{}/health", process.admin)).await.unwrap();
        assert_eq!(health.status(), StatusCode::SERVICE_UNAVAILABLE, "the load balancer sees the shutdown");
        stream.unbounded_send("the last").unwrap();
        assert_eq!(flying.chunk().await.unwrap().unwrap(), "the last");
        stream.close_channel();
        assert!(flying.chunk().await.unwrap().is_none());
        let (status, last) = process.ended();
        assert!(status.success() && last.contains("came=21 answered=21 "), "{status}: {last}");
    }
}

#[tokio::test]
async fn requests_that_wait_after_the_grace_period_are_refused() {
    let fixture =
        TestGateway::new(&format!("quota = \"1/s, burst 1\"\nmax_wait = \"1h\"\ngrace = \"100ms\"\n{KEYS}")).await;
    assert_eq!(fixture.get("/", "a").send().await.unwrap().status(), StatusCode::OK);
    let line: Vec<_> = (0..10).map(|_| fixture.send("/", "a")).collect();
    until("all wait", || fixture.waiting() == (0, 10)).await;
    let TestGateway { gateway, .. } = fixture;
    let counters = std::sync::Arc::clone(&gateway.counters);
    assert!(gateway.shut_down().await, "every request got a response");
    for answer in line {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key("retry-after"));
    }
    let counts = counters.counts();
    assert_eq!((counts.came, counts.answered, counts.refused_all), (11, 1, 10));
}

#[tokio::test]
async fn an_endless_response_does_not_delay_the_shutdown() {
    let fixture = TestGateway::new(&format!("quota = \"9/s\"\nmax_wait = \"1h\"\ngrace = \"50ms\"\n{KEYS}")).await;
    let _endless = fixture.upstream.stream();
    let mut response = fixture.get("/stream", "a").send().await.unwrap();
    // A connection without a request does not count as a request.
    let _silent = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
    let TestGateway { gateway, .. } = fixture;
    assert!(!gateway.shut_down().await, "one response was cut off");
    drop(response.chunk());
}
