//! The streams of one HTTP/2 connection: each is a request and its response.
//!
//! HTTP/1.1 has one request at a time on a connection, so the time-outs of the socket are those of the request. Here a
//! client can hold back one response by flow control while the connection goes on, and can open and reset streams faster
//! than any request is answered. So each stream has a task that ends when its client takes nothing, and the connection
//! ends when nothing is open for too long, or when most of its requests are reset.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::BoxError;

/// How many requests a client may reset before their response begins, if these are most of its requests. (CVE-2023-44487)
const MAX_RESETS: u64 = 100;

/// The library takes a part of a body as soon as its client's window has space for one byte of it, and keeps the rest. With
/// the last part the task of the stream ends. So that part is short, and is given when all others have been taken. A long
/// part would hide from the task that its client takes a little of it now and then.
const LAST_PART: usize = 1 << 10;
const MAX_OF_PART: usize = 16 << 10;

tokio::task_local! {
    static SEND_PROGRESS: Arc<SendProgress>;
}

/// Runs the streams of a connection, and counts them.
#[derive(Clone)]
pub(crate) struct Streams {
    counts: Arc<Mutex<Counts>>,
    /// Notified when the client has reset too many requests.
    flooded: Arc<Notify>,
    /// How long a client may take nothing of a response.
    timeout: Duration,
}

struct Counts {
    open: usize,
    /// The instant at which the last stream ended, or the connection began.
    quiet_since: Instant,
    answered: u64,
    reset: u64,
}

impl Streams {
    pub(crate) fn new(timeout: Duration) -> Self {
        let counts = Counts { open: 0, quiet_since: Instant::now(), answered: 0, reset: 0 };
        Self { counts: Arc::new(Mutex::new(counts)), flooded: Arc::default(), timeout }
    }

    /// A request whose response has not begun.
    pub(crate) fn request(&self) -> PendingRequest {
        PendingRequest { streams: self.clone(), is_answered: false }
    }

    /// Waits until no stream has been open for `timeout`.
    pub(crate) async fn are_quiet(&self, timeout: Duration) {
        loop {
            let (is_quiet, since) = {
                let counts = self.lock();
                (counts.open == 0, counts.quiet_since)
            };
            let passed = if is_quiet { since.elapsed() } else { Duration::ZERO };
            if passed >= timeout {
                return;
            }
            tokio::time::sleep(timeout - passed).await;
        }
    }

    /// Waits until the client has reset too many requests.
    pub(crate) async fn are_flooded(&self) {
        self.flooded.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.lock().open += 1;
        let open = OpenStream(self.clone());
        let sending = Arc::<SendProgress>::default();
        tokio::spawn(SEND_PROGRESS.scope(Arc::clone(&sending), async move {
            tokio::select! {
                () = stream => {}
                // Dropping the stream resets it.
                () = sending.stalls(open.0.timeout) => {}
            }
        }));
    }
}

struct OpenStream(Streams);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.open -= 1;
        counts.quiet_since = Instant::now();
    }
}

/// Counts a request as reset when it is dropped before its response.
pub(crate) struct PendingRequest {
    streams: Streams,
    is_answered: bool,
}

impl PendingRequest {
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let mut counts = self.streams.lock();
        if self.is_answered {
            counts.answered += 1;
            return;
        }
        counts.reset += 1;
        if counts.reset > MAX_RESETS && counts.reset > counts.answered {
            self.streams.flooded.notify_one();
        }
    }
}

/// What is known about the response of a stream.
#[derive(Debug, Default)]
struct SendProgress {
    /// Since when the client has to take a part of it; `None` while the gateway has no part for it.
    since: Mutex<Option<Instant>>,
}

impl SendProgress {
    fn note(&self, since: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Waits until the client has taken nothing for `timeout`.
    async fn stalls(&self, timeout: Duration) {
        loop {
            let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = since.map_or(Duration::ZERO, |since| since.elapsed());
            if passed >= timeout {
                return;
            }
            tokio::time::sleep(timeout - passed).await;
        }
    }
}

/// The body of a response on a stream. It notes when the client has to take a part of it.
pub(crate) struct StreamResponseBody<P> {
    body: Body,
    /// What the library has not been given of the last frame.
    rest: Bytes,
    /// Held until the client has the whole body.
    _place: P,
}

impl<P> StreamResponseBody<P> {
    pub(crate) fn new(body: Body, place: P) -> Self {
        Self { body, rest: Bytes::new(), _place: place }
    }
}

impl<P: Unpin> HttpBody for StreamResponseBody<P> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = if self.rest.is_empty() {
            Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
        } else {
            Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
        };
        // Every body of a response is polled in the task of its stream.
        let _ = SEND_PROGRESS.try_with(|sending| sending.note(frame.is_ready().then(Instant::now)));
        frame.map_ok(|frame| match frame.into_data() {
            Ok(mut part) => {
                self.rest = part.split_off(part_of(part.len()));
                Frame::data(part)
            }
            Err(trailers) => trailers,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// How many bytes of a frame of this length are given to the library next.
fn part_of(length: usize) -> usize {
    if length <= LAST_PART { length } else { (length - LAST_PART).min(MAX_OF_PART) }
}

#[test]
fn the_last_part_of_a_frame_is_short() {
    for (length, parts) in [
        (0, &[0][..]),
        (LAST_PART, &[LAST_PART]),
        (LAST_PART + 1, &[1, LAST_PART]),
        (2 * MAX_OF_PART, &[MAX_OF_PART, MAX_OF_PART - LAST_PART, LAST_PART]),
    ] {
        let mut left = length;
        for part in parts {
            assert_eq!(part_of(left), *part, "{length}");
            left -= part;
        }
        assert_eq!(left, 0, "{length}");
    }
}
