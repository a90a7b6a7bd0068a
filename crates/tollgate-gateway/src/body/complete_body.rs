//! A body that ends only where its sender ended it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use axum::http::Version;
use hyper::body::{Frame, Incoming, SizeHint};
use tower::BoxError;

/// A body. Of HTTP/2, hyper takes a stream that is reset with `NO_ERROR` for one that has ended. So half a request would be
/// forwarded as a whole one, and half a response too.
pub(crate) struct CompleteBody {
    body: Incoming,
    /// Whether it is a stream of HTTP/2. hyper checks the ends of other bodies.
    is_stream: bool,
}

impl CompleteBody {
    /// The body of a message of this version.
    pub(crate) fn of(body: Incoming, version: Version) -> Self {
        Self { body, is_stream: version == Version::HTTP_2 }
    }
}

impl HttpBody for CompleteBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) if self.is_stream && !self.body.is_end_stream() => {
                let error = io::Error::new(io::ErrorKind::ConnectionReset, "the stream was reset before its end");
                Poll::Ready(Some(Err(error.into())))
            }
            frame => frame.map(|frame| frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
