//! The operator's HTTP server, on an address of its own: the live page, the Prometheus metrics and the health check.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use futures::{Stream, StreamExt, stream};

use super::counters::Counters;
use super::meters::Meters;
use super::sample::Samples;
use super::status::Status;

/// The page may connect to its own origin only.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Clone)]
pub(crate) struct AdminState {
    pub(crate) meters: Meters,
    pub(crate) counters: Arc<Counters>,
    pub(crate) status: Arc<Status>,
    pub(crate) samples: Arc<Samples>,
}

pub(crate) fn router(admin: AdminState) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .with_state(admin)
}

async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(include_str!("page.html")))
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
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.meters.render(&admin.counters, &admin.status))
}
