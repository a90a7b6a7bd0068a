//! The body of a request: the part that is read before the request is admitted, and the rest, which streams.
//!
//! A client that sends no body, or half of one, must not hold a place in flight. So the gateway asks for a place when it
//! has the whole body, or as much of it as it buffers.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use tower::BoxError;

use super::answer;
use super::counters::Outcome;
use super::stall::{StallGuard, Stalled};

/// Why a request's body did not arrive. It is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// It paused for too long.
    Slow,
    /// It is not what HTTP allows.
    Malformed,
    /// The client hung up.
    Left,
}

impl UploadError {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| (*error).source());
        causes
            .find_map(|cause| {
                let io = || cause.downcast_ref::<io::Error>().map(io::Error::kind);
                let hyper = || cause.downcast_ref::<hyper::Error>();
                let h2 = || cause.downcast_ref::<h2::Error>();
                if cause.is::<Stalled>() {
                    Some(Self::Slow)
                } else if hyper().is_some_and(hyper::Error::is_incomplete_message)
                    || h2().is_some_and(|error| error.is_io() || error.is_remote())
                    || matches!(io(), Some(kind) if !matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
                {
                    Some(Self::Left)
                } else {
                    None
                }
            })
            .unwrap_or(Self::Malformed)
    }
}

impl UploadError {
    pub(crate) fn outcome(self) -> Outcome {
        if self == Self::Left { Outcome::Left } else { Outcome::Invalid }
    }

    /// The response, after which the connection closes: what follows on it is not known to be a request.
    pub(crate) fn response(self) -> Response {
        let (status, why) = match self {
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "the request body did not come in time"),
            Self::Malformed | Self::Left => (StatusCode::BAD_REQUEST, "the request body is malformed"),
        };
        let mut response = answer::plain(status, why);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response.extensions_mut().insert(self.outcome());
        response
    }
}

/// The body of a request that is forwarded.
#[derive(Default)]
pub(crate) struct Upload {
    /// What was read before the request was admitted.
    first: VecDeque<Frame<Bytes>>,
    /// The bytes in `first`.
    length: u64,
    rest: Option<Rest>,
}

struct Rest {
    body: StallGuard<Body>,
    progress: Arc<Progress>,
}

/// What the forwarding side knows about the rest of an upload.
#[derive(Debug)]
pub(crate) struct Progress {
    error: OnceLock<UploadError>,
    /// The instant of the last frame, or `None` while the next one is awaited from the client.
    sent: Mutex<Option<Instant>>,
}

impl Upload {
    /// Reads `body` to its end, or until it has `most` bytes. They must arrive within `allowed`, and `allowed` is also
    /// the longest pause in the rest.
    pub(crate) async fn read(body: Body, most: usize, allowed: Duration) -> Result<Self, UploadError> {
        let mut upload = Self::default();
        if body.is_end_stream() {
            return Ok(upload);
        }
        let ahead = upload.read_ahead(body, most);
        let rest = tokio::time::timeout(allowed, ahead).await.map_err(|_| UploadError::Slow)??;
        upload.rest = rest.map(|body| Rest { body: StallGuard::new(body, allowed), progress: Arc::default() });
        Ok(upload)
    }

    /// A body of which nothing is read before, and that may pause for as long as it likes.
    pub(crate) fn streaming(body: Body) -> Self {
        let rest = Rest { body: StallGuard::new(body, Duration::MAX), progress: Arc::default() };
        Self { rest: Some(rest), ..Self::default() }
    }

    /// Returns the rest of the body, or `None` at its end.
    async fn read_ahead(&mut self, mut body: Body, most: usize) -> Result<Option<Body>, UploadError> {
        while !body.is_end_stream() {
            if self.length >= most as u64 {
                return Ok(Some(body));
            }
            let Some(frame) = body.frame().await else { break };
            let frame = frame.map_err(|error| UploadError::of(&error))?;
            self.length += frame.data_ref().map_or(0, |data| data.len() as u64);
            self.first.push_back(frame);
        }
        Ok(None)
    }

    /// `None` if the whole body was read.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.rest.as_ref().map(|rest| Arc::clone(&rest.progress))
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(frame) = self.first.pop_front() {
            self.length -= frame.data_ref().map_or(0, |data| data.len() as u64);
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(Rest { body, progress }) = &mut self.rest else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                progress.note(None);
                return Poll::Pending;
            }
        };
        progress.note(Some(Instant::now()));
        if let Some(Err(error)) = &frame {
            // Set once: a body is not read any further after an error.
            let _ = progress.error.set(UploadError::of(&**error));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            None if self.first.iter().all(Frame::is_data) => SizeHint::with_exact(self.length),
            None => SizeHint::default(),
            Some(rest) => rest
                .body
                .size_hint()
                .exact()
                .map_or_else(SizeHint::default, |rest| SizeHint::with_exact(self.length + rest)),
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self { error: OnceLock::new(), sent: Mutex::new(Some(Instant::now())) }
    }
}

impl Progress {
    fn note(&self, sent: Option<Instant>) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Why the upload failed, if it did.
    pub(crate) fn error(&self) -> Option<UploadError> {
        self.error.get().copied()
    }

    /// Waits until the upstream has had all that the client sent for `allowed`.
    pub(crate) async fn upstream_is_late(&self, allowed: Duration) {
        loop {
            let sent = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            // While the gateway waits for the client, the time-out of the client runs, and not that of the upstream.
            let had = sent.map_or(Duration::ZERO, |sent| sent.elapsed());
            if had >= allowed {
                return;
            }
            tokio::time::sleep(allowed - had).await;
        }
    }
}
