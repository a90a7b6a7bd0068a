//! How clients share the limit of all requests: listed keys and unlisted clients by weight, each client by itself.

use super::app::config::Config;
use super::fixture::*;
use super::raw::Raw;

use reqwest::StatusCode;
use std::net::SocketAddr;
use std::path::Path;

/// Two listed keys, unlisted clients with keys of their own, and quotas that only the limit of all holds back.
fn limits(all: &str, keys: &str) -> String {
    format!(
        "{all}max_wait = \"1h\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\nunlisted = \"by-key\"\n{keys}\
         [keys.listed.ann]\nkey = \"k-ann\"\nweight = 3\n[keys.listed.bob]\nkey = \"k-bob\"\n"
    )
}

const SLOW: &str = "quota = \"10/s, burst 1\"\n";

impl TestGateway {
    /// Sends a request for each of `keys` and waits until all of them wait, behind those that do.
    async fn wait(&self, keys: &[&str]) -> Vec<tokio::task::JoinHandle<reqwest::Response>> {
        let mut requests = Vec::new();
        for key in keys {
            let before = self.waiting().1;
            requests.push(self.send("/", key));
            until("it waits", || self.waiting() == (0, before + 1)).await;
        }
        requests
    }

    /// Lets `tokens` tokens of 10 per second come, one at a time, and returns how many requests of each key they served.
    async fn serve<const N: usize>(&self, tokens: usize, keys: [&str; N]) -> [usize; N] {
        let before = keys.map(|key| self.upstream.count_of(key));
        for _ in 0..tokens {
            let count = self.upstream.count();
            self.advance(SECOND / 10);
            until("served", || self.upstream.count() == count + 1).await;
        }
        let after = keys.map(|key| self.upstream.count_of(key));
        std::array::from_fn(|key| after[key] - before[key])
    }

    /// Uses the token that is there.
    async fn drain(&self) {
        assert_eq!(self.get("/", "first").send().await.unwrap().status(), StatusCode::OK);
    }

    fn change(&self, upstream: SocketAddr, text: &str) -> Result<(), String> {
        let path = Path::new("gateway.toml");
        let config = Config::parse(path, &file(upstream, text));
        let config = config.map_err(|error| error.to_string())?;
        self.gateway.limits.change(config, path).map_err(|error| error.to_string())
    }
}

fn unlisted_keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("unlisted-{number}")).collect()
}

