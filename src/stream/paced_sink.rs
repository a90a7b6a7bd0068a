//! A sink into which items go when they are paid for.

use crate::error::ConsumeError;
use crate::limiter::Limiter;
use crate::pacer::Pacer;
use futures_core::Stream;
use futures_sink::Sink;
use pin_project::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A sink into which items go when they are paid for; from [`pace_sends`](super::PaceSinkExt::pace_sends) and
/// [`pace_sends_by`](super::PaceSinkExt::pace_sends_by).
///
/// It holds one item, which goes on when the inner sink is ready and the tokens are there; until then it is not ready
/// for the next. As with every sink that buffers, flush it: `send` does, `feed` does not. While an item waits for tokens,
/// the inner sink is flushed, so that the wait is not added to items that have been paid for.
///
/// A refusal leaves the item here: the next poll tries it again, [`into_parts`](Self::into_parts) takes it out.
///
/// # Cancel safety
///
/// Futures that poll it can be dropped at any time: the item that waits stays here, in its place in the line. Dropped
/// itself, it leaves the line, and no token is lost; flush before, or the item is.
///
/// # Panics
///
/// When sent an item without having been ready. As [`Consume`](crate::Consume), on a runtime without timers.
#[must_use = "sinks do nothing unless polled"]
#[pin_project]
pub struct PacedSink<S, Item, C = fn(&Item) -> u64> {
    #[pin]
    inner: S,
    cost: C,
    /// An item that was sent to us and has not gone on.
    held: Option<Item>,
    pacer: Pacer,
}

impl<S, Item, C> PacedSink<S, Item, C> {
    pub(super) fn new(inner: S, limiter: &Limiter, cost: C) -> Self {
        Self { inner, cost, held: None, pacer: Pacer::new(limiter) }
    }

    /// The inner sink.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner sink. What is sent into it here passes unpaced, and before the item that waits.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner sink, and the item that was sent and has not gone on to it. Leaves the line.
    pub fn into_parts(self) -> (S, Option<Item>) {
        (self.inner, self.held)
    }
}

impl<S: Sink<Item>, Item, C: FnMut(&Item) -> u64> PacedSink<S, Item, C> {
    /// Ready when no item waits here.
    fn poll_pass(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PacedSinkError<S::Error>>> {
        let mut this = self.project();
        let Some(item) = this.held else { return Poll::Ready(Ok(())) };
        // Before the tokens, so that none are held while the inner sink is not ready.
        ready!(this.inner.as_mut().poll_ready(cx)).map_err(PacedSinkError::Inner)?;
        let Poll::Ready(answer) = this.pacer.poll_claim(cx, || (this.cost)(item)) else {
            if let Poll::Ready(Err(error)) = this.inner.poll_flush(cx) {
                return Poll::Ready(Err(PacedSinkError::Inner(error)));
            }
            return Poll::Pending;
        };
        let _grant = answer.map_err(PacedSinkError::Refused)?;
        let item = this.held.take().expect("present: it was just paid for");
        Poll::Ready(this.inner.start_send(item).map_err(PacedSinkError::Inner))
    }
}

impl<S: Sink<Item>, Item, C: FnMut(&Item) -> u64> Sink<Item> for PacedSink<S, Item, C> {
    type Error = PacedSinkError<S::Error>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_pass(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), Self::Error> {
        let held = self.project().held;
        assert!(held.is_none(), "an item was sent before `poll_ready` said that it may be");
        *held = Some(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_pass(cx))?;
        self.project().inner.poll_flush(cx).map_err(PacedSinkError::Inner)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_pass(cx))?;
        self.project().inner.poll_close(cx).map_err(PacedSinkError::Inner)
    }
}

/// What comes out of the inner sink, if it is a stream too, comes out as it is.
impl<S: Stream, Item, C> Stream for PacedSink<S, Item, C> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().inner.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<S: fmt::Debug, Item, C> fmt::Debug for PacedSink<S, Item, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.held.is_some();
        f.debug_struct("PacedSink").field("inner", &self.inner).field("holds", &holds).finish_non_exhaustive()
    }
}

/// Why a [`PacedSink`] could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacedSinkError<E> {
    /// The limiter refused the item, which stays in the sink and is tried again by the next poll. Nothing was consumed.
    #[error("an item may not pass: {0}")]
    Refused(#[source] ConsumeError),
    /// The inner sink failed.
    #[error(transparent)]
    Inner(E),
}
