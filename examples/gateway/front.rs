//! What stands before the upstream: who asks, for how much, may it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use http_body_util::Either;
use tollgate::http::{HttpLimit, LimitBody};
use tollgate::tower::{HeldBody, LimitLayer};
use tower::{Layer, Service, service_fn};

use super::answer;
use super::books::Fate;
use super::caller::Caller;
use super::door::{Asked, Claim, Door, Pass};
use super::proxy::Answer;
use super::server::Answers;
use super::who::Who;

/// When to come back where no clock can tell: others have to end first.
const WHO_KNOWS: Duration = Duration::from_secs(1);

/// Through the door, to the last byte; or what is said before it.
type Answered = axum::http::Response<Either<HeldBody<LimitBody<Body>, Pass>, Body>>;

/// The proxy, with limits before it.
type Front = HttpLimit<Beyond, Door>;

/// What is behind the door: the proxy of whoever asks.
#[derive(Clone)]
struct Beyond;

/// Answers the requests of a connection.
pub(crate) fn front(caller: Caller) -> impl Answers {
    let mut layer = LimitLayer::through(Door).respond().name("key").problem_json().or_retry_after(WHO_KNOWS);
    if caller.limits.config().fixed.tells_always.value {
        layer = layer.on_every_response();
    }
    let (front, caller) = (layer.layer(Beyond), Arc::new(caller));
    service_fn(move |request| receive(Arc::clone(&caller), front.clone(), request))
}

async fn receive(caller: Arc<Caller>, mut front: Front, request: Request<Body>) -> Result<Answered, Infallible> {
    let visit = caller.books.open();
    let claim = match claim(&caller, &request) {
        Ok(claim) => Arc::new(claim),
        Err((status, why)) => {
            visit.end(Fate::Unknown);
            return Ok(answer::plain(status, &why).map(Either::Right));
        }
    };
    let Ok(response) = front.call(Asked { request, claim: Arc::clone(&claim) }).await;
    let fate = claim.refused.get().or_else(|| response.extensions().get()).copied();
    visit.end(fate.unwrap_or(Fate::Answered));
    Ok(response.map(Either::Left))
}

/// What `request` asks for; or what is said to whom nothing is asked for. Who waits in line later keeps no old
/// configuration alive.
fn claim(caller: &Arc<Caller>, request: &Request<Body>) -> Result<Claim, (StatusCode, Cow<'static, str>)> {
    let config = caller.limits.config();
    if request.method() == Method::CONNECT {
        return Err((StatusCode::NOT_IMPLEMENTED, "this is no tunnel".into()));
    }
    let Some(who) = Who::of(request.headers(), caller.peer, &config.keys) else {
        let why = format!("send a key that is known here, in the header {}", config.keys.header);
        return Err((StatusCode::UNAUTHORIZED, why.into()));
    };
    let cost = config.routes.cost(request.method(), request.uri().path());
    Ok(Claim { caller: Arc::clone(caller), who, cost, allowed: config.max_wait, refused: OnceLock::new() })
}

impl Service<Asked> for Beyond {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, Asked { request, claim }: Asked) -> Answer {
        Box::pin(async move { Ok(claim.caller.proxy.forward(request).await) })
    }
}
