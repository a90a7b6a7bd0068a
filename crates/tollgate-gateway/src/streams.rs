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
const MOST_RESETS: u64 = 100;

tokio::task_local! {
    static SENDING: Arc<Sending>;
}

/// Runs the streams of a connection, and counts them.
#[derive(Clone)]
pub(crate) struct Streams {
    counts: Arc<Mutex<Counts>>,
    /// Notified when the client has reset too many requests.
    flooded: Arc<Notify>,
    /// How long a client may take nothing of a response.
    allowed: Duration,
}

struct Counts {
    open: usize,
    /// The instant at which the last stream ended, or the connection began.
    quiet_since: Instant,
    answered: u64,
    reset: u64,
}

impl Streams {
    pub(crate) fn new(allowed: Duration) -> Self {
        let counts = Counts { open: 0, quiet_since: Instant::now(), answered: 0, reset: 0 };
        Self { counts: Arc::new(Mutex::new(counts)), flooded: Arc::default(), allowed }
    }

    /// A request whose response has not begun.
    pub(crate) fn request(&self) -> Unanswered {
        Unanswered { streams: self.clone(), is_answered: false }
    }

    /// Waits until no stream has been open for `allowed`.
    pub(crate) async fn are_quiet(&self, allowed: Duration) {
        loop {
            let (is_quiet, since) = {
                let counts = self.lock();
                (counts.open == 0, counts.quiet_since)
            };
            let passed = if is_quiet { since.elapsed() } else { Duration::ZERO };
            if passed >= allowed {
                return;
            }
            tokio::time::sleep(allowed - passed).await;
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
        let open = Open(self.clone());
        let sending = Arc::<Sending>::default();
        tokio::spawn(SENDING.scope(Arc::clone(&sending), async move {
            tokio::select! {
                () = stream => {}
                // Dropping the stream resets it.
                () = sending.stalls(open.0.allowed) => {}
            }
        }));
    }
}

struct Open(Streams);

impl Drop for Open {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.open -= 1;
        counts.quiet_since = Instant::now();
    }
}

/// Counts a request as reset when it is dropped before its response.
pub(crate) struct Unanswered {
    streams: Streams,
    is_answered: bool,
}

impl Unanswered {
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let mut counts = self.streams.lock();
        if self.is_answered {
            counts.answered += 1;
            return;
        }
        counts.reset += 1;
        if counts.reset > MOST_RESETS && counts.reset > counts.answered {
            self.streams.flooded.notify_one();
        }
    }
}

/// What is known about the response of a stream.
#[derive(Debug, Default)]
struct Sending {
    /// Since when the client has to take a part of it; `None` while the gateway has no part for it.
    since: Mutex<Option<Instant>>,
}

impl Sending {
    fn note(&self, since: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Waits until the client has taken nothing for `allowed`.
    async fn stalls(&self, allowed: Duration) {
        loop {
            let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = since.map_or(Duration::ZERO, |since| since.elapsed());
            if passed >= allowed {
                return;
            }
            tokio::time::sleep(allowed - passed).await;
        }
    }
}

/// The body of a response on a stream. It notes when the client has to take a part of it.
pub(crate) struct Sent<P> {
    body: Body,
    /// Held until the client has the whole body.
    _place: P,
}

impl<P> Sent<P> {
    pub(crate) fn new(body: Body, place: P) -> Self {
        Self { body, _place: place }
    }
}

impl<P: Unpin> HttpBody for Sent<P> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // Every body of a response is polled in the task of its stream.
        let _ = SENDING.try_with(|sending| sending.note(frame.is_ready().then(Instant::now)));
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
