//! The steps before the upstream: identify the client, compute the cost, admit or refuse the request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures::FutureExt;
use tokio::time::Instant;
use tollgate::Refused;
use tollgate_tower::http::{Format, RateLimits, Refusal, Terms};
use tollgate_tower::key::ClientAddress;
use tollgate_tower::{HeldBody, Hold, ToBody};
use tower::service_fn;

use super::admission::{Admission, Admitted, InFlight, ModelGrants, Rejected};
use super::connection::Connection;
use super::follow_upstream::{follow_upstream, restore_expired};
use super::http_service::HttpService;
use crate::body::upload::Upload;
use crate::config::Config;
use crate::http::conformance;
use crate::http::grpc;
use crate::http::local_reply;
use crate::limits::limit::Limit;
use crate::limits::reason::Reason;
use crate::limits::time_left::TimeLeft;
use crate::llm::Llm;
use crate::llm::estimate::Estimate;
use crate::proxy::settling_body::settle;
use crate::proxy::tunnel::{Tunnel, UpgradeRequest};
use crate::proxy::unavailable;
use crate::request::client::Client;
use crate::request::key_source::Challenge;
use crate::request::name::Name;
use crate::request::networks::Block;
use crate::request::outcome::Outcome;
use crate::request::route::{BadEscape, RoutePolicy};
use crate::request::rule::Charge;
use crate::telemetry::logged_body::LoggedBody;
use crate::telemetry::record::Record;

/// The `Retry-After` of a refusal where no clock can tell the wait: other requests have to end first.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// The names of limits in responses.
static OF_KEY: LazyLock<Terms> = LazyLock::new(|| Terms::default().name("key"));
static OF_OVERFLOW: LazyLock<Terms> = LazyLock::new(|| Terms::default().name("overflow"));
static OF_ALL: LazyLock<Terms> = LazyLock::new(|| Terms::default().name("all"));

/// A response. Its tokens are in flight to its last byte; without a pass it has none.
type HandlerResponse = Response<HeldBody<Body, InFlight>>;

/// The service that responds to the requests of a connection.
pub(crate) fn handler(connection: Connection) -> impl HttpService {
    let connection = Arc::new(connection);
    service_fn(move |request| handle(Arc::clone(&connection), request))
}

