//! The page for people: what the service refuses, whom and why. It is read only and has a port of its own.

pub mod data;
pub mod history;
pub mod refusals;

use crate::health::Health;
use crate::reload::Reloader;
use crate::service::Service;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use history::History;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// How often the history looks at the counters. The page asks more often.
const EACH: Duration = Duration::from_secs(5);
/// How long an answer serves all requests, so that many open pages cost no more than one.
const FRESH: Duration = Duration::from_secs(1);
const HTML: &str = include_str!("page/page.html");

/// What the page shows.
#[derive(Debug)]
pub struct Page {
    service: Arc<Service>,
    health: Health,
    reloader: Arc<Reloader>,
    began: Duration,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    history: History,
    /// The last answer, and when it was made.
    answer: Option<(Duration, String)>,
}

impl Page {
    /// Creates the page of a service, which counts refused values from now on.
    pub fn new(service: Arc<Service>, health: Health, reloader: Arc<Reloader>) -> Self {
        service.refusals.get_or_init(Default::default);
        let began = service.maker.now();
        Self { service, health, reloader, began, seen: Mutex::default() }
    }

    /// Serves the page until the process ends, so that it shows how the service drains.
    pub async fn serve(self, listener: TcpListener) {
        let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let page = Arc::new(self);
        let watching = Arc::clone(&page);
        let watch = async move {
            loop {
                watching.seen().history.look(&watching.service);
                tokio::time::sleep(EACH).await;
            }
        };
        let served = async { axum::serve(listener, page.routes(is_local)).await };
        tokio::select! {
            () = watch => {}
            Err(error) = served => tracing::error!("the port of the page failed: {error}"),
        }
    }

    /// Returns the routes. With `is_local`, only a browser that names this machine gets an answer: a page of another
    /// site cannot read this one through a name that points here.
    pub fn routes(self: Arc<Self>, is_local: bool) -> Router {
        Router::new()
            .route("/", get(html))
            .route("/data.json", get(json))
            .layer(from_fn_with_state(is_local, guard))
            .with_state(self)
    }

    /// Returns what the page shows, as JSON that is at most a second old.
    pub fn data(&self) -> String {
        let mut seen = self.seen();
        let now = self.service.maker.now();
        if let Some((_, answer)) = seen.answer.as_ref().filter(|(at, _)| now < *at + FRESH) {
            return answer.clone();
        }
        seen.history.look(&self.service);
        let problems = self.reloader.problems();
        let answer =
            data::answer(&self.service, &seen.history, self.health.problem(), &problems, self.began).to_string();
        seen.answer = Some((now, answer.clone()));
        answer
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn json(State(page): State<Arc<Page>>) -> Response {
    ([(CONTENT_TYPE, "application/json")], page.data()).into_response()
}

/// The script and the style of this answer alone are run: they carry its number.
async fn html() -> Response {
    let nonce: String = [0, 1].map(|n| format!("{:016x}", RandomState::new().hash_one(n))).concat();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    ([(CONTENT_SECURITY_POLICY, policy)], Html(HTML.replace("NONCE", &nonce))).into_response()
}

async fn guard(State(is_local): State<bool>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if is_local && !names_this_machine(host) {
        let text = "this page answers to localhost and IP addresses only; set PAGE_HOST for other names\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else {
        next.run(request).await
    };
    let fields = [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (REFERRER_POLICY, "no-referrer")];
    response.headers_mut().extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn names_this_machine(host: &str) -> bool {
    let is_name = |host: &str| host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    host.parse::<Authority>().is_ok_and(|authority| is_name(authority.host()))
}
