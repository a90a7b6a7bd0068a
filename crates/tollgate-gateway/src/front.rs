//! What stands before the upstream: who asks, for how much, may it.

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

/// When to come back where no clock can tell: others have to end first.
const WHO_KNOWS: Duration = Duration::from_secs(1);

/// In flight to its last byte; nothing is, if it was said before the door.
type Answered = Response<HeldBody<Body, Pass>>;

/// Answers the requests of a connection.
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

/// What `request` asks for; or what is said to whom nothing is asked for. Who waits in line later keeps no old
/// configuration alive.
fn claim(caller: &Caller, request: &Request<Body>) -> Result<Claim, (StatusCode, Cow<'static, str>)> {
    let config = caller.limits.config();
    if request.method() == Method::CONNECT {
        return Err((StatusCode::NOT_IMPLEMENTED, "this is no tunnel".into()));
    }
    let Some(who) = Who::of(request.headers(), caller.peer, &config.keys) else {
        let why = format!("send a key that is known here, in the header {}", config.keys.header);
        return Err((StatusCode::UNAUTHORIZED, why.into()));
    };
    let cost = config.routes.cost(request.method(), request.uri().path());
    Ok(Claim { who, cost, allowed: config.max_wait })
}

/// What is left of one's own limit.
fn told(caller: &Caller, claim: &Claim) -> RateLimits {
    RateLimits::of_key(&caller.limits.each, &claim.who, &Terms::default().name("key"))
}

fn refusal(caller: &Caller, claim: &Claim, turned: Turned) -> Response<Body> {
    let mut limits = told(caller, claim);
    // How much all others ask for concerns nobody, unless it is why.
    if turned.by == Fate::RefusedAll {
        let all = RateLimits::of(&caller.limits.all.snapshot(), &Terms::default().name("all"));
        limits.policies.extend(all.policies);
        limits.limits.extend(all.limits);
    }
    let mut response = Refusal::new(turned.why, &limits).or_retry_after(WHO_KNOWS).response(true).map(Body::from);
    limits.write(Format::Draft11, response.headers_mut());
    response
}
