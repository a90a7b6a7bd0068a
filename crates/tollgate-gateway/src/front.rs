//! The steps before the upstream: identify the client, compute the cost, admit or refuse the request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::Refused;
use tollgate_tower::http::{Format, RateLimits, Refusal, Terms};
use tollgate_tower::key::ClientAddress;
use tollgate_tower::{HeldBody, Hold, ToBody};
use tower::service_fn;

use super::admission::{Claim, InFlight, Pass, Rejected};
use super::answer;
use super::client::Client;
use super::config::Config;
use super::conformance;
use super::connection::Connection;
use super::counters::Outcome;
use super::estimate::Estimate;
use super::grpc;
use super::heeding::{forget_old, heed};
use super::key_source::KeySource;
use super::limit::Limit;
use super::llm::Llm;
use super::name::Name;
use super::networks::Block;
use super::observed;
use super::proxy::unavailable;
use super::reason::Reason;
use super::record::Record;
use super::route::{Price, Undecidable};
use super::rule::Toll;
use super::server::Answers;
use super::settling::settle;
use super::tunnel::{Asked, Tunnel};
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
    let is_grpc = grpc::is_call(&request);
    let mut entry =
        connection.access_log.open(&request, |query| connection.limits.config().keys.source.shown(query).into());
    let (mut response, outcome, pass) = match admit(&connection, request, &mut entry.record).await {
        Err(turned) => {
            let outcome = turned.outcome;
            (turn(&connection, turned, is_grpc, &mut entry.record), outcome, None)
        }
        Ok((claim, request, Pass { in_flight, tokens })) => {
            let began = Instant::now();
            let mut response = connection.proxy.forward(request).await;
            let took = began.elapsed();
            let outcome = response.extensions().get().copied().unwrap_or(Outcome::Answered);
            connection.observed.calls.note(took, &response, outcome == Outcome::Answered);
            entry.record.upstream = Some(took);
            if let Some(estimate) = &claim.estimate {
                response = settle(response, tokens, estimate);
                // Only the upstream knows its limits.
                if outcome == Outcome::Answered {
                    heed(&connection.limits, estimate, response.status(), response.headers());
                }
            }
            if is_grpc && outcome != Outcome::Answered {
                response = grpc::answer(response, None);
            }
            if connection.limits.tells_always {
                told(&connection, &claim).write(Format::Draft11, response.headers_mut());
            }
            (response, outcome, Some(in_flight))
        }
    };
    counted.end(outcome);
    entry.record.outcome = outcome;
    entry.record.status = Some(response.status());
    match response.extensions_mut().remove::<Tunnel>() {
        // A WebSocket holds its tokens to its end, and has its line of the access log then.
        Some(tunnel) => {
            tunnel.begin(pass, entry);
            Ok(ToBody.hold(response, None))
        }
        None => Ok(ToBody.hold(entry.follow(response), pass)),
    }
}

/// Counts a request that is not forwarded, and returns its response.
fn turn(connection: &Connection, turned: Turned, is_grpc: bool, record: &mut Record) -> Response<Body> {
    let Turned { outcome, response, refused, limit } = turned;
    if let Some(reason) = Reason::new(outcome, refused.as_ref(), limit) {
        (record.reason, record.limit) = (Some(reason), limit);
        connection.observed.refusals.note(record.client, reason, limit);
        observed::refused(reason, limit);
    }
    if is_grpc { grpc::answer(*response, refused) } else { *response }
}

/// A request that is not forwarded: how it is counted, and its response.
struct Turned {
    outcome: Outcome,
    response: Box<Response<Body>>,
    /// The reason, if a limit refused it.
    refused: Option<Refused>,
    /// That limit, or the block of addresses that is refused.
    limit: Option<Limit>,
}

impl Turned {
    fn new(outcome: Outcome, response: Response<Body>) -> Self {
        Self { outcome, response: Box::new(response), refused: None, limit: None }
    }
}

