//! Language models: estimates, settlement, streams, and the limits of a provider, before a provider on loopback.

use super::app::llm::event_scanner::EventScanner;
use super::app::llm::usage_scanner::UsageScanner;
use super::app::request::name::Name;
use super::world::*;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use http_body_util::BodyExt;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const CHAT: &str = "/v1/chat/completions";

/// A provider that answers each request with the next of its replies.
#[derive(Clone, Default)]
struct Provider {
    came: Arc<Mutex<Vec<(axum::http::HeaderMap, Bytes)>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

type Chunks = UnboundedSender<io::Result<Bytes>>;

struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: UnboundedReceiver<io::Result<Bytes>>,
}

impl Provider {
    async fn start() -> (Self, SocketAddr) {
        let provider = Self::default();
        let router = Router::new().fallback({
            let provider = provider.clone();
            move |request: Request| {
                let provider = provider.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    provider.came.lock().unwrap().push((head.headers, body));
                    let reply = provider.replies.lock().unwrap().pop_front().expect("a reply for it");
                    let mut response = Response::builder().status(reply.status);
                    for (name, value) in reply.headers {
                        response = response.header(name, value);
                    }
                    response.body(Body::from_stream(reply.body)).unwrap()
                }
            }
        });
        (provider, serve(router).await)
    }

    /// Adds a reply, of which the chunks follow.
    fn stream(&self, status: u16, headers: &[(&'static str, &str)]) -> Chunks {
        let (send, body) = mpsc::unbounded();
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.replies.lock().unwrap().push_back(Reply { status, headers, body });
        send
    }

    fn answer(&self, status: u16, headers: &[(&'static str, &str)], body: &Value) {
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.stream(status, &headers).unbounded_send(Ok(body.to_string().into())).unwrap();
    }
}

fn limits(llm: &str, max_wait: &str) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"{max_wait}\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n\
         unlisted = \"by-key\"\n[keys.listed.ann]\nkey = \"k-ann\"\n[[routes]]\npath = \"/v1\"\ntokens = true\n[llm]\n{llm}"
    )
}

async fn world(llm: &str, max_wait: &str) -> (TestGateway, Provider) {
    let (provider, address) = Provider::start().await;
    (TestGateway::before(Upstream::default(), address, &limits(llm, max_wait)).await, provider)
}

/// The tokens that were granted under a limit, less those that were refunded.
fn taken(world: &TestGateway, limit: &str) -> u64 {
    let snapshot = world.gateway.limits.rules.shared(Name::new(limit)).unwrap().limiter.snapshot();
    snapshot.granted - snapshot.refunded
}

/// Debts included.
fn level(world: &TestGateway, limit: &str) -> (u64, u64) {
    let shared = world.gateway.limits.rules.shared(Name::new(limit)).unwrap();
    (shared.limiter.available(), shared.limiter.deficiency())
}

async fn landed(world: &TestGateway, limit: &str) {
    let shared = world.gateway.limits.rules.shared(Name::new(limit)).unwrap();
    until("nothing is in flight", || shared.limiter.snapshot().in_flight == Some(0)).await;
    until("nothing is in flight", || world.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

fn ask(world: &TestGateway, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    world.client.post(format!("http://{}{CHAT}", world.address)).header("x-api-key", "a").body(body)
}

async fn send(world: &TestGateway, body: &Value) -> reqwest::Response {
    ask(world, body.to_string()).send().await.unwrap()
}

#[tokio::test]
async fn a_request_is_estimated_and_settled_by_its_usage() {
    let (world, provider) =
        world("quota = \"1/h, burst 100000\"\ndefault_output = 500\nbytes_per_token = 4\n", "0s").await;
    let mut expected = 100_000;
    for (fields, usage, tokens) in [
        // OpenAI's chat completions and responses, Anthropic's messages.
        (json!({ "max_tokens": 900 }), json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 }), 15),
        (json!({ "max_output_tokens": 900 }), json!({ "input_tokens": 7, "output_tokens": 4, "total_tokens": 11 }), 11),
        (
            json!({ "max_completion_tokens": 2000 }),
            json!({ "input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 90, "output_tokens": 8 }),
            13,
        ),
        // More than estimated.
        (json!({ "max_tokens": 1 }), json!({ "total_tokens": 1_000 }), 1_000),
        // Nothing that can be read: the estimate stays.
        (json!({ "max_tokens": 100, "n": 3 }), json!(null), 0),
        (json!({}), json!({ "total_tokens": -5, "prompt_tokens": 1.5, "completion_tokens": 1e9 }), 0),
    ] {
        let body = fields.to_string();
        let most = fields.get("n").map_or(1, |n| n.as_u64().unwrap())
            * ["max_tokens", "max_output_tokens", "max_completion_tokens"]
                .iter()
                .find_map(|name| fields.get(*name)?.as_u64())
                .unwrap_or(500);
        let estimate = most + body.len().div_ceil(4) as u64;
        let chunks = provider.stream(200, &[("content-type", "application/json; charset=utf-8")]);
        let mut response = ask(&world, body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(level(&world, "llm").0, expected - estimate, "{fields}: it has what it is estimated at");
        chunks.unbounded_send(Ok(json!({ "choices": ["x"], "usage": usage }).to_string().into())).unwrap();
        drop(chunks);
        while response.chunk().await.unwrap().is_some() {}
        landed(&world, "llm").await;
        expected -= if tokens == 0 { estimate } else { tokens };
        assert_eq!(level(&world, "llm").0, expected, "{fields}");
    }
    assert_eq!(taken(&world, "llm"), 100_000 - expected);
    let all = world.gateway.limits.all.snapshot();
    assert_eq!(all.granted - all.refunded, 6, "requests cost 1 in the limit of all");
    assert!(provider.came.lock().unwrap().iter().all(|(headers, _)| headers["accept-encoding"] == "identity"));
}

const EVENTS: [(&str, u64); 3] = [
    (
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":9}\"}}],\"usage\":null}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":31,\"total_tokens\":42,\
         \"prompt_tokens_details\":{\"cached_tokens\":7,\"total_tokens\":1}}}\n\ndata: [DONE]\n\n",
        42,
    ),
    (
        "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":20,\
         \"output_tokens\":1}}}\r\n\r\nevent: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\ndata: {\"delta\":{\"partial_json\":\
         \"{\\\"usage\\\":\"},\"input\":{\"usage\":{\"output_tokens\":7}}}\r\n\r\ndata: {\"type\":\"message_delta\",\"usage\":\
         {\"output_tokens\":22}}\r\n\r\nevent: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n",
        42,
    ),
    (
        ": comment\ndata:{\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\ndata: {\"type\":\n\
         data: \"response.completed\",\"response\":{\"output\":[{\"usage\":{\"total_tokens\":3}}],\"usage\":\
         {\"input_tokens\" : 40 ,\"output_tokens\":2}}}\n\n",
        42,
    ),
];

#[test]
fn a_stream_may_be_split_anywhere() {
    for (stream, expected) in EVENTS {
        let read = |chunks: &[&[u8]]| {
            let mut scanner = EventScanner::default();
            chunks.iter().for_each(|chunk| scanner.feed(chunk));
            (scanner.json.usage.tokens(), scanner.json.is_last)
        };
        let bytes = stream.as_bytes();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), (Some(expected), true), "{stream}");
        for first in 0..=bytes.len() {
            for second in (first..=bytes.len()).step_by(13) {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(read(&parts), (Some(expected), true), "{first} {second}: {stream}");
            }
        }
    }
}

#[test]
fn hostile_responses_are_scanned_in_bounded_memory() {
    let deep = format!("{{\"x\":{}1{},\"usage\":{{\"total_tokens\":5}}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let objects = format!("{}1{}", "{\"usage\":".repeat(1 << 18), "}".repeat(1 << 18));
    let name =
        format!("{{\"{}\":1,\"usage\":{{\"{}\":3,\"total_tokens\":5}}}}", "x".repeat(1 << 20), "y".repeat(1 << 20));
    for (text, expected) in [
        (&*deep, Some(5)),
        (&objects, None),
        (&name, Some(5)),
        ("{\"usage\":{\"total_tokens\":1e400}}", None),
        ("{\"usage\":{\"total_tokens\":-4}}", None),
        ("{\"usage\":{\"total_tokens\":4.0}}", None),
        ("{\"usage\":{\"total_tokens\":99999999999999999999999}}", None),
        ("{\"usage\":{\"total_tokens\":100000001}}", None),
        ("{\"usage\":{\"total_tokens\":\"4\"}}", None),
        ("{\"usage\":{\"total_tokens\":12", None),
        ("{\"usage\":{\"total_tokens\":4},\"usage\":{\"total_tokens\":6}}", Some(6)),
        ("[{\"usage\":{\"total_tokens\":4}}]", None),
        ("}}}]]]{\"usage\":{\"total_tokens\":4}}", Some(4)),
        ("{\"a\":{\"usage\":{\"total_tokens\":4}}}", None),
        ("{\"usa\\u0067e\":{\"total_tokens\":4}}", None),
        ("{\"a\":\"\\\\\",\"usage\":{\"total_tokens\":4}}", Some(4)),
        ("{\"a\":\"\\\"\",\"usage\" :\n{\"total_tokens\" : 4 }}", Some(4)),
    ] {
        let mut scanner = UsageScanner::default();
        text.as_bytes().chunks(7).for_each(|chunk| scanner.feed(chunk));
        assert_eq!(scanner.usage.tokens(), expected, "{}", &text[..text.len().min(80)]);
    }
    assert!(std::mem::size_of::<EventScanner>() < 300);
}

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes_and_settled_at_its_end() {
    let (world, provider) = world("quota = \"1/h, burst 10000\"\n", "0s").await;
    for (number, (stream, tokens)) in EVENTS.into_iter().enumerate() {
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        let mut response = send(&world, &json!({ "stream": true, "max_tokens": 2_000 })).await;
        let mut seen = Vec::new();
        for part in stream.as_bytes().chunks(50) {
            chunks.unbounded_send(Ok(part.to_vec().into())).unwrap();
            while seen.len() % 50 != 0 || seen.is_empty() || !seen.ends_with(part) {
                seen.extend(response.chunk().await.unwrap().expect("nothing is held back"));
                if seen.ends_with(part) {
                    break;
                }
            }
        }
        assert_eq!(seen, stream.as_bytes());
        drop(chunks);
        assert!(response.chunk().await.unwrap().is_none());
        landed(&world, "llm").await;
        assert_eq!(taken(&world, "llm"), tokens * (number as u64 + 1));
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_off_stays_at_its_estimate_or_above() {
    let (world, provider) = world("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let usage = |tokens: u64| format!("data: {{\"usage\":{{\"total_tokens\":{tokens}}}}}\n\n");
    let mut expected = 0;
    for (events, is_upstreams_doing, tokens) in [
        (String::new(), false, 101),
        (usage(7), false, 101),
        (usage(7), true, 101),
        (usage(700), true, 700),
        (usage(700), false, 700),
        // The client hangs up after the last event.
        (usage(7) + "data: [DONE]\n\n", false, 7),
    ] {
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        let mut response = send(&world, &json!({ "stream": true, "max_tokens": 100 })).await;
        chunks.unbounded_send(Ok(format!(": hello\n\n{events}").into())).unwrap();
        let mut seen = 0;
        while seen < 9 + events.len() {
            seen += response.chunk().await.unwrap().unwrap().len();
        }
        if is_upstreams_doing {
            chunks.unbounded_send(Err(io::Error::other("cut off"))).unwrap();
            assert!(response.chunk().await.is_err());
        }
        drop(response);
        landed(&world, "llm").await;
        drop(chunks);
        expected += tokens;
        assert_eq!(taken(&world, "llm"), expected, "{events}");
    }
}

#[tokio::test]
async fn what_the_provider_refuses_costs_nothing_and_what_cannot_be_read_the_estimate() {
    let (world, provider) = world("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let json = ("content-type", "application/json");
    let mut expected = 0;
    for (status, headers, tokens) in [
        (400, vec![json], 0),
        (429, vec![json], 0),
        (529, vec![json], 0),
        (500, vec![json], 101),
        (200, vec![json, ("content-encoding", "br")], 101),
        (200, vec![("content-type", "text/plain")], 101),
        (200, vec![json], 5),
    ] {
        let chunks = provider.stream(status, &headers);
        let usage = if status == 200 { "{\"usage\":{\"total_tokens\":5}}" } else { "{\"error\":1}" };
        chunks.unbounded_send(Ok(usage.into())).unwrap();
        drop(chunks);
        let response = send(&world, &json!({ "max_tokens": 100 })).await;
        assert_eq!(response.status(), status);
        response.bytes().await.unwrap();
        landed(&world, "llm").await;
        expected += tokens;
        assert_eq!(taken(&world, "llm"), expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn models_and_keys_have_budgets_of_their_own() {
    let (world, provider) = world(
        "bytes_per_token = 1_000\nkey_quota = \"1/h, burst 5000\"\n[[llm.models]]\nname = \"big-*\"\n\
         quota = \"1/h, burst 1500\"\n[[llm.models]]\nname = \"big-x\"\nquota = \"1/h, burst 9000\"\nkey_quota = \"1/h, burst 2500\"\n"
            .replace("key_quota = \"1/h, burst 5000\"\n", "quota = \"1/h, burst 20000\"\nkey_quota = \"1/h, burst 5000\"\n")
            .as_str(),
        "0s",
    )
    .await;
    let (ok, refused, never) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::PAYLOAD_TOO_LARGE);
    for (model, most, expected, limit) in [
        ("big-1", 1_499, ok, ""),
        ("BIG-2", 1, refused, "model big-*"),
        ("big-1", 1_500, never, "model big-*"),
        ("big-x", 1_499, ok, ""),
        ("big-x", 1_499, refused, "model big-x each"),
        ("small", 1_499, ok, ""),
        ("small", 1_499, refused, "llm each"),
        ("small", 499, ok, ""),
    ] {
        if expected == ok {
            provider.answer(200, &[], &json!({}));
        }
        let response = send(&world, &json!({ "model": model, "max_tokens": most })).await;
        assert_eq!(response.status(), expected, "{model} {most}");
        if expected != ok {
            let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
            assert!(policy.contains(&format!("\"{limit}\"")), "{policy}");
            assert_eq!(response.headers().contains_key("retry-after"), expected == refused);
        }
        response.bytes().await.unwrap();
    }
    landed(&world, "llm").await;
    assert_eq!((taken(&world, "llm"), taken(&world, "model big-*")), (5_000, 1_500));
}

#[tokio::test]
async fn hostile_requests_are_refused_before_they_take_a_token() {
    let (world, _provider) = world("quota = \"1/h, burst 10000\"\n", "0s").await;
    let deep = format!("{{\"x\":{}1{},\"max_tokens\":-1}}", "[".repeat(400_000), "]".repeat(400_000));
    for (body, expected) in [
        (format!("{{\"x\":\"{}\"}}", "x".repeat(10 << 20)), 413),
        (deep, 400),
        ("[".repeat(500_000), 400),
        ("{\"max_tokens\":1e400}".to_owned(), 400),
        ("{\"max_tokens\":-1}".to_owned(), 400),
        ("{\"max_tokens\":-0.5}".to_owned(), 400),
        ("{\"max_tokens\":\"9\"}".to_owned(), 400),
        ("{\"max_tokens\":1e30}".to_owned(), 413),
        ("{\"max_tokens\":18446744073709551615,\"n\":18446744073709551615}".to_owned(), 413),
        ("{\"max_tokens\":1,\"max_output_tokens\":99999}".to_owned(), 413),
        ("{\"MAX_TOKENS\":99999}".to_owned(), 413),
        ("{\"max_tok\\u0065ns\":99999}".to_owned(), 413),
        ("{\"model\":\"a\",\"model\":\"b\"}".to_owned(), 400),
        (format!("{{\"model\":\"{}\"}}", "m".repeat(300)), 400),
        ("{\"model\":7}".to_owned(), 400),
        ("[\"a\",5]".to_owned(), 400),
        ("{}{}".to_owned(), 400),
        ("\u{feff}{}".to_owned(), 400),
        ("x".to_owned(), 400),
    ] {
        let start = body.chars().take(60).collect::<String>();
        let status = ask(&world, body).send().await.map(|response| response.status().as_u16());
        // A client that still sends may see its connection closed.
        assert!(status.as_ref().map_or(expected == 413, |status| *status == expected), "{start}: {status:?}");
    }
    let compressed = ask(&world, "{}").header("content-encoding", "gzip").send().await.unwrap();
    assert_eq!(compressed.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    landed(&world, "llm").await;
    assert_eq!(taken(&world, "llm"), 0);
}

#[tokio::test]
async fn the_limits_of_the_provider_delay_requests_that_wait() {
    let (world, provider) = world(&following("60000/m, burst 10000"), "1h").await;
    let body = json!({ "model": "m", "max_tokens": 99 });
    provider.answer(
        429,
        &[("retry-after", "20"), ("x-ratelimit-limit-tokens", "30000"), ("x-ratelimit-remaining-tokens", "0")],
        &json!({}),
    );
    let refused = send(&world, &body).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    refused.bytes().await.unwrap();
    let tokens = world.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let requests = world.gateway.limits.rules.shared(Name::new("model m requests")).unwrap();
    assert_eq!([&tokens, &requests].map(|shared| shared.limiter.snapshot().paused_for), [Some(20 * SECOND); 2]);
    provider.answer(200, &[], &json!({}));
    let waits = tokio::spawn(ask(&world, body.to_string()).send());
    until("it waits", || tokens.fair_queue.waiting() == 1).await;
    world.advance(20 * SECOND - MILLI);
    short_pause().await;
    assert_eq!(provider.came.lock().unwrap().len(), 1, "the provider is left alone");
    // The pause of both limits is over, and then tokens come.
    world.advance(MILLI + SECOND);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
    // The provider allows less than the file: half of the rate, and no more than it says is left.
    provider.answer(
        200,
        &[
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "100"),
            ("x-ratelimit-reset-tokens", "59.8s"),
        ],
        &json!({ "usage": { "total_tokens": 100 } }),
    );
    world.advance(60 * SECOND);
    send(&world, &body).await.bytes().await.unwrap();
    landed(&world, "model m").await;
    let quota = tokens.limiter.snapshot().quotas[0].quota;
    assert_eq!((quota.amount(), quota.period()), (30_000, 60 * SECOND));
    assert!(tokens.limiter.available() <= 100, "{}", tokens.limiter.available());
}

/// Over any time: what was granted, less what was refunded, is at most the burst and what the rate has brought.
#[tokio::test]
async fn the_budget_law_holds_over_streams_of_which_half_are_cut_off() {
    let (world, provider) = world("quota = \"1000/s, burst 3000\"\nbytes_per_token = 1_000\n", "1h").await;
    let shared = world.gateway.limits.rules.shared(Name::new("llm")).unwrap();
    let mut elapsed = 0;
    for round in 0..8_u64 {
        let requests: Vec<_> = (0..6)
            .map(|number| {
                let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
                let usage = 100 * ((number + round) % 5);
                chunks
                    .unbounded_send(Ok(format!("data: {{\"usage\":{{\"total_tokens\":{usage}}}}}\n\n").into()))
                    .unwrap();
                if number % 2 == 0 {
                    chunks.unbounded_send(Err(io::Error::other("cut off"))).unwrap();
                }
                let request = ask(&world, json!({ "stream": true, "max_tokens": 399 }).to_string());
                tokio::spawn(async move { request.send().await.map(reqwest::Response::bytes) })
            })
            .collect();
        while !requests.iter().all(tokio::task::JoinHandle::is_finished) {
            world.advance(SECOND / 5);
            elapsed += 200;
            short_pause().await;
            let snapshot = shared.limiter.snapshot();
            assert!(snapshot.granted - snapshot.refunded <= 3_000 + elapsed, "{snapshot:?}");
        }
        for request in requests {
            // A body that was cut off is an error.
            if let Ok(body) = request.await.unwrap() {
                let _ = body.await;
            }
        }
    }
    landed(&world, "llm").await;
    assert_eq!(shared.fair_queue.waiting(), 0);
    let all = shared.limiter.snapshot();
    assert!(all.granted - all.refunded >= 8 * 3 * 400, "cut off streams stay at their estimate: {all:?}");
}

#[test]
fn wrong_settings_of_models_are_refused_with_their_line() {
    for (llm, caret, expected) in [
        ("quota = \"9/h, burst 5\"", "^^^^^^^^^^^^", "a cost of 1000 waits"),
        ("bytes_per_token = 0", "^", "write about how many bytes a token has"),
        ("max_estimate = 0", "^", "`max_estimate` is 0"),
        ("[[llm.models]]\nname = \"a*b\"", "^^^^^", "is not a model"),
        ("[[llm.models]]\nname = \"a\"\n[[llm.models]]\nname = \"A\"", "^^^", "the model `A` is there twice"),
        ("[[llm.models]]\nname = \"a*\"\n[[llm.models]]\nname = \"a*\"", "^^^^", "the model `a*` is there twice"),
        ("default_output = -1", "^^", "invalid value"),
        ("follow_upstream_limits = true", "^^^^", "write `[[llm.models]]`"),
    ] {
        let said = problem(&limits(&format!("{llm}\n"), "0s"));
        assert!(said.contains(expected) && said.contains(caret), "{llm}: {said}");
    }
    let without = problem(&limits("", "0s").replace("[llm]\n", ""));
    assert!(without.contains("write a table `[llm]`") && without.contains("^^^^"), "{without}");
    let useless = problem(&limits("quota = \"9/s, burst 9999\"", "0s").replace("tokens = true", "tokens = false"));
    assert!(useless.contains("write `tokens = true` in a route"), "{useless}");
}

fn following(quota: &str) -> String {
    format!(
        "bytes_per_token = 1_000\nfollow_upstream_limits = true\n[[llm.models]]\nname = \"m\"\nquota = \"{quota}\"\n"
    )
}

#[tokio::test]
async fn a_refusal_without_limits_empties_no_bucket_and_models_without_a_limit_are_not_followed() {
    let (world, provider) =
        world(&format!("quota = \"1/h, burst 10000\"\n{}", following("1/h, burst 5000")), "0s").await;
    let slow = [("x-ratelimit-limit-tokens", "600"), ("x-ratelimit-remaining-tokens", "0"), ("retry-after", "9")];
    for (model, status, headers) in [("m", 429, &[][..]), ("m", 503, &[]), ("other", 429, &slow), ("other", 200, &slow)]
    {
        provider.answer(status, headers, &json!({ "usage": { "total_tokens": 0 } }));
        send(&world, &json!({ "model": model, "max_tokens": 99 })).await.bytes().await.unwrap();
        landed(&world, "llm").await;
        assert_eq!((level(&world, "llm").0, level(&world, "model m").0), (10_000, 5_000), "{model} {status}");
        for limit in ["llm", "model m", "model m requests"] {
            let shared = world.gateway.limits.rules.shared(Name::new(limit)).unwrap();
            assert_eq!(shared.limiter.snapshot().paused_for, None, "{limit}");
        }
    }
}

#[tokio::test]
async fn the_quota_of_the_file_returns_without_responses_and_with_each_change_of_the_file() {
    let llm = following("60000/m, burst 10000");
    let (world, provider) = world(&llm, "1h").await;
    let shared = world.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let amount = || shared.limiter.snapshot().quotas[0].quota.amount();
    let ask = async || {
        let slow = [("x-ratelimit-limit-tokens", "600"), ("x-ratelimit-remaining-tokens", "500")];
        provider.answer(200, &[&slow[..], &[("x-ratelimit-reset-tokens", "10s")]].concat(), &json!({}));
        send(&world, &json!({ "model": "m", "max_tokens": 9 })).await.bytes().await.unwrap();
        landed(&world, "model m").await;
    };
    ask().await;
    assert_eq!(amount(), 600);
    change(&world, &limits(&llm, "1h")).unwrap();
    assert_eq!(amount(), 60_000);
    ask().await;
    assert_eq!(amount(), 600);
    world.advance(601 * SECOND);
    provider.answer(200, &[], &json!({}));
    send(&world, &json!({ "model": "m", "max_tokens": 9 })).await.bytes().await.unwrap();
    assert_eq!(amount(), 60_000);
}

#[tokio::test]
async fn no_request_chooses_its_own_price() {
    let (world, provider) = world("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let mut expected = 100_000;
    for (path, body, tokens) in [
        // Fields that the upstream of this path does not follow only raise the estimate.
        ("chat/completions", json!({ "max_output_tokens": 1 }), 1_001),
        ("chat/completions", json!({ "max_output_tokens": 2_000 }), 2_001),
        ("chat/completions", json!({ "MAX_TOKENS": 1 }), 1_001),
        ("chat/completions", json!({ "max_to\u{212a}ens": 3_000 }), 3_001),
        ("chat/completions", json!({ "max_tokens": 0 }), 1_001),
        ("chat/completions", json!({ "max_tokens": 0, "max_completion_tokens": 7 }), 8),
        ("responses", json!({ "max_tokens": 1 }), 1_001),
        ("responses", json!({ "max_output_tokens": 7 }), 8),
        ("messages", json!({ "max_completion_tokens": 1 }), 1_001),
        ("messages", json!({ "max_tokens": 7 }), 8),
        ("x%2f..%2fresponses", json!({ "max_output_tokens": 1 }), 1_001),
        // Several answers and prompts.
        ("completions", json!({ "max_tokens": 7, "n": 2, "best_of": 5 }), 36),
        ("completions", json!({ "max_tokens": 7, "best_of": 0 }), 8),
        ("completions", json!({ "max_tokens": 7, "prompt": ["a", "b", "c"] }), 22),
        ("completions", json!({ "max_tokens": 7, "prompt": [[1, 2], [3]], "n": 2 }), 29),
        ("completions", json!({ "max_tokens": 7, "prompt": [1, 2, 3] }), 8),
    ] {
        provider.answer(200, &[], &json!({}));
        let url = format!("http://{}/v1/{path}", world.address);
        let response = world.client.post(url).header("x-api-key", "a").body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path} {body}");
        response.bytes().await.unwrap();
        landed(&world, "llm").await;
        expected -= tokens;
        assert_eq!(level(&world, "llm").0, expected, "{path} {body}");
    }
}

#[tokio::test]
async fn a_stream_without_usage_costs_a_token_for_each_event() {
    let (world, provider) = world("quota = \"1/h, burst 10000\"\nbytes_per_token = 1_000\n", "0s").await;
    for (events, tokens) in [(3, 10), (100, 101)] {
        let before = taken(&world, "llm");
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        chunks.unbounded_send(Ok(": x\n\ndata: {\"choices\":[]}\n\n".repeat(events).into())).unwrap();
        drop(chunks);
        send(&world, &json!({ "max_tokens": 9 })).await.bytes().await.unwrap();
        landed(&world, "llm").await;
        assert_eq!(taken(&world, "llm") - before, tokens);
    }
}

#[tokio::test]
async fn a_limit_of_all_models_counts_requests_that_name_none() {
    let llm = "bytes_per_token = 1_000\n[[llm.models]]\nname = \"*\"\nquota = \"1/h, burst 1500\"\n";
    let (world, provider) = world(llm, "0s").await;
    provider.answer(200, &[], &json!({}));
    assert_eq!(send(&world, &json!({ "max_tokens": 999 })).await.status(), StatusCode::OK);
    assert_eq!(send(&world, &json!({ "max_tokens": 999 })).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_request_that_waits_for_its_model_holds_no_tokens_of_all_models() {
    let llm = "quota = \"1/h, burst 10000\"\nbytes_per_token = 1_000\n[[llm.models]]\nname = \"m\"\n\
               quota = \"100/s, burst 100\"\n";
    let (world, provider) = world(llm, "1h").await;
    let body = json!({ "model": "m", "max_tokens": 99 });
    provider.answer(200, &[], &json!({}));
    send(&world, &body).await.bytes().await.unwrap();
    landed(&world, "llm").await;
    let waits = tokio::spawn(ask(&world, body.to_string()).send());
    let model = world.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    until("it waits", || model.fair_queue.waiting() == 1).await;
    assert_eq!(level(&world, "llm").0, 9_900);
    provider.answer(200, &[], &json!({}));
    world.advance(SECOND);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_without_a_body_takes_no_tokens_whatever_its_response_says() {
    let (world, provider) = world("quota = \"1/h, burst 10000\"\n", "0s").await;
    provider.answer(200, &[], &json!({ "usage": { "total_tokens": 900 } }));
    assert_eq!(world.get("/v1/responses/1", "a").send().await.unwrap().status(), StatusCode::OK);
    landed(&world, "llm").await;
    assert_eq!(taken(&world, "llm"), 0);
}

#[tokio::test]
async fn a_request_that_was_not_sent_takes_no_tokens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = listener.local_addr().unwrap();
    drop(listener);
    let world =
        TestGateway::before(Upstream::default(), nowhere, &limits("quota = \"1/h, burst 10000\"\n", "0s")).await;
    assert_eq!(send(&world, &json!({})).await.status(), StatusCode::BAD_GATEWAY);
    landed(&world, "llm").await;
    assert_eq!(taken(&world, "llm"), 0);
}

#[tokio::test]
async fn the_connection_may_not_name_the_encodings_that_are_accepted() {
    let (world, _provider) = world("quota = \"1/h, burst 10000\"\n", "0s").await;
    let request = ask(&world, "{}").header("connection", "x, Accept-Encoding").header("accept-encoding", "br");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
}
