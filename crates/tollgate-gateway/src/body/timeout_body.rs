//! A body that fails when it pauses for too long.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::BoxError;

/// A body with a time-out for each of its frames. The time in which no frame is asked for does not count.
pub(crate) struct TimeoutBody<B> {
    body: B,
    max: Duration,
    /// Made when the body pauses for the first time.
    timer: Option<Pin<Box<Sleep>>>,
    is_pausing: bool,
}

/// The body paused for too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutError(Duration);

impl<B> TimeoutBody<B> {
    pub(crate) fn new(body: B, max: Duration) -> Self {
        Self { body, max, timer: None, is_pausing: false }
    }

    fn has_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.max)));
        if !std::mem::replace(&mut self.is_pausing, true) {
            // An instant too far away for the clock is never reached.
            if let Some(end) = Instant::now().checked_add(self.max) {
                timer.as_mut().reset(end);
            }
        }
        timer.as_mut().poll(cx).is_ready()
    }
}

impl<B> HttpBody for TimeoutBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.is_pausing = false;
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending if self.has_timed_out(cx) => Poll::Ready(Some(Err(TimeoutError(self.max).into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing came for {}", humantime::format_duration(self.0))
    }
}

impl std::error::Error for TimeoutError {}
