//! The steps before the upstream: identify the client, compute the cost, admit or refuse the request.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use tollgate_tower::http::{Format, RateLimits, Refusal, Terms};
use tollgate_tower::{HeldBody, Hold, ToBody};
use tower::service_fn;

use super::answer;
use super::books::Fate;
use super::caller::Caller;
use super::door::{Claim, Pass, Turned};
use super::server::Answers;
use super::who::Who;

/// The `Retry-After` of a refusal where no clock can tell the wait: other requests have to end first.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// A response. Its tokens are in flight to its last byte; without a pass it has none.
type Answered = Response<HeldBody<Body, Pass>>;

/// The service that responds to the requests of a connection.
pub(crate) fn front(caller: Caller) -> impl Answers {
    let caller = Arc::new(caller);
    service_fn(move |request| receive(Arc::clone(&caller), request))
}

async fn receive(caller: Arc<Caller>, request: Request<Body>) -> Result<Answered, Infallible> {
    let visit = caller.books.open();
    let (response, pass) = match claim(&caller, &request) {
        Err((status, why)) => {
            visit.end(Fate::Unknown);
            (answer::plain(status, &why), None)
        }
        Ok(claim) => match claim.admit(&caller).await {
            Err(turned) => {
                visit.end(turned.by);
                (refusal(&caller, &claim, turned), None)
            }
            Ok(pass) => {
                let mut response = caller.proxy.forward(request).await;
                visit.end(response.extensions().get().copied().unwrap_or(Fate::Answered));
                if caller.limits.tells_always {
                    told(&caller, &claim).write(Format::Draft11, response.headers_mut());
                }
                (response, Some(pass))
            }
        },
    };
    Ok(ToBody.hold(response, pass))
}

/// The claim of `request`, or the response to a request that needs no admission. A request that waits later does not
/// keep an old configuration alive.
fn claim(caller: &Caller, request: &Request<Body>) -> Result<Claim, (StatusCode, Cow<'static, str>)> {
    let config = caller.limits.config();
    if request.method() == Method::CONNECT {
        return Err((StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported".into()));
    }
    let Some(who) = Who::of(request.headers(), caller.peer, &config.keys) else {
        let why = format!("send a known key in the header {}", config.keys.header);
        return Err((StatusCode::UNAUTHORIZED, why.into()));
    };
    let cost = config.routes.cost(request.method(), request.uri().path());
    Ok(Claim { who, cost, allowed: config.max_wait })
}

/// The rate limit report of the request's own key.
fn told(caller: &Caller, claim: &Claim) -> RateLimits {
    RateLimits::of_key(&caller.limits.each, &claim.who, &Terms::default().name("key"))
}

fn refusal(caller: &Caller, claim: &Claim, turned: Turned) -> Response<Body> {
    let mut limits = told(caller, claim);
    // The state of the common limit is reported only to a client that it refused.
    if turned.by == Fate::RefusedAll {
        let all = RateLimits::of(&caller.limits.all.snapshot(), &Terms::default().name("all"));
        limits.policies.extend(all.policies);
        limits.limits.extend(all.limits);
    }
    let mut response = Refusal::new(turned.why, &limits).or_retry_after(UNKNOWN_WAIT).response(true).map(Body::from);
    limits.write(Format::Draft11, response.headers_mut());
    response
}
