//! The body of a request: the part that is read before the request is admitted, and the rest, which streams.
//!
//! A client that sends no body, or half of one, must not hold a place in flight. So the gateway asks for a place when it
//! has the whole body, or as much of it as it buffers.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use tower::BoxError;

use super::timeout_body::{TimeoutBody, TimeoutError};
use crate::http::local_reply;
use crate::request::forwarding::drop_from_trailers;
use crate::request::outcome::Outcome;

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
                if cause.is::<TimeoutError>() {
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
        let mut response = local_reply::problem(status, why);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response.extensions_mut().insert(self.outcome());
        response
    }
}

/// The body of a request that is forwarded. In a box: most requests have none, and a request is moved often.
#[derive(Default)]
pub(crate) struct Upload(Option<Box<Parts>>);

#[derive(Default)]
struct Parts {
    /// What was read before the request was admitted.
    first: Bytes,
    /// What followed it, if the whole body was read.
    trailers: Option<HeaderMap>,
    rest: Option<Rest>,
    /// The field of the key, which trailers must not have.
    key_field: Option<HeaderName>,
}

struct Rest {
    body: TimeoutBody<Body>,
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
    /// Reads `body` to its end, or until it has `most` bytes. They must arrive within `timeout`, and `timeout` is also
    /// the longest pause in the rest.
    pub(crate) async fn read(body: Body, most: usize, timeout: Duration) -> Result<Self, UploadError> {
        let mut parts = Parts::default();
        if body.is_end_stream() {
            return Ok(Self::default());
        }
        let ahead = parts.read_ahead(body, most);
        let rest = tokio::time::timeout(timeout, ahead).await.map_err(|_| UploadError::Slow)??;
        parts.rest = rest.map(|body| Rest { body: TimeoutBody::new(body, timeout), progress: Arc::default() });
        Ok(Self(Some(Box::new(parts))))
    }

    /// A body of which nothing is read before, and that may pause for as long as it likes.
    pub(crate) fn streaming(body: Body) -> Self {
        if body.is_end_stream() {
            return Self::default();
        }
        let rest = Rest { body: TimeoutBody::new(body, Duration::MAX), progress: Arc::default() };
        Self(Some(Box::new(Parts { rest: Some(rest), ..Parts::default() })))
    }

    /// The whole body; `None` if only a part of it was read.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        match &self.0 {
            None => Some(&[]),
            Some(parts) => parts.rest.is_none().then_some(&*parts.first),
        }
    }

    /// Says which field has the key of the request.
    pub(crate) fn set_key_field(&mut self, key_field: Option<&HeaderName>) {
        self.0.iter_mut().for_each(|parts| parts.key_field = key_field.cloned());
    }

    /// `None` if the whole body was read.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.0.as_ref()?.rest.as_ref().map(|rest| Arc::clone(&rest.progress))
    }
}

impl Parts {
    /// Returns the rest of the body, or `None` at its end.
    async fn read_ahead(&mut self, mut body: Body, most: usize) -> Result<Option<Body>, UploadError> {
        // In one piece: a client may send chunks of a byte, and each on its own takes a hundred.
        let mut joined = Vec::new();
        let is_whole = loop {
            let is_full = self.first.len().max(joined.len()) >= most;
            if body.is_end_stream() || is_full {
                break body.is_end_stream();
            }
            let Some(frame) = body.frame().await else { break true };
            match frame.map_err(|error| UploadError::of(&error))?.into_data() {
                // Most bodies that fit are one chunk, and are not copied.
                Ok(data) if self.first.is_empty() && joined.is_empty() => self.first = data,
                Ok(data) => {
                    joined.extend_from_slice(&std::mem::take(&mut self.first));
                    joined.extend_from_slice(&data);
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        };
        if !joined.is_empty() {
            self.first = joined.into();
        }
        Ok((!is_whole).then_some(body))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.poll_received(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| self.for_upstream(frame))))
    }

    fn for_upstream(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_trailers() {
            Ok(mut trailers) => {
                drop_from_trailers(&mut trailers, self.key_field.as_ref());
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        }
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.first)))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
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
        self.first.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            None if self.trailers.is_none() => SizeHint::with_exact(self.first.len() as u64),
            None => SizeHint::default(),
            Some(rest) => rest
                .body
                .size_hint()
                .exact()
                .map_or_else(SizeHint::default, |rest| SizeHint::with_exact(self.first.len() as u64 + rest)),
        }
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |parts| parts.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|parts| parts.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |parts| parts.size_hint())
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

    /// Waits until the upstream has had all that the client sent for `timeout`.
    pub(crate) async fn upstream_is_late(&self, timeout: Duration) {
        loop {
            let sent = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            // While the gateway waits for the client, the time-out of the client runs, and not that of the upstream.
            let had = sent.map_or(Duration::ZERO, |sent| sent.elapsed());
            if had >= timeout {
                return;
            }
            tokio::time::sleep(timeout - had).await;
        }
    }
}

#[tokio::test]
async fn chunks_of_a_byte_are_kept_in_one_piece() {
    use http_body_util::StreamBody;
    let chunks = |count| {
        let frames = (0..count).map(|_| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"x"))));
        let trailers = Frame::trailers(HeaderMap::new());
        Body::new(StreamBody::new(futures::stream::iter(frames.chain([Ok(trailers)]))))
    };
    let mut upload = Upload::read(chunks(1_000), 2_000, Duration::from_secs(60)).await.unwrap();
    assert_eq!(upload.whole().map(<[u8]>::len), Some(1_000));
    assert_eq!(upload.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1_000);
    assert!(upload.frame().await.unwrap().unwrap().is_trailers());
    assert!(upload.is_end_stream() && upload.frame().await.is_none());
    let mut upload = Upload::read(chunks(1_000), 400, Duration::from_secs(60)).await.unwrap();
    assert_eq!(upload.whole(), None);
    assert_eq!(upload.frame().await.unwrap().unwrap().into_data().unwrap().len(), 400);
    let rest = upload.collect().await.unwrap();
    assert!(rest.trailers().is_some());
    assert_eq!(rest.to_bytes().len(), 600);
}
