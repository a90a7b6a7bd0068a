//! A body that comes back if it was not sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;
use tower::BoxError;

use super::upload::Upload;

/// The body of a request to an upstream. The client drops a request for which it found no connection; then the body goes
/// back, if no part of it was taken.
#[derive(Default)]
pub(crate) struct RetryBody {
    body: Upload,
    back: Option<oneshot::Sender<Upload>>,
}

impl RetryBody {
    /// A body that comes back through the receiver.
    pub(crate) fn new(body: Upload) -> (Self, oneshot::Receiver<Upload>) {
        let (back, returned) = oneshot::channel();
        (Self { body, back: Some(back) }, returned)
    }

    /// A body that does not come back.
    pub(crate) fn last_attempt(body: Upload) -> Self {
        Self { body, back: None }
    }
}

impl HttpBody for RetryBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.back = None;
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RetryBody {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            // The request may have ended before.
            let _ = back.send(std::mem::take(&mut self.body));
        }
    }
}
