//! Quotas that several gateways share through Redis, in real time. Buckets have next to no rate, so that the machine's speed
//! does not matter.

use super::app::admin::advice::Advice;
use super::app::config::Config;
use super::app::limits::limit::Limit;
use super::app::limits::reason::Reason;
use super::app::request::client::Client;
use super::app::request::name::Name;
use super::app::telemetry::refusals::RefusedClient;
use super::fixture::*;
use super::raw::Raw;
use super::redis::Redis;

use reqwest::StatusCode;
use std::path::Path;
use std::time::Duration;

const KEYS: &str = "[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n";

/// A gateway's own file: the limits, and the server that it shares them through.
fn limits(limits: &str, redis: &str) -> String {
    format!("{limits}\n[redis]\n{redis}\n")
}

/// Two gateways before one upstream.
async fn two(limits: &str) -> [TestGateway; 2] {
    let (_, address) = Upstream::start().await;
    [TestGateway::of(&file(address, limits)).await, TestGateway::of(&file(address, limits)).await]
}

/// Sends `count` requests to each gateway at once, and returns the numbers of those that were served and refused.
async fn send(gateways: &[TestGateway], path: &str, key: &str, count: usize) -> (usize, usize) {
    let sent = gateways.iter().flat_map(|gateway| (0..count).map(|_| gateway.get(path, key).send()));
    let responses = futures::future::join_all(sent).await;
    let statuses: Vec<u16> = responses.into_iter().map(|response| response.unwrap().status().as_u16()).collect();
    assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{statuses:?}");
    let served = statuses.iter().filter(|status| **status == 200).count();
    (served, statuses.len() - served)
}

