//! The body of a response of a language model, which says at its end what it took.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::limits::rule_grants::RuleGrants;
use crate::llm::estimate::Estimate;
use crate::llm::event_scanner::EventScanner;
use crate::llm::usage::Usage;
use crate::llm::usage_scanner::UsageScanner;

/// Reads the usage while the body passes, and settles the request's tokens at the end. A body that ends too early is
/// settled at the estimate, or at its usage if that is more: the upstream may have worked on the request longer than
/// its client read. Events without usage count as a token each, because a client chooses its own estimate.
struct SettlingBody {
    body: Body,
    scanner: Scanner,
    estimate: u64,
    /// The tokens of the request itself.
    input: u64,
    /// `None` once they are settled.
    tokens: Option<Box<RuleGrants>>,
}

enum Scanner {
    Json(UsageScanner),
    Events(EventScanner),
    /// The body cannot be read.
    None,
}

/// Settles `tokens`, which were estimated, with what the response says.
pub(crate) fn settle(mut response: Response, estimate: &Estimate, mut tokens: Box<RuleGrants>) -> Response {
    if is_free(response.status()) || response.extensions().get::<NotSent>().is_some() {
        tokens.settle(0);
        return response;
    }
    let scanner = Scanner::of(response.headers_mut());
    response.map(|body| {
        let Estimate { tokens: estimate, input, .. } = *estimate;
        let mut body = SettlingBody { body, scanner, estimate, input, tokens: Some(tokens) };
        if body.body.is_end_stream() {
            body.end(true);
        }
        Body::new(body)
    })
}

/// Marks the gateway's own response to a request of which the upstream has seen nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotSent;

/// The upstream refused the request, and generated nothing.
fn is_free(status: StatusCode) -> bool {
    status.is_client_error() || matches!(status.as_u16(), 503 | 529)
}

impl Scanner {
    fn of(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_plain = matches!(value(CONTENT_ENCODING).trim(), "" | "identity");
        let kind = value(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*kind {
            _ if !is_plain => Self::None,
            "text/event-stream" => Self::Events(EventScanner::default()),
            "application/json" => Self::Json(UsageScanner::default()),
            kind if kind.ends_with("+json") => Self::Json(UsageScanner::default()),
            _ => Self::None,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(scanner) => scanner.feed(bytes),
            Self::Events(scanner) => scanner.feed(bytes),
            Self::None => {}
        }
    }

    fn usage(&self) -> Usage {
        match self {
            Self::Json(scanner) => scanner.usage,
            Self::Events(scanner) => scanner.json.usage,
            Self::None => Usage::default(),
        }
    }

    /// How many events with data have ended.
    fn events(&self) -> u64 {
        match self {
            Self::Events(scanner) => scanner.events,
            Self::Json(_) | Self::None => 0,
        }
    }

    /// Whether the upstream said that its last event has come. Clients may hang up then.
    fn is_done(&self) -> bool {
        matches!(self, Self::Events(scanner) if scanner.json.is_last)
    }
}

impl SettlingBody {
    fn end(&mut self, is_complete: bool) {
        let Some(mut tokens) = self.tokens.take() else { return };
        match self.scanner.usage().tokens() {
            Some(used) if is_complete || self.scanner.is_done() => tokens.settle(used),
            used => {
                let seen = self.input.saturating_add(self.scanner.events());
                tokens.settle(seen.max(used.unwrap_or(0)).max(self.estimate));
            }
        }
    }
}

impl HttpBody for SettlingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.scanner.feed(data);
                }
                if self.body.is_end_stream() {
                    // It may not be polled again.
                    self.end(true);
                }
            }
            Poll::Ready(None) => self.end(true),
            Poll::Ready(Some(Err(_))) => self.end(false),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for SettlingBody {
    fn drop(&mut self) {
        self.end(false);
    }
}
