//! What stands before the upstream: who asks, for how much, may it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use tollgate::http::HttpLimit;
use tollgate::tower::LimitLayer;
use tower::{Layer, Service};

use super::answer;
use super::books::{Books, Fate};
use super::door::{Claim, Door};
use super::limits::Limits;
use super::proxy::{Answer, Peer, Proxy};
use super::who::Who;

/// When to come back where no clock can tell: others have to end first.
const WHO_KNOWS: Duration = Duration::from_secs(1);

/// The proxy, with limits before it. One count to share it by: two threads that count clones wait for each other.
#[derive(Clone)]
pub(crate) struct Front(Arc<Shared>);

struct Shared {
    limits: Arc<Limits>,
    books: Arc<Books>,
    limited: HttpLimit<Proxy, Door>,
}

impl Front {
    pub(crate) fn new(limits: Arc<Limits>, books: Arc<Books>, proxy: Proxy) -> Self {
        let door = Door::new(Arc::clone(&limits), Arc::clone(&books));
        let mut layer = LimitLayer::through(door).respond().name("key").problem_json().or_retry_after(WHO_KNOWS);
        if limits.config().fixed.tells_always.value {
            layer = layer.on_every_response();
        }
        Self(Arc::new(Shared { limits, books, limited: layer.layer(proxy) }))
    }

    async fn receive(self, mut request: Request<Body>) -> Response {
        let Shared { limits, books, limited } = &*self.0;
        let visit = books.open();
        let config = limits.config();
        if request.method() == Method::CONNECT {
            visit.end(Fate::Unknown);
            return answer::plain(StatusCode::NOT_IMPLEMENTED, "this is no tunnel");
        }
        let Peer(peer) = *request.extensions().get().expect("every connection has a peer");
        let Some(who) = Who::of(request.headers(), peer, &config.keys) else {
            visit.end(Fate::Unknown);
            let why = format!("send a key that is known here, in the header {}", config.keys.header);
            return answer::plain(StatusCode::UNAUTHORIZED, &why);
        };
        let cost = config.routes.cost(request.method(), request.uri().path());
        let refused = Arc::new(OnceLock::new());
        let claim = Claim { who, cost, allowed: config.max_wait, refused: Arc::clone(&refused) };
        request.extensions_mut().insert(claim);
        // Who waits in line keeps no old configuration alive.
        drop(config);
        let Ok(response) = limited.clone().call(request).await;
        let fate = refused.get().or_else(|| response.extensions().get()).copied();
        visit.end(fate.unwrap_or(Fate::Answered));
        response.map(Body::new)
    }
}

impl Service<Request<Body>> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // As the proxy is.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let response = self.clone().receive(request);
        Box::pin(async { Ok(response.await) })
    }
}