#[tokio::test]
async fn made_up_keys_do_not_delay_listed_ones() {
    let fixture = TestGateway::new(&limits(SLOW, "")).await;
    fixture.drain().await;
    let made_up = unlisted_keys(40);
    let _theirs = fixture.wait(&made_up.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let _ours = fixture.wait(&["k-ann", "k-bob", "k-ann", "k-bob"]).await;
    let metrics = fixture.page("/metrics").await;
    for waiting in ["all-listed\"} 4", "all-unlisted\"} 40"] {
        assert!(metrics.contains(&format!("rate_limit_waiting{{key=\"{waiting}")), "{waiting}: {metrics}");
    }
    // The first token may be an unlisted client's, which was in front already.
    let [ann, bob] = fixture.serve(5, ["k-ann", "k-bob"]).await;
    assert_eq!((ann, bob), (2, 2));
}

#[tokio::test]
async fn unlisted_clients_get_what_their_weight_says_and_no_less() {
    let fixture = TestGateway::new(&limits(SLOW, "listed_weight = 3\n")).await;
    fixture.drain().await;
    let _ours = fixture.wait(&["k-ann"; 40]).await;
    let _theirs = fixture.wait(&["unlisted"; 40]).await;
    let [ann, unlisted] = fixture.serve(40, ["k-ann", "unlisted"]).await;
    assert!(ann.abs_diff(30) <= 1 && unlisted.abs_diff(10) <= 1, "{ann} {unlisted}");
}

#[tokio::test]
async fn listed_keys_share_by_their_own_weights() {
    let fixture = TestGateway::new(&limits(SLOW, "")).await;
    fixture.drain().await;
    let _ann = fixture.wait(&["k-ann"; 40]).await;
    let _bob = fixture.wait(&["k-bob"; 40]).await;
    let [ann, bob] = fixture.serve(40, ["k-ann", "k-bob"]).await;
    assert!(ann.abs_diff(30) <= 1 && bob.abs_diff(10) <= 1, "{ann} {bob}");
}

#[tokio::test]
async fn one_client_with_many_requests_is_one_among_the_others() {
    let fixture = TestGateway::new(&limits(SLOW, "")).await;
    fixture.drain().await;
    let _many = fixture.wait(&["greedy"; 30]).await;
    let _few = fixture.wait(&["modest", "modest"]).await;
    let [greedy, modest] = fixture.serve(5, ["greedy", "modest"]).await;
    assert_eq!((greedy, modest), (3, 2));
}

#[tokio::test]
async fn a_cheap_request_does_not_pass_an_expensive_one_that_waits() {
    let costs = "[[routes]]\npath = \"/expensive\"\ncost = 4\n";
    let fixture = TestGateway::new(&(limits("quota = \"10/s, burst 4\"\n", "") + costs)).await;
    assert_eq!(fixture.get("/", "k-bob").send().await.unwrap().status(), StatusCode::OK);
    let _expensive = fixture.send("/expensive", "k-ann");
    until("it waits", || fixture.waiting() == (0, 1)).await;
    // Three tokens are there.
    let _cheap = fixture.wait(&["k-bob"]).await;
    assert_eq!(fixture.serve(1, ["k-ann", "k-bob"]).await, [1, 0]);
}

#[tokio::test]
async fn clients_that_fill_the_queue_lock_out_no_listed_key() {
    let fixture = TestGateway::new(&limits(&format!("{SLOW}max_waiting = 2\n"), "")).await;
    fixture.drain().await;
    let _theirs = fixture.wait(&["unlisted", "unlisted"]).await;
    assert_eq!(fixture.get("/", "other").send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    let _ours = fixture.wait(&["k-ann", "k-ann"]).await;
    assert_eq!(fixture.get("/", "k-bob").send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    let [ann] = fixture.serve(3, ["k-ann"]).await;
    assert_eq!(ann, 2);
    until("one waits", || fixture.waiting() == (0, 1)).await;
    let _again = fixture.wait(&["k-bob"]).await;
}

/// The body of a request that finds too many others is neither read nor asked for.
#[tokio::test]
async fn a_full_queue_refuses_an_upload_before_its_body() {
    let fixture = TestGateway::new(&limits(&format!("{SLOW}max_waiting = 1\n"), "")).await;
    fixture.drain().await;
    let _theirs = fixture.wait(&["unlisted"]).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\nx-api-key: ";
    let mut refused = Raw::sent(fixture.address, format!("{head}other\r\n\r\n")).await;
    let answer = refused.head().await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let mut listed = Raw::sent(fixture.address, format!("{head}k-ann\r\n\r\n")).await;
    assert!(listed.head().await.starts_with("HTTP/1.1 100 "));
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.refused_all, counts.refused_each), (1, 0));
}

#[tokio::test]
async fn the_quota_of_all_unlisted_clients_leaves_the_rest_to_listed_ones() {
    let fixture =
        TestGateway::new(&limits("quota = \"1000/s, burst 20\"\n", "unlisted_quota = \"10/s, burst 2\"\n")).await;
    let made_up = unlisted_keys(12);
    let made_up: Vec<&str> = made_up.iter().map(String::as_str).collect();
    for key in &made_up[..2] {
        assert_eq!(fixture.get("/", key).send().await.unwrap().status(), StatusCode::OK);
    }
    let _theirs = fixture.wait(&made_up[2..]).await;
    // All that the burst has left, at once.
    for _ in 0..18 {
        assert_eq!(fixture.get("/", "k-ann").send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(fixture.waiting(), (0, 10));
    fixture.advance(SECOND / 2);
    until("served", || (fixture.upstream.count(), fixture.waiting()) == (25, (0, 5))).await;
    short_pause().await;
    assert_eq!((fixture.upstream.count(), fixture.waiting()), (25, (0, 5)));
}

#[tokio::test]
async fn a_change_of_the_shares_applies_to_requests_that_wait_and_keeps_levels() {
    let (upstream, address) = Upstream::start().await;
    let fixture = TestGateway::before(upstream, address, &limits(SLOW, "listed_weight = 1\n")).await;
    fixture.drain().await;
    let _ours = fixture.wait(&["k-ann"; 60]).await;
    let _theirs = fixture.wait(&["unlisted"; 60]).await;
    let [ann, _] = fixture.serve(20, ["k-ann", "unlisted"]).await;
    assert!(ann.abs_diff(10) <= 1, "{ann}");
    // A wrong file changes nothing.
    let wrong = limits(SLOW, "listed_weight = 4\n").replace("weight = 3", "weight = 0");
    assert!(fixture.change(address, &wrong).unwrap_err().contains("`weight` is 0: write one between 1 and 1000000"));
    let [ann, _] = fixture.serve(20, ["k-ann", "unlisted"]).await;
    assert!(ann.abs_diff(10) <= 1, "{ann}");
    fixture.change(address, &limits(SLOW, "listed_weight = 4\n")).unwrap();
    let [ann, _] = fixture.serve(20, ["k-ann", "unlisted"]).await;
    assert!(ann.abs_diff(16) <= 1, "{ann}");
    assert_eq!(fixture.waiting(), (0, 60), "none is lost");

    // What is used of the quota of all unlisted clients stays used.
    let (upstream, address) = Upstream::start().await;
    let fixture =
        TestGateway::before(upstream, address, &limits("quota = \"1000/s\"\n", "unlisted_quota = \"10/s, burst 4\"\n"))
            .await;
    for _ in 0..4 {
        fixture.drain().await;
    }
    fixture.change(address, &limits("quota = \"1000/s\"\n", "unlisted_quota = \"20/s, burst 4\"\n")).unwrap();
    let _theirs = fixture.wait(&["unlisted"; 4]).await;
    fixture.advance(SECOND / 10);
    until("served", || fixture.waiting() == (0, 2)).await;
    fixture.change(address, &limits("quota = \"1000/s\"\n", "")).unwrap();
    fixture.advance(MILLI);
    until("served", || fixture.waiting() == (0, 0)).await;
}

#[tokio::test]
async fn the_weight_of_a_listed_key_can_change() {
    let (upstream, address) = Upstream::start().await;
    let fixture = TestGateway::before(upstream, address, &limits(SLOW, "")).await;
    fixture.change(address, &limits(SLOW, "").replace("weight = 3", "weight = 1")).unwrap();
    fixture.drain().await;
    let _ann = fixture.wait(&["k-ann"; 20]).await;
    let _bob = fixture.wait(&["k-bob"; 20]).await;
    let [ann, bob] = fixture.serve(20, ["k-ann", "k-bob"]).await;
    assert!(ann.abs_diff(10) <= 1 && bob.abs_diff(10) <= 1, "{ann} {bob}");
}
