//! A sink that takes tokens for each item before it passes the item on.

use crate::as_limiter::AsLimiter;
use crate::error::ConsumeError;
use crate::handle::Limiter;
use crate::pacer::Pacer;
use futures_core::Stream;
use futures_sink::Sink;
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A sink that takes tokens for each item before it passes the item on; created by
    /// [`pace_sends`](super::PaceSinkExt::pace_sends) and [`pace_sends_by`](super::PaceSinkExt::pace_sends_by).
    ///
    /// It holds one item, which goes on when the inner sink is ready and the tokens are available. Until then it is not
    /// ready for the next item. Like every sink that buffers, it must be flushed: `send` does that, `feed` does not. While
    /// an item waits for tokens, the inner sink is flushed, so that items already paid for are not delayed by that wait.
    ///
    /// A refused item stays in the sink: the next poll tries it again, and [`into_parts`](Self::into_parts) takes it out.
    ///
    /// # Cancel safety
    ///
    /// Futures that poll the sink can be dropped at any time: the waiting item stays in the sink and keeps its place in
    /// the queue. Dropping the sink leaves the queue, and no token is lost. It also drops the item, so flush before.
    ///
    /// # Panics
    ///
    /// Panics if it is sent an item without having been ready, and like [`Consume`](crate::Consume) on a runtime without
    /// timers.
    #[must_use = "sinks do nothing unless polled"]
    pub struct PacedSink<S, Item, C = fn(&Item) -> u64, L: AsLimiter = Limiter> {
        #[pin]
        inner: S,
        cost: C,
        // An item that was sent to this sink and has not gone on.
        held: Option<Item>,
        pacer: Pacer<L>,
    }
}

impl<S, Item, C, L: AsLimiter> PacedSink<S, Item, C, L> {
    pub(super) fn new(inner: S, limiter: &L, cost: C) -> Self {
        Self { inner, cost, held: None, pacer: Pacer::new(limiter) }
    }

    /// Returns the inner sink.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner sink. Items sent into it directly pass unpaced, and before the item that waits.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner sink, and the item that was sent and has not gone on. Leaves the queue.
    pub fn into_parts(self) -> (S, Option<Item>) {
        (self.inner, self.held)
    }
}

impl<S: Sink<Item>, Item, C: FnMut(&Item) -> u64, L: AsLimiter> PacedSink<S, Item, C, L> {
    /// Ready when no item waits here.
    fn poll_pass(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PacedSinkError<S::Error>>> {
        let mut this = self.project();
        let Some(item) = this.held else { return Poll::Ready(Ok(())) };
        // Before the tokens are taken, so that none are held while the inner sink is not ready.
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

impl<S: Sink<Item>, Item, C: FnMut(&Item) -> u64, L: AsLimiter> Sink<Item> for PacedSink<S, Item, C, L> {
    type Error = PacedSinkError<S::Error>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_pass(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), Self::Error> {
        let held = self.project().held;
        assert!(held.is_none(), "an item was sent before `poll_ready` said that the sink is ready");
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

/// If the inner sink is also a stream, its items pass unchanged.
impl<S: Stream, Item, C, L: AsLimiter> Stream for PacedSink<S, Item, C, L> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().inner.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<S: fmt::Debug, Item, C, L: AsLimiter> fmt::Debug for PacedSink<S, Item, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.held.is_some();
        f.debug_struct("PacedSink").field("inner", &self.inner).field("holds", &holds).finish_non_exhaustive()
    }
}

/// The error of a [`PacedSink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacedSinkError<E> {
    /// The limiter refused the item. The item stays in the sink, and the next poll tries it again. Nothing was
    /// consumed.
    Refused(ConsumeError),
    /// The inner sink failed.
    Inner(E),
}

impl<E: Error + 'static> Error for PacedSinkError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Inner(error) => error.source(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for PacedSinkError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "an item may not pass: {error}"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}
