//! The body of a limited service: the inner service's body, or that of a refusal.

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A response body that is the inner service's, or that of a refusal.
#[pin_project]
#[derive(Debug)]
pub struct LimitBody<B> {
    #[pin]
    kind: Kind<B>,
}

#[pin_project(project = OnKind)]
#[derive(Debug)]
enum Kind<B> {
    Inner(#[pin] B),
    /// `None` once it was read.
    Refusal(Option<String>),
}

impl<B> LimitBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner(body) }
    }

    pub(super) fn empty() -> Self {
        Self { kind: Kind::Refusal(None) }
    }

    pub(super) fn refusal(text: String) -> Self {
        Self { kind: Kind::Refusal(Some(text)) }
    }
}

impl<B: Body> Body for LimitBody<B>
where
    B::Data: From<String>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            OnKind::Inner(body) => body.poll_frame(cx),
            OnKind::Refusal(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner(body) => body.is_end_stream(),
            Kind::Refusal(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner(body) => body.size_hint(),
            Kind::Refusal(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

impl<B: Default> Default for LimitBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
    }
}
