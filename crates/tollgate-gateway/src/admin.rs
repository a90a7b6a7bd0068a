//! The operator's HTTP server, on an address of its own: the live page, the Prometheus metrics and the health check.

pub(crate) mod advice;
pub(crate) mod meters;
pub(crate) mod page;
pub(crate) mod reload;
pub(crate) mod sample;
pub(crate) mod saver;
pub(crate) mod status;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures::{Stream, StreamExt, stream};
use tower::{ServiceExt, service_fn};

use crate::downstream::http_service::HttpService;
use crate::http::conformance;
use crate::http::local_reply;
use crate::limits::Limits;
use crate::telemetry::counters::Counters;
use crate::telemetry::stats::Stats;
use meters::Meters;
use sample::Samples;
use status::Status;

#[derive(Clone)]
pub(crate) struct AdminState {
    pub(crate) meters: Meters,
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) status: Arc<Status>,
    pub(crate) samples: Arc<Samples>,
    pub(crate) stats: Arc<Stats>,
}

/// The service of a connection. It answers to its own names only: a page of another site whose name resolves to this
/// address would otherwise read it in the browser of the operator.
pub(crate) fn service(admin: AdminState) -> impl HttpService {
    let limits = Arc::clone(&admin.limits);
    let router = router(admin);
    service_fn(move |request: Request<Body>| {
        let checked = check_host(&request, &limits.config().admin_hosts);
        let router = router.clone();
        async move {
            match checked {
                Ok(()) => router.oneshot(request).await,
                Err((status, why)) => Ok(local_reply::problem(status, why)),
            }
        }
    })
}

fn check_host(request: &Request<Body>, names: &[String]) -> Result<(), (StatusCode, &'static str)> {
    if !conformance::has_valid_host(request) {
        return Err((StatusCode::BAD_REQUEST, "send exactly one Host field, with a host and perhaps a port"));
    }
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let authority = request.uri().authority().cloned().or(named);
    // A browser sends HTTP/1.1, and so a host.
    let is_own = authority.is_none_or(|authority| {
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_address = bare.parse::<IpAddr>().is_ok();
        is_address || names.iter().map(String::as_str).chain(["localhost"]).any(|name| name.eq_ignore_ascii_case(host))
    });
    if is_own { Ok(()) } else { Err((StatusCode::MISDIRECTED_REQUEST, "write this host into `admin_hosts`")) }
}

fn router(admin: AdminState) -> Router {
    Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script))
        .route("/charts.js", get(page::charts))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .with_state(admin)
}

async fn events(State(admin): State<AdminState>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (kept, newest) = admin.samples.follow();
    let first = stream::once(async move { Event::default().event("history").data(kept) });
    let others = stream::unfold(newest, async |mut newest| {
        newest.changed().await.ok()?;
        let sample = Arc::clone(&newest.borrow_and_update());
        Some((Event::default().event("sample").data(&*sample), newest))
    });
    Sse::new(first.chain(others).map(Ok)).keep_alive(KeepAlive::new().interval(Duration::from_secs(10)))
}

/// The health check for a load balancer. It fails from the moment a shutdown begins.
async fn health(State(admin): State<AdminState>) -> (StatusCode, &'static str) {
    if admin.status.now().is_ending { (StatusCode::SERVICE_UNAVAILABLE, "ending\n") } else { (StatusCode::OK, "ok\n") }
}

async fn metrics(State(admin): State<AdminState>) -> impl IntoResponse {
    let mut text = admin.meters.render(&admin.limits, &admin.counters, &admin.status, &admin.stats);
    text += &meters::of_upstreams(&admin.limits.config().upstreams);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
