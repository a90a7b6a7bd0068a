//! The steps before the upstream: identify the client, compute the cost, admit or refuse the request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tollgate::Refused;
use tollgate_tower::http::{Format, RateLimits, Refusal, Terms};
use tollgate_tower::{HeldBody, Hold, ToBody};
use tower::service_fn;

use super::admission::{Claim, InFlight, Rejected};
use super::answer;
use super::client::Client;
use super::conformance;
use super::connection::Connection;
use super::counters::Outcome;
use super::grpc;
use super::route::{Price, Undecidable};
use super::server::Answers;
use super::tunnel::Tunnel;
use super::upload::{Upload, UploadError};

/// The `Retry-After` of a refusal where no clock can tell the wait: other requests have to end first.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// A response. Its tokens are in flight to its last byte; without a pass it has none.
type Answered = Response<HeldBody<Body, InFlight>>;

/// The service that responds to the requests of a connection.
pub(crate) fn front(connection: Connection) -> impl Answers {
    let connection = Arc::new(connection);
    service_fn(move |request| receive(Arc::clone(&connection), request))
}

async fn receive(connection: Arc<Connection>, request: Request<Body>) -> Result<Answered, Infallible> {
    let counted = connection.counters.open();
    let is_grpc = grpc::is_call(request.headers());
    let (response, outcome, pass) = match admit(&connection, request).await {
        Err(Turned { outcome, response, refused }) if is_grpc => (grpc::answer(*response, refused), outcome, None),
        Err(Turned { outcome, response, .. }) => (*response, outcome, None),
        Ok((claim, request, pass)) => {
            let mut response = connection.proxy.forward(request).await;
            let outcome = response.extensions().get().copied().unwrap_or(Outcome::Answered);
            if is_grpc && outcome != Outcome::Answered {
                response = grpc::answer(response, None);
            }
            if connection.limits.tells_always {
                told(&connection, &claim).write(Format::Draft11, response.headers_mut());
            }
            // A WebSocket holds its tokens to its end.
            match response.extensions_mut().remove::<Tunnel>() {
                Some(tunnel) => {
                    tunnel.begin(pass);
                    (response, outcome, None)
                }
                None => (response, outcome, Some(pass)),
            }
        }
    };
    counted.end(outcome);
    Ok(ToBody.hold(response, pass))
}

/// A request that is not forwarded: how it is counted, and its response.
struct Turned {
    outcome: Outcome,
    response: Box<Response<Body>>,
    /// The reason, if a limit refused it.
    refused: Option<Refused>,
}

impl Turned {
    fn new(outcome: Outcome, response: Response<Body>) -> Self {
        Self { outcome, response: Box::new(response), refused: None }
    }
}

/// Waits until the request may be forwarded: until as much of its body is there as is buffered, then for its tokens.
async fn admit(
    connection: &Arc<Connection>,
    request: Request<Body>,
) -> Result<(Claim, Request<Upload>, InFlight), Turned> {
    let mut claim = claim(connection, &request)?;
    let (head, body) = request.into_parts();
    let upload = if body.is_end_stream() {
        Upload::default()
    } else {
        // The body of a request that would be refused is not read, and not asked for by `100 Continue`.
        claim.check_wait(connection).map_err(|rejected| refusal(connection, &claim, rejected))?;
        let Claim { body_buffer, client_timeout, .. } = claim;
        Upload::read(body, body_buffer, client_timeout).await.map_err(did_not_come)?
    };
    let admitted = claim.admit(connection).await;
    let pass = admitted.map_err(|rejected| refusal(connection, &claim, rejected))?;
    Ok((claim, Request::from_parts(head, upload), pass))
}

fn did_not_come(error: UploadError) -> Turned {
    Turned::new(error.outcome(), error.response())
}

/// The claim of `request`, or the response to a request that needs no admission. A request that waits later does not
/// keep an old configuration alive.
fn claim(connection: &Connection, request: &Request<Body>) -> Result<Claim, Turned> {
    let invalid = |response| Turned { outcome: Outcome::Invalid, response, refused: None };
    conformance::check_request(request).map_err(invalid)?;
    let config = connection.limits.config();
    let Some(client) = config.keys.client(request.headers(), connection.peer) else {
        return Err(Turned::new(Outcome::Unknown, unauthorized(&config.keys.header)));
    };
    let price = config.routes.price(request.method(), request.headers(), request.uri().path());
    let Price { cost, body_buffer } = price.map_err(|Undecidable| {
        let why = "the path has a percent sign that begins no escape: write %25";
        Turned::new(Outcome::Invalid, answer::plain(StatusCode::BAD_REQUEST, why))
    })?;
    Ok(Claim { client, cost, allowed: config.max_wait, body_buffer, client_timeout: config.timeouts.client })
}

fn unauthorized(header: &HeaderName) -> Response<Body> {
    let challenge = if header == AUTHORIZATION {
        "Bearer realm=\"tollgate-gateway\"".to_owned()
    } else {
        format!("ApiKey realm=\"tollgate-gateway\", header=\"{header}\"")
    };
    let mut response = answer::plain(StatusCode::UNAUTHORIZED, &format!("send a known key in the header {header}"));
    let challenge = HeaderValue::try_from(challenge).expect("a header name is a valid value");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// The rate limit report of the request's own key.
fn told(connection: &Connection, claim: &Claim) -> RateLimits {
    let name = if claim.client == Client::Overflow { "overflow" } else { "key" };
    RateLimits::of_key(connection.limits.each.of(&claim.client), &claim.client, &Terms::default().name(name))
}

fn refusal(connection: &Connection, claim: &Claim, turned: Rejected) -> Turned {
    let mut limits = told(connection, claim);
    // The state of the common limit is reported only to a client that it refused.
    let refusal = if turned.by == Outcome::RefusedAll {
        let all = RateLimits::of(&connection.limits.all.snapshot(), &Terms::default().name("all"));
        let refusal = Refusal::new(turned.why, &all);
        limits.policies.extend(all.policies);
        limits.limits.extend(all.limits);
        refusal
    } else {
        Refusal::new(turned.why, &limits)
    };
    let mut response = refusal.or_retry_after(UNKNOWN_WAIT).response(true).map(Body::from);
    limits.write(Format::Draft11, response.headers_mut());
    Turned { refused: Some(turned.why), ..Turned::new(turned.by, response) }
}
