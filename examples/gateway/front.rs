//! What stands before the upstream: who asks, for how much, may it, then the proxy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tollgate::tower::LimitLayer;

use super::answer;
use super::books::{Books, Fate};
use super::door::{Claim, Door};
use super::limits::Limits;
use super::proxy::{Peer, Proxy};
use super::who::Who;

/// When to come back where no clock can tell: others have to end first.
const WHO_KNOWS: Duration = Duration::from_secs(1);

/// `is_limited` is false to measure what the limits cost.
pub(crate) fn router(limits: &Arc<Limits>, books: &Arc<Books>, is_limited: bool) -> Router {
    let proxy = Proxy::new(Arc::clone(limits));
    let router = Router::new().fallback(move |request: Request<Body>| proxy.clone().forward(request));
    if !is_limited {
        return router;
    }
    let door = Door::new(Arc::clone(limits), Arc::clone(books));
    let state = (Arc::clone(limits), Arc::clone(books));
    let limit = LimitLayer::through(door).respond().name("key").on_every_response().problem_json();
    router.layer(limit.or_retry_after(WHO_KNOWS)).layer(from_fn_with_state(state, receive))
}

type Shared = (Arc<Limits>, Arc<Books>);

async fn receive(State((limits, books)): State<Shared>, mut request: Request, next: Next) -> Response {
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
    let response = next.run(request).await;
    let fate = refused.get().or_else(|| response.extensions().get()).copied();
    visit.end(fate.unwrap_or(Fate::Answered));
    response
}
