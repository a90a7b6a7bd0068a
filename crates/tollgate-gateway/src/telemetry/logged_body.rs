//! A response's body that counts its bytes for the access log.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use hyper::body::{Frame, SizeHint};

use super::access_log::Entry;

pub(crate) struct LoggedBody {
    body: Body,
    entry: Entry,
    bytes: u64,
    has_ended: bool,
}

impl LoggedBody {
    /// From here on the line of `entry` waits for the end of the response's body.
    pub(crate) fn follow(entry: Entry, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Self { body, entry, bytes: 0, has_ended: false }))
    }
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => {}
            None => self.has_ended = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        let is_complete = self.has_ended || self.body.is_end_stream();
        self.entry.end(self.bytes, is_complete);
    }
}
