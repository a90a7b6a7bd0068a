//! Waiting for tokens where there is nothing to hold afterwards.

use crate::consume::Consume;
use crate::core::coop::poll_paid;
use crate::error::ConsumeError;
use crate::handle::Handle;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pin_project! {
    /// The future returned by [`Limiter::wait`](crate::Limiter::wait) and [`Class::wait`](crate::Class::wait): a
    /// [`Consume`] that drops its grant.
    ///
    /// # Cancel safety
    ///
    /// The same as [`Consume`].
    ///
    /// # Panics
    ///
    /// The same as [`Consume`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Wait<C> {
        #[pin]
        claim: C,
        // Whether a dropped grant would release tokens: the claim is then refused, and never polled.
        capped: bool,
    }
}

impl<C> Wait<C> {
    pub(crate) fn new(claim: C, capped: bool) -> Self {
        Self { claim, capped }
    }

    pub(crate) fn map(self, limit: impl FnOnce(C) -> C) -> Self {
        Self { claim: limit(self.claim), capped: self.capped }
    }
}

impl<L: Handle> Wait<Consume<'_, L>> {
    /// Limits the wait to `allowed`; see [`Consume::within`].
    pub fn within(self, allowed: Duration) -> Self {
        self.map(|claim| claim.within(allowed))
    }
}

impl<C, G> Future for Wait<C>
where
    C: Future<Output = Result<G, ConsumeError>>,
{
    type Output = Result<(), ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if *this.capped {
            return poll_paid(cx, |_| Poll::Ready(Err(ConsumeError::MustHold)));
        }
        this.claim.poll(cx).map_ok(drop)
    }
}
