//! A body that holds the grant of its request.

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A response body that keeps its request in flight until the body has ended, has failed, or is dropped.
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
    /// Returns the grant; `None` once the body has ended, or if the body belongs to a refusal.
    pub fn pass(&self) -> Option<&Pass> {
        self.pass.as_ref()
    }

    /// Returns the grant, to settle the real cost. A caller that takes it out holds it from then on.
    pub fn pass_mut(&mut self) -> &mut Option<Pass> {
        &mut self.pass
    }

    /// Returns the inner body and the grant.
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
            // The body has ended, whether the reader polls again or not.
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
