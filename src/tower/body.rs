//! A body that holds its request's proof of admission.

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A response body whose request is in flight until it has come to its end, has failed, or is dropped.
#[pin_project]
pub struct HeldBody<B, Pass> {
    #[pin]
    body: B,
    pass: Option<Pass>,
}

impl<B: Body, Pass> HeldBody<B, Pass> {
    pub(super) fn new(body: B, pass: Option<Pass>) -> Self {
        let pass = pass.filter(|_| !body.is_end_stream());
        Self { body, pass }
    }
}

impl<B, Pass> HeldBody<B, Pass> {
    /// The proof of admission; `None` once the body has come to its end, or if it answers a refusal.
    pub fn pass(&self) -> Option<&Pass> {
        self.pass.as_ref()
    }

    /// The proof of admission, to settle the real cost. Taken out, it is the taker's to hold.
    pub fn pass_mut(&mut self) -> &mut Option<Pass> {
        &mut self.pass
    }

    /// The inner body, and the proof of admission.
    pub fn into_parts(self) -> (B, Option<Pass>) {
        (self.body, self.pass)
    }
}

impl<B: Body, Pass> Body for HeldBody<B, Pass> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            // It has come to its end, whether the reader asks again or not.
            *this.pass = None;
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

impl<B: Default, Pass> Default for HeldBody<B, Pass> {
    fn default() -> Self {
        Self { body: B::default(), pass: None }
    }
}

impl<B: fmt::Debug, Pass> fmt::Debug for HeldBody<B, Pass> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.pass.is_some();
        f.debug_struct("HeldBody").field("body", &self.body).field("holds", &holds).finish()
    }
}
