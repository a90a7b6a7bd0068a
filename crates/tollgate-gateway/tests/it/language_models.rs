//! Language models: estimates, settlement, streams, and the limits of a provider, before a provider on loopback.

mod budgets;
mod estimates;
mod streams;
mod upstreams;

use super::app::llm::event_scanner::EventScanner;
use super::app::llm::usage_scanner::UsageScanner;
use super::app::request::name::Name;
use super::fixture::*;

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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const CHAT: &str = "/v1/chat/completions";

/// A provider that answers each request with the next of its replies.
#[derive(Clone, Default)]
struct Provider {
    came: Arc<Mutex<Vec<(axum::http::HeaderMap, Bytes)>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    /// Whether it fails its checks.
    is_ill: Arc<AtomicBool>,
    /// Locked by a test that holds its answers back.
    answering: Arc<tokio::sync::Mutex<()>>,
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
                    if request.uri().path() == "/health" {
                        let is_ill = provider.is_ill.load(Ordering::Relaxed);
                        return Response::builder().status(if is_ill { 503 } else { 200 }).body(Body::empty()).unwrap();
                    }
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    provider.came.lock().unwrap().push((head.headers, body));
                    drop(provider.answering.lock().await);
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

async fn fixture(llm: &str, max_wait: &str) -> (TestGateway, Provider) {
    let (provider, address) = Provider::start().await;
    (TestGateway::before(Upstream::default(), address, &limits(llm, max_wait)).await, provider)
}

/// The tokens that were granted under a limit, less those that were refunded.
fn taken(fixture: &TestGateway, limit: &str) -> u64 {
    let snapshot = fixture.gateway.limits.rules.shared(Name::new(limit)).unwrap().limiter.snapshot();
    snapshot.granted - snapshot.refunded
}

/// Debts included.
fn level(fixture: &TestGateway, limit: &str) -> (u64, u64) {
    let shared = fixture.gateway.limits.rules.shared(Name::new(limit)).unwrap();
    (shared.limiter.available(), shared.limiter.deficiency())
}

async fn landed(fixture: &TestGateway, limit: &str) {
    let shared = fixture.gateway.limits.rules.shared(Name::new(limit)).unwrap();
    until("nothing is in flight", || shared.limiter.snapshot().in_flight == Some(0)).await;
    until("nothing is in flight", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

fn ask(fixture: &TestGateway, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    fixture.client.post(format!("http://{}{CHAT}", fixture.address)).header("x-api-key", "a").body(body)
}

async fn send(fixture: &TestGateway, body: &Value) -> reqwest::Response {
    ask(fixture, body.to_string()).send().await.unwrap()
}