async fn handle(connection: Arc<Connection>, mut request: Request<Body>) -> Result<HandlerResponse, Infallible> {
    let counted = connection.counters.open();
    let is_grpc = grpc::is_call(&request);
    let mut entry =
        connection.access_log.open(&request, |query| connection.limits.config().keys.source.shown(query).into());
    let admitted = if connection.is_limited {
        admit(&connection, &mut request, &mut entry.record).await
    } else {
        admit_without_limits(&mut request)
    };
    let (outcome, mut response, pass) = match admitted {
        Err(reply) => (reply.outcome, record_reply(&connection, *reply, is_grpc, &mut entry.record), None),
        Ok((upload, admitted)) => {
            let (model, pass) = admitted.map(|Admitted { in_flight, model }| (model, in_flight)).unzip();
            let request = request.map(|_| upload);
            let (outcome, mut response) =
                forward(&connection, request, model.flatten(), is_grpc, &mut entry.record).await;
            if connection.limits.reports_always
                && let Some(pass) = &pass
            {
                rate_limits(&connection, pass.client()).write(Format::Draft11, response.headers_mut());
            }
            (outcome, response, pass)
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
        None => {
            if entry.is_logged() {
                response = LoggedBody::follow(entry, response);
            }
            Ok(ToBody.hold(response, pass))
        }
    }
}

/// Forwards an admitted request, and settles the grants of a language model by the response.
async fn forward(
    connection: &Connection,
    request: Request<Upload>,
    model: Option<Box<ModelGrants>>,
    is_grpc: bool,
    record: &mut Record,
) -> (Outcome, Response<Body>) {
    let began = Instant::now();
    let followed = model.as_ref().and_then(|model| model.estimate.followed());
    let mut response = connection.proxy.forward(request, followed, began).await;
    let took = began.elapsed();
    let outcome = response.extensions().get().copied().unwrap_or(Outcome::Answered);
    connection.stats.upstream.note(took, &response, outcome == Outcome::Answered);
    record.upstream = Some(took);
    if let Some(model) = model {
        let ModelGrants { estimate, grants } = *model;
        response = settle(response, &estimate, grants);
        // Only the upstream knows its limits.
        if outcome == Outcome::Answered {
            follow_upstream(&connection.limits, &estimate, &response);
        }
    }
    if is_grpc && outcome != Outcome::Answered {
        response = grpc::answer(response, None);
    }
    (outcome, response)
}

/// Counts a request that is not forwarded, and returns its response.
fn record_reply(connection: &Connection, reply: LocalReply, is_grpc: bool, record: &mut Record) -> Response<Body> {
    let LocalReply { outcome, response, refused, limit } = reply;
    if let Some(reason) = Reason::new(outcome, refused.as_ref(), limit) {
        (record.reason, record.limit) = (Some(reason), limit);
        connection.stats.refusals.note(record.client, reason, limit);
    }
    if is_grpc { grpc::answer(response, refused) } else { response }
}

/// A request that is not forwarded: how it is counted, and its response.
struct LocalReply {
    outcome: Outcome,
    response: Response<Body>,
    /// The reason, if a limit refused it.
    refused: Option<Refused>,
    /// That limit, or the block of addresses that is refused.
    limit: Option<Limit>,
}

impl LocalReply {
    #[cold]
    fn new(outcome: Outcome, response: Response<Body>) -> Box<Self> {
        Box::new(Self { outcome, response, refused: None, limit: None })
    }
}

/// The checks that do not depend on the limits.
fn check_request(request: &Request<Body>) -> Result<(), Box<LocalReply>> {
    conformance::check_request(request).map_err(|response| LocalReply::new(Outcome::Invalid, *response))
}

/// Does what the gateway does for a request besides its limits, and takes its body.
fn admit_without_limits(request: &mut Request<Body>) -> Result<(Upload, Option<Admitted>), Box<LocalReply>> {
    check_request(request)?;
    Ok((Upload::streaming(std::mem::take(request.body_mut())), None))
}

/// Waits until the request may be forwarded: until as much of its body is there as is buffered, then for its tokens.
/// Returns its body, which it takes.
// Each request runs through more code than the processor's cache holds; see docs/BENCHMARKS.md. So what most requests do not
// need is in functions that are not inlined, and so are large steps, whose code is then shorter.
async fn admit(
    connection: &Arc<Connection>,
    request: &mut Request<Body>,
    record: &mut Record,
) -> Result<(Upload, Option<Admitted>), Box<LocalReply>> {
    let (mut admission, llm) = admission(connection, request)?;
    (record.client, record.cost) = (Some(admission.client), Some(admission.cost));
    let upload = if request.body().is_end_stream() {
        Upload::default()
    } else {
        let body = std::mem::take(request.body_mut());
        // In a box, so that the futures of requests without a body are small.
        let upload = read_body(connection, &admission, body).boxed().await?;
        // A request without a body generates nothing. Its response may have the usage of an earlier one.
        if let Some(llm) = llm.filter(|_| !upload.is_end_stream()) {
            estimate(connection, request, record, &mut admission, &llm, &upload)?;
        }
        upload
    };
    let mut left = TimeLeft::new(admission.max_wait);
    let admitted = admission.admit(connection, &mut left).await;
    // A client without a bucket of its own has become the one that such clients share.
    (record.client, record.waited) = (Some(admission.client), Some(left.spent()));
    let admitted = admitted.map_err(|rejected| refusal(connection, &admission, *rejected))?;
    connection.stats.waits.note(left.spent());
    Ok((upload, Some(admitted)))
}

/// Reads as much of the body as is buffered. The body of a request that would be refused is not read, and not asked for by
/// `100 Continue`.
async fn read_body(connection: &Connection, admission: &Admission, body: Body) -> Result<Upload, Box<LocalReply>> {
    admission.check_wait(connection).map_err(|rejected| refusal(connection, admission, *rejected))?;
    let client_timeout = connection.limits.config().timeouts.client;
    let upload = Upload::read(body, admission.body_buffer, client_timeout).await;
    upload.map_err(|error| LocalReply::new(error.outcome(), error.response()))
}

/// Adds what a request to a language model is estimated to take.
#[inline(never)]
fn estimate(
    connection: &Connection,
    request: &mut Request<Body>,
    record: &mut Record,
    admission: &mut Admission,
    llm: &Arc<Llm>,
    upload: &Upload,
) -> Result<(), Box<LocalReply>> {
    let estimate = Estimate::of(llm, request.uri().path(), request.headers(), upload);
    let estimate =
        estimate.map_err(|(status, why)| LocalReply::new(Outcome::Invalid, local_reply::problem(status, &why)))?;
    record.tokens = Some(estimate.tokens);
    restore_expired(&connection.limits, &estimate);
    admission.charges.splice(0..0, estimate.request_charge(admission.client));
    admission.estimate = Some(Box::new(estimate));
    // The usage of a compressed response could not be read.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(())
}

/// The admission of `request`, and the settings if it is for a language model; or the response to a request that needs no
/// admission. A request that waits later does not keep an old configuration alive. Forbids the upgrade to a WebSocket if the
/// route does.
#[inline(never)]
fn admission(
    connection: &Connection,
    request: &mut Request<Body>,
) -> Result<(Admission, Option<Arc<Llm>>), Box<LocalReply>> {
    check_request(request)?;
    let config = connection.limits.config();
    let block = if config.networks.is_empty() { None } else { block(&config, request, connection)? };
    let client = config.keys.client(request.headers(), request.uri(), connection.peer).map_err(|ambiguous| {
        LocalReply::new(Outcome::Invalid, local_reply::problem(StatusCode::BAD_REQUEST, ambiguous.hint()))
    })?;
    let Some(client) = client else {
        return Err(LocalReply::new(Outcome::Unknown, unauthorized(&config.keys.challenge)));
    };
    if config.keys.source.is_named_by_connection(request.headers()) {
        // The field is not forwarded then: the key would count here, and not at the upstream.
        let why = "Connection may not name the field of the key";
        return Err(LocalReply::new(Outcome::Invalid, local_reply::problem(StatusCode::BAD_REQUEST, why)));
    }
    // Otherwise the request would wait for tokens that it cannot use.
    if let Some(wait) = config.upstreams.outage() {
        return Err(LocalReply::new(Outcome::Failed, unavailable(wait)));
    }
    let policy = config.routes.policy(request.method(), request.headers(), request.uri().path());
    let policy = policy.map_err(|BadEscape| {
        let why = "the path has a percent sign that begins no escape: write %25";
        LocalReply::new(Outcome::Invalid, local_reply::problem(StatusCode::BAD_REQUEST, why))
    })?;
    let RoutePolicy { cost, body_buffer, ref rules, is_llm, websockets } = *policy;
    let of_block = block.map(|(rule, address)| Charge { rule, client: Client::Address(address), cost });
    let charges = if rules.is_empty() && of_block.is_none() {
        Vec::new()
    } else {
        rules.iter().map(|rule| Charge { rule: *rule, client, cost }).chain(of_block).collect()
    };
    if !websockets {
        UpgradeRequest::forbid(request.extensions_mut());
    }
    let admission = Admission { client, cost, charges, estimate: None, max_wait: config.max_wait, body_buffer };
    Ok((admission, config.llm.clone().filter(|_| is_llm)))
}

/// The limits of the request's block of addresses, if it has any, and the address.
#[inline(never)]
fn block(
    config: &Config,
    request: &Request<Body>,
    connection: &Connection,
) -> Result<Option<(Name, IpAddr)>, Box<LocalReply>> {
    let address = config.keys.proxies.client(request.headers(), connection.peer.ip());
    match config.networks.of(address) {
        Block::Limited(rule) => Ok(Some((rule, ClientAddress::from(address).into()))),
        Block::Free => Ok(None),
        Block::Refused(name) => {
            let why = "requests from this address are not accepted";
            let mut reply = LocalReply::new(Outcome::Unknown, local_reply::problem(StatusCode::FORBIDDEN, why));
            reply.limit = Some(Limit::Block(name));
            Err(reply)
        }
    }
}

fn unauthorized(Challenge { why, field }: &Challenge) -> Response<Body> {
    let mut response = local_reply::problem(StatusCode::UNAUTHORIZED, why);
    response.headers_mut().insert(WWW_AUTHENTICATE, field.clone());
    response
}

/// The rate limit report of the request's own key.
fn rate_limits(connection: &Connection, client: &Client) -> RateLimits {
    let terms = if *client == Client::Overflow { &OF_OVERFLOW } else { &OF_KEY };
    RateLimits::of_key(connection.limits.clients.of(client), client, terms)
}

#[inline(never)]
fn refusal(connection: &Connection, admission: &Admission, rejected: Rejected) -> Box<LocalReply> {
    let mut limits = rate_limits(connection, &admission.client);
    // The state of a limit that several clients share is reported only to a client that it refused.
    let other = match rejected.refused_by {
        Some(refused_by) => Some(connection.limits.rules.rate_limits(&refused_by)),
        None if rejected.by == Outcome::RefusedAll => Some(RateLimits::of(&connection.limits.all.snapshot(), &OF_ALL)),
        None => None,
    };
    let refusal = Refusal::new(rejected.why, other.as_ref().unwrap_or(&limits));
    let limit = match rejected.refused_by {
        Some(refused_by) => Limit::of(refused_by),
        None if rejected.by == Outcome::RefusedAll => Limit::All,
        None if admission.client == Client::Overflow => Limit::Overflow,
        None => Limit::Own,
    };
    if let Some(other) = other {
        limits.policies.extend(other.policies);
        limits.limits.extend(other.limits);
    }
    let mut response = refusal.or_retry_after(UNKNOWN_WAIT).response(true).map(Body::from);
    response.headers_mut().insert(CACHE_CONTROL, local_reply::NO_STORE);
    limits.write(Format::Draft11, response.headers_mut());
    Box::new(LocalReply { outcome: rejected.by, response, refused: Some(rejected.why), limit: Some(limit) })
}
