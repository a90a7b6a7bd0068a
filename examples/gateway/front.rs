//! What stands before the upstream: who asks, for how much, may it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use http_body_util::Either;
use tollgate::http::{HttpLimit, LimitBody};
use tollgate::tower::{HeldBody, LimitLayer};
use tower::{Layer, Service, service_fn};

use super::answer;
use super::books::{Books, Fate};
use super::door::{Asked, Claim, Door, Pass};
use super::limits::Limits;
use super::proxy::Proxy;
use super::server::Answers;
use super::who::Who;

/// When to come back where no clock can tell: others have to end first.
const WHO_KNOWS: Duration = Duration::from_secs(1);

/// Through the door, to the last byte; or what is said before it.
type Answered = axum::http::Response<Either<HeldBody<LimitBody<Body>, Pass>, Body>>;

/// The proxy, with limits before it: for one connection.
struct Front<S> {
    peer: SocketAddr,
    limits: Arc<Limits>,
    books: Arc<Books>,
    limited: HttpLimit<S, Door>,
}

/// Answers the requests of a connection from `peer`.
pub(crate) fn front(peer: SocketAddr, limits: Arc<Limits>, books: Arc<Books>, proxy: Proxy) -> impl Answers {
    let door = Door::new(Arc::clone(&limits), Arc::clone(&books));
    let mut layer = LimitLayer::through(door).respond().name("key").problem_json().or_retry_after(WHO_KNOWS);
    if limits.config().fixed.tells_always.value {
        layer = layer.on_every_response();
    }
    let forward = service_fn(move |Asked { request, .. }| proxy.clone().call(request));
    let front = Arc::new(Front { peer, limits, books, limited: layer.layer(forward) });
    service_fn(move |request| Arc::clone(&front).receive(request))
}

impl<S> Front<S>
where
    S: Service<Asked, Response = Response, Error = Infallible> + Clone,
{
    async fn receive(self: Arc<Self>, request: Request<Body>) -> Result<Answered, Infallible> {
        let visit = self.books.open();
        let claim = match self.claim(&request) {
            Ok(claim) => Arc::new(claim),
            Err(refusal) => {
                visit.end(Fate::Unknown);
                return Ok(refusal.map(Either::Right));
            }
        };
        let asked = Asked { request, claim: Arc::clone(&claim) };
        let Ok(response) = self.limited.clone().call(asked).await;
        let fate = claim.refused.get().or_else(|| response.extensions().get()).copied();
        visit.end(fate.unwrap_or(Fate::Answered));
        Ok(response.map(Either::Left))
    }

    /// What `request` asks for; or what is said to whom nothing is asked for. Who waits in line later keeps no old
    /// configuration alive.
    fn claim(&self, request: &Request<Body>) -> Result<Claim, Response> {
        let config = self.limits.config();
        if request.method() == Method::CONNECT {
            return Err(answer::plain(StatusCode::NOT_IMPLEMENTED, "this is no tunnel"));
        }
        let Some(who) = Who::of(request.headers(), self.peer, &config.keys) else {
            let why = format!("send a key that is known here, in the header {}", config.keys.header);
            return Err(answer::plain(StatusCode::UNAUTHORIZED, &why));
        };
        let cost = config.routes.cost(request.method(), request.uri().path());
        Ok(Claim { who, cost, allowed: config.max_wait, refused: OnceLock::new() })
    }
}
