//! What is known about one request, and its line of the access log.

use std::time::{Duration, SystemTime};

use axum::http::{Method, StatusCode, Uri};

use crate::limits::limit::Limit;
use crate::limits::reason::Reason;
use crate::request::client::Client;
use crate::request::outcome::Outcome;

/// The most bytes of a path that a line has: a queue of lines must not hold whole heads of requests.
const MAX_PATH: usize = 1_024;
/// The most bytes of a method. The registered ones have at most 17, and a client may send one of 64 KiB.
const MAX_METHOD: usize = 32;

/// Filled in as the request passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) client: Option<Client>,
    /// In tokens; `None` if the request ended before it had one.
    pub(crate) cost: Option<u64>,
    /// What a request to a language model was estimated to take, in tokens of the model.
    pub(crate) tokens: Option<u64>,
    /// The time in all queues.
    pub(crate) waited: Option<Duration>,
    /// The time until the head of the upstream's response.
    pub(crate) upstream: Option<Duration>,
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<Reason>,
    /// The limit that refused it.
    pub(crate) limit: Option<Limit>,
    /// `None` if the client left before there was a response.
    pub(crate) status: Option<StatusCode>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            client: None,
            cost: None,
            tokens: None,
            waited: None,
            upstream: None,
            outcome: Outcome::Left,
            reason: None,
            limit: None,
            status: None,
        }
    }
}

/// What the log has besides the record.
#[derive(Debug)]
pub(crate) struct RequestLine {
    pub(crate) came: SystemTime,
    pub(crate) method: Method,
    pub(crate) path: Box<str>,
}

impl RequestLine {
    pub(crate) fn new(method: &Method, uri: &Uri, query: Option<&str>) -> Self {
        let length = uri.path().len() + query.map_or(0, |query| query.len() + 1);
        let path = if length <= MAX_PATH && query.is_none() {
            uri.path().into()
        } else {
            let all =
                uri.path().chars().chain(query.iter().flat_map(|query| std::iter::once('?').chain(query.chars())));
            if length <= MAX_PATH { all.collect() } else { all.take(MAX_PATH / 4).chain(['\u{2026}']).collect() }
        };
        Self { came: SystemTime::now(), method: shortened(method), path }
    }
}

fn shortened(method: &Method) -> Method {
    match method.as_str().as_bytes().split_at_checked(MAX_METHOD) {
        // The beginning of a method is a method.
        Some((first, [_, ..])) => Method::from_bytes(&[first, b"..."].concat()).unwrap_or_default(),
        _ => method.clone(),
    }
}

/// A line, with the names of its fields in the JSON.
#[derive(serde::Serialize)]
struct Line<'a> {
    time: String,
    method: &'a str,
    path: &'a str,
    status: Option<u16>,
    outcome: &'static str,
    reason: Option<&'static str>,
    limit: Option<String>,
    client: Option<String>,
    cost: Option<u64>,
    tokens: Option<u64>,
    wait_ms: Option<f64>,
    upstream_ms: Option<f64>,
    duration_ms: f64,
    bytes: u64,
    complete: bool,
}

/// How the response of a request ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseEnd {
    pub(crate) took: Duration,
    /// The bytes of its body.
    pub(crate) bytes: u64,
    pub(crate) is_complete: bool,
}

/// Appends the line to `text`.
pub(crate) fn write(text: &mut Vec<u8>, target: &RequestLine, record: &Record, end: ResponseEnd) {
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let line = Line {
        time: humantime::format_rfc3339_millis(target.came).to_string(),
        method: target.method.as_str(),
        path: &target.path,
        status: record.status.map(|status| status.as_u16()),
        outcome: record.outcome.name(),
        reason: record.reason.map(Reason::name),
        limit: record.limit.map(|limit| limit.to_string()),
        client: record.client.as_ref().map(Client::in_log),
        cost: record.cost,
        tokens: record.tokens,
        wait_ms: record.waited.map(millis),
        upstream_ms: record.upstream.map(millis),
        duration_ms: millis(end.took),
        bytes: end.bytes,
        complete: end.is_complete,
    };
    // Strings and numbers can always be written to a vector.
    if serde_json::to_writer(&mut *text, &line).is_ok() {
        text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(uri: &str, has_query: bool) -> String {
        let uri: Uri = uri.parse().unwrap();
        RequestLine::new(&Method::GET, &uri, uri.query().filter(|_| has_query)).path.into()
    }

    #[test]
    fn a_path_has_no_query_unless_it_is_asked_for_and_is_never_long() {
        assert_eq!(path("/a/b?token=secret", false), "/a/b");
        assert_eq!(path("/a/b?token=secret", true), "/a/b?token=secret");
        let long = path(&format!("/{}", "x".repeat(5_000)), false);
        assert!(long.len() <= MAX_PATH && long.ends_with("x\u{2026}"), "{long}");
        assert!(path(&format!("/?{}", "x".repeat(5_000)), true).len() <= MAX_PATH);
        let method = |name: &str| {
            let method = Method::from_bytes(name.as_bytes()).unwrap();
            RequestLine::new(&method, &Uri::from_static("/"), None).method.as_str().to_owned()
        };
        assert_eq!(method("UPDATEREDIRECTREF"), "UPDATEREDIRECTREF");
        assert_eq!(method(&"X".repeat(32)), "X".repeat(32));
        assert_eq!(method(&"X".repeat(60_000)), format!("{}...", "X".repeat(32)));
    }

    #[test]
    fn a_line_is_one_json_object_with_a_digest_instead_of_a_key() {
        let key = "sk-live-0123456789abcdef";
        let record = Record {
            client: Some(Client::of_key(key)),
            cost: Some(10),
            waited: Some(Duration::from_micros(1_500)),
            outcome: Outcome::RefusedEach,
            reason: Some(Reason::OwnQuota),
            limit: Some(Limit::Own),
            status: Some(StatusCode::TOO_MANY_REQUESTS),
            ..Record::default()
        };
        let mut text = Vec::new();
        let target = RequestLine {
            came: SystemTime::UNIX_EPOCH,
            ..RequestLine::new(&Method::GET, &Uri::from_static("/\"x"), None)
        };
        write(&mut text, &target, &record, ResponseEnd { bytes: 7, is_complete: true, ..ResponseEnd::default() });
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1, "{text}");
        let mut seen: serde_json::Value = serde_json::from_str(&text).unwrap();
        let client = seen["client"].take();
        let client = client.as_str().unwrap();
        assert!(client.starts_with("key:") && client.len() == 20 && !text.contains("sk-l"), "{text}");
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "method": "GET", "path": "/\"x", "status": 429,
            "outcome": "refused_each", "reason": "own_quota", "limit": "key", "client": null, "cost": 10, "tokens": null, "wait_ms": 1.5,
            "upstream_ms": null, "duration_ms": 0.0, "bytes": 7, "complete": true,
        });
        assert_eq!(seen, expected);
    }
}