/// How many requests are served of some batches. On a slow machine requests can be refused before the server has answered,
/// and tokens that were promised to them may be lost to all. So it can be less than the quota, and never more.
async fn served(gateways: &[TestGateway], path: &str, key: &str) -> usize {
    let mut served = 0;
    for _ in 0..3 {
        served += send(gateways, path, key, 8).await.0;
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_together_keep_the_quota_of_all_requests() {
    let Some(redis) = Redis::start() else { return };
    let url = format!("url = \"{}\"\nanswer_timeout = \"60s\"", redis.url());
    let text = limits(&format!("quota = \"1/h, burst 10\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"), &url);
    let gateways = two(&text).await;
    assert!((1..=10).contains(&served(&gateways, "/", "a").await));
    // The refusal names the quota that all share, and does not say that tokens remain.
    let refused = gateways[0].get("/", "a").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let fields = refused.headers()["ratelimit"].to_str().unwrap();
    assert!(fields.contains("\"all distributed\";r=0"), "{fields}");
    assert!(refused.headers().contains_key("retry-after"));
    let metrics = gateways[0].page("/metrics").await;
    for series in [
        "rate_limit_store_requests_total{key=\"all distributed\"}",
        "rate_limit_store_out{key=\"all distributed\"} 0",
        "gateway_refusals_total{reason=\"all_quota\",limit=\"all distributed\"}",
    ] {
        assert!(metrics.contains(series), "{series} is not in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_together_keep_the_quotas_of_each_key_and_of_a_route() {
    let Some(redis) = Redis::start() else { return };
    let url = format!("url = \"{}\"\nanswer_timeout = \"60s\"\nsecret = \"a-secret-of-all-gateways\"", redis.url());
    let text = "quota = \"1000/s\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/h, burst 6\"\n\
         unlisted = \"by-key\"\ndistributed = true\n[keys.listed.ann]\nkey = \"k-ann\"\nquota = \"1/h, burst 8\"\n\
         [[routes]]\npath = \"/reports\"\nquota = \"1/h, burst 5\"\nkey_quota = \"1/h, burst 2\"\ndistributed = true\n";
    let gateways = two(&limits(text, &url)).await;
    let (mut all, mut reports) = (0, 0);
    for (path, key, most) in [
        ("/", "k-ann", 8),
        ("/", "bob", 6),
        ("/", "eve", 6),
        // Each key has two of the five tokens of the route.
        ("/reports", "kim", 2),
        ("/reports", "lou", 2),
    ] {
        let served = served(&gateways, path, key).await;
        assert!(served <= most, "{path} {key}: {served} of {most}");
        all += served;
        reports += if path == "/reports" { served } else { 0 };
    }
    assert!(all > 0);
    // Each of these keys could have two more of the route's tokens.
    for key in ["max", "nat", "oli", "pia"] {
        reports += send(&gateways, "/reports", key, 8).await.0;
    }
    assert!(reports <= 5, "{reports}");
    let metrics = gateways[0].page("/metrics").await;
    for limit in ["key distributed", "route /reports distributed", "route /reports each distributed"] {
        assert!(metrics.contains(&format!("limit=\"{limit}\"")), "{limit} is not in {metrics}");
    }
    assert!(metrics.contains("rate_limit_store_requests_total{key=\"clients distributed\"}"), "{metrics}");
}

/// A gateway whose Redis does not run.
async fn without_redis(redis: &Redis, policy: &str, max_wait: &str) -> TestGateway {
    let (_, address) = Upstream::start().await;
    let server = format!("url = \"{}\"\noutage = \"{policy}\"\nanswer_timeout = \"60s\"", redis.url());
    let text = format!("quota = \"1/h, burst 10\"\ndistributed = true\nmax_wait = \"{max_wait}\"\n{KEYS}");
    TestGateway::of(&file(address, &limits(&text, &server))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_down_requests_get_what_the_outage_policy_says() {
    let Some(redis) = Redis::stopped() else { return };
    // By its own limit, of the same quota.
    let local = [without_redis(&redis, "local", "60s").await];
    assert_eq!(send(&local, "/", "a", 30).await, (10, 20));
    let refuse = [without_redis(&redis, "refuse", "60s").await];
    assert_eq!(send(&refuse, "/", "a", 5).await, (0, 5));
    assert!(refuse[0].page("/metrics").await.contains("reason=\"store\",limit=\"all distributed\"}"));
    let wait = [without_redis(&redis, "wait", "50ms").await];
    assert_eq!(send(&wait, "/", "a", 5).await, (0, 5));
    assert!(wait[0].page("/metrics").await.contains("reason=\"all_wait\",limit=\"all distributed\"}"));
    // A refused request has its own tokens back.
    assert_eq!(refuse[0].gateway.limits.all.available(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_started_without_redis_uses_it_as_soon_as_it_is_there() {
    let Some(mut redis) = Redis::stopped() else { return };
    let gateways = [without_redis(&redis, "refuse", "1s").await, without_redis(&redis, "refuse", "1s").await];
    for gateway in &gateways {
        assert_eq!(gateway.get("/", "a").send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    redis.run();
    // Requests are refused at once until a trial of the gateway's own has found the server.
    let first = async {
        loop {
            match served(&gateways, "/", "a").await {
                0 => tokio::time::sleep(Duration::from_millis(50)).await,
                served => return served,
            }
        }
    };
    let served = tokio::time::timeout(Duration::from_secs(600), first).await.expect("the server is never found");
    assert!(served <= 10, "{served}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_quota_needs_a_higher_version_and_then_all_gateways_follow_it() {
    let Some(redis) = Redis::start() else { return };
    let text = |burst: u64, version: u32| {
        let server = format!("url = \"{}\"\nquota_version = {version}\nanswer_timeout = \"60s\"", redis.url());
        limits(&format!("quota = \"1/h, burst {burst}\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"), &server)
    };
    let gateways = two(&text(10, 1)).await;
    let problem = change(&gateways[0], &text(20, 1)).unwrap_err();
    assert!(problem.contains("`quota of all` is distributed and was \"1/h, burst 10\""), "{problem}");
    assert!(problem.contains("line 13") && problem.contains("`quota_version = 2`"), "{problem}");
    change(&gateways[0], &text(4, 2)).unwrap();
    let problem = change(&gateways[0], &text(10, 1)).unwrap_err();
    assert!(problem.contains("went back from 2 to 1"), "{problem}");
    // The one gateway tells the store, and the other one follows it.
    let first = served(&gateways[..1], "/", "a").await;
    let (second, _) = send(&gateways[1..], "/", "a", 8).await;
    assert!((1..=4).contains(&(first + second)), "{first} and {second} of 4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_for_which_a_shared_quota_has_no_tokens_is_refused_before_its_body() {
    let Some(redis) = Redis::start() else { return };
    let url = format!("url = \"{}\"\nanswer_timeout = \"60s\"", redis.url());
    for (all, keys, limit) in [("distributed = true\n", "", "all"), ("", "distributed = true\n", "key")] {
        let text = format!("quota = \"1/h, burst 10\"\n{all}max_wait = \"1s\"\n{KEYS}{keys}");
        let text = text.replace("1000/s", "1/h, burst 10");
        let gateways = two(&limits(&text, &url)).await;
        // The one gateway takes all tokens, and the other one learns it.
        while served(&gateways[..1], "/", "a").await > 0 {}
        let refused = gateways[1].get("/", "a").send().await.unwrap();
        assert_ne!(refused.status(), StatusCode::OK, "{limit}");
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\nx-api-key: a\r\n\r\n";
        let answer = Raw::sent(gateways[1].address, head).await.head().await;
        assert!(
            answer.starts_with("HTTP/1.1 429 ") && answer.contains(&format!("\"{limit} distributed\"")),
            "{answer}"
        );
    }
}

#[test]
fn the_advice_about_a_shared_quota_names_its_version() {
    let server = "url = \"redis://127.0.0.1:1/\"";
    let own = format!("quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}[[routes]]\npath = \"/a\"\nquota = \"9/s\"\n");
    let shared = own.replace("quota = \"9/s\"", "quota = \"9/s\"\ndistributed = true");
    let shared = limits(&shared.replace("1000/s\"", "1000/s\"\ndistributed = true"), server);
    let client = RefusedClient::Client(Client::Address([127, 0, 0, 1].into()));
    let route = Name::new("route /a");
    for (reason, limit) in [
        (Reason::OwnQuota, Limit::Own),
        (Reason::AllQuota, Limit::All),
        (Reason::AllWait, Limit::Distributed(Name::new("all"))),
        (Reason::RuleQuota, Limit::Rule(route)),
        (Reason::RuleQuota, Limit::Distributed(route)),
    ] {
        let advice = |limits: &str| {
            let config =
                Config::parse(Path::new("gateway.toml"), &file("127.0.0.1:1".parse().unwrap(), limits)).unwrap();
            serde_json::to_string(&Advice::new(&config, &client, reason, Some(limit))).unwrap()
        };
        let (alone, together) = (advice(&own), advice(&shared));
        assert!(!alone.contains("quota_version"), "{alone}");
        assert!(together.contains(" together with `redis.quota_version`, in the files of all gateways"), "{together}");
    }
}

#[test]
fn what_cannot_be_distributed_is_refused_with_what_to_write() {
    let server = "url = \"redis://127.0.0.1:1/\"";
    for (text, expected) in [
        (format!("quota = \"9/s\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"), "write a table `[redis]`"),
        (limits(&format!("quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}"), server), "`[redis]` has no effect"),
        (
            limits(&format!("quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}dry_run = true\ndistributed = true\n"), server),
            "leave out `distributed` until `dry_run` is false",
        ),
        (
            limits(
                &format!("quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}unlisted = \"by-key\"\ndistributed = true\n"),
                server,
            ),
            "all gateways need one `secret`",
        ),
        (
            limits(
                &format!("quota = \"99999999999/s, burst 9\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"),
                server,
            ),
            "cannot be distributed exactly",
        ),
        (
            limits(
                &format!(
                    "quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}[[routes]]\npath = \"/a\"\nin_flight = 3\ndistributed = true\n"
                ),
                server,
            ),
            "`distributed` has no effect without a quota",
        ),
        (
            limits(
                &format!("quota = \"9/s\"\nmax_wait = \"1s\"\n{KEYS}[[routes]]\npath = \"/a\"\ndistributed = true\n"),
                server,
            ),
            "`distributed` has no effect without a quota",
        ),
        (
            limits(
                &format!("quota = \"9/s\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"),
                "url = \"http://user:pass@host\"",
            ),
            "is not the address of a Redis server",
        ),
        (
            limits(
                &format!("quota = \"9/s\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"),
                "url = \"redis://127.0.0.1:1/\"\nname = \"two words\"",
            ),
            "`two words` is not a name",
        ),
        (
            limits(
                &format!("quota = \"9/s\"\ndistributed = true\nmax_wait = \"1s\"\n{KEYS}"),
                "url = \"redis://127.0.0.1:1/\"\nsecret = \"short\"",
            ),
            "the secret has less than 16 characters",
        ),
    ] {
        let said = problem(&text);
        assert!(said.contains(expected) && said.contains(" | ") && said.contains('^'), "{expected}: {said}");
    }
}