/// Waits until the request may be forwarded: until as much of its body is there as is buffered, then for its tokens.
async fn admit(
    connection: &Arc<Connection>,
    request: Request<Body>,
    record: &mut Record,
) -> Result<(Claim, Request<Upload>, Pass), Turned> {
    let (mut claim, llm) = claim(connection, &request)?;
    (record.client, record.cost) = (Some(claim.client), Some(claim.cost));
    let (mut head, body) = request.into_parts();
    if !claim.websockets {
        Asked::forbid(&mut head.extensions);
    }
    let upload = if body.is_end_stream() {
        Upload::default()
    } else {
        // The body of a request that would be refused is not read, and not asked for by `100 Continue`.
        claim.check_wait(connection).map_err(|rejected| refusal(connection, &claim, rejected))?;
        let Claim { body_buffer, client_timeout, .. } = claim;
        Upload::read(body, body_buffer, client_timeout).await.map_err(did_not_come)?
    };
    // A request without a body generates nothing. Its response may have the usage of an earlier one.
    if let Some(llm) = llm.filter(|_| !upload.is_end_stream()) {
        let estimate = Estimate::of(&llm, head.uri.path(), &head.headers, &upload);
        let estimate = estimate.map_err(|(status, why)| Turned::new(Outcome::Invalid, answer::plain(status, &why)))?;
        record.tokens = Some(estimate.tokens);
        forget_old(&connection.limits, &estimate);
        claim.tolls.splice(0..0, estimate.request_toll(claim.client));
        claim.estimate = Some(estimate);
        // The usage of a compressed response could not be read.
        head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let began = Instant::now();
    let admitted = claim.admit(connection).await;
    let waited = began.elapsed();
    // A client without a bucket of its own has become the one that such clients share.
    (record.client, record.waited) = (Some(claim.client), Some(waited));
    let pass = admitted.map_err(|rejected| refusal(connection, &claim, rejected))?;
    connection.observed.waits.note(waited);
    Ok((claim, Request::from_parts(head, upload), pass))
}

fn did_not_come(error: UploadError) -> Turned {
    Turned::new(error.outcome(), error.response())
}

/// The claim of `request`, and the settings if it is for a language model; or the response to a request that needs no
/// admission. A request that waits later does not keep an old configuration alive.
fn claim(connection: &Connection, request: &Request<Body>) -> Result<(Claim, Option<Arc<Llm>>), Turned> {
    let invalid = |response| Turned { outcome: Outcome::Invalid, response, refused: None, limit: None };
    conformance::check_request(request).map_err(invalid)?;
    let config = connection.limits.config();
    let block = block(&config, request, connection)?;
    let Some(client) = config.keys.client(request.headers(), request.uri(), connection.peer) else {
        return Err(Turned::new(Outcome::Unknown, unauthorized(&config.keys.source)));
    };
    if config.keys.source.is_named_by_connection(request.headers()) {
        // The field is not forwarded then: the key would count here, and not at the upstream.
        let why = "Connection may not name the field of the key";
        return Err(Turned::new(Outcome::Invalid, answer::plain(StatusCode::BAD_REQUEST, why)));
    }
    // Otherwise the request would wait for tokens that it cannot use.
    if let Some(wait) = config.upstreams.outage() {
        return Err(Turned::new(Outcome::Failed, unavailable(wait)));
    }
    let price = config.routes.price(request.method(), request.headers(), request.uri().path());
    let Price { cost, body_buffer, rules, is_llm, websockets } = price.map_err(|Undecidable| {
        let why = "the path has a percent sign that begins no escape: write %25";
        Turned::new(Outcome::Invalid, answer::plain(StatusCode::BAD_REQUEST, why))
    })?;
    let of_block = block.map(|(rule, address)| Toll { rule, client: Client::Address(address), cost });
    let tolls = rules.into_iter().map(|rule| Toll { rule, client, cost }).chain(of_block).collect();
    let client_timeout = config.timeouts.client;
    let allowed = config.max_wait;
    let claim = Claim { client, cost, tolls, estimate: None, allowed, body_buffer, client_timeout, websockets };
    Ok((claim, config.llm.clone().filter(|_| is_llm)))
}

/// The limits of the request's block of addresses, if it has any, and the address.
fn block(config: &Config, request: &Request<Body>, connection: &Connection) -> Result<Option<(Name, IpAddr)>, Turned> {
    if config.networks.is_empty() {
        return Ok(None);
    }
    let address = config.keys.proxies.client(request.headers(), connection.peer.ip());
    match config.networks.of(address) {
        Block::Limited(rule) => Ok(Some((rule, ClientAddress::from(address).into()))),
        Block::Free => Ok(None),
        Block::Refused(name) => {
            let why = "requests from this address are not accepted";
            let turned = Turned::new(Outcome::Unknown, answer::plain(StatusCode::FORBIDDEN, why));
            Err(Turned { limit: Some(Limit::Block(name)), ..turned })
        }
    }
}

fn unauthorized(source: &KeySource) -> Response<Body> {
    let (why, challenge) = source.challenge();
    let mut response = answer::plain(StatusCode::UNAUTHORIZED, &why);
    let challenge = HeaderValue::try_from(challenge).expect("names of keys are visible ASCII characters");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// The rate limit report of the request's own key.
fn told(connection: &Connection, claim: &Claim) -> RateLimits {
    let terms = Terms::default().name(own_name(claim));
    RateLimits::of_key(connection.limits.each.of(&claim.client), &claim.client, &terms)
}

/// The name of the limit of the request's own key.
fn own_name(claim: &Claim) -> &'static str {
    if claim.client == Client::Overflow { "overflow" } else { "key" }
}

fn refusal(connection: &Connection, claim: &Claim, turned: Rejected) -> Turned {
    let mut limits = told(connection, claim);
    // The state of a limit that several clients share is reported only to a client that it refused.
    let other = match turned.refuser {
        Some(refuser) => Some(connection.limits.rules.told(&refuser)),
        None if turned.by == Outcome::RefusedAll => {
            Some(RateLimits::of(&connection.limits.all.snapshot(), &Terms::default().name("all")))
        }
        None => None,
    };
    let refusal = Refusal::new(turned.why, other.as_ref().unwrap_or(&limits));
    let limit = match turned.refuser {
        Some(refuser) => Limit::of(refuser),
        None if turned.by == Outcome::RefusedAll => Limit::All,
        None if claim.client == Client::Overflow => Limit::Overflow,
        None => Limit::Own,
    };
    if let Some(other) = other {
        limits.policies.extend(other.policies);
        limits.limits.extend(other.limits);
    }
    let mut response = refusal.or_retry_after(UNKNOWN_WAIT).response(true).map(Body::from);
    response.headers_mut().insert(CACHE_CONTROL, answer::NO_STORE);
    limits.write(Format::Draft11, response.headers_mut());
    Turned { refused: Some(turned.why), limit: Some(limit), ..Turned::new(turned.by, response) }
}
