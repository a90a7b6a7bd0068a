//! A stream that takes tokens for each item before it yields the item.

use crate::as_limiter::AsLimiter;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::handle::Limiter;
use crate::pacer::Pacer;
use futures_core::{FusedStream, Stream};
use futures_sink::Sink;
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A stream that takes tokens for each item before it yields the item; created by [`pace`](super::PaceStreamExt::pace)
    /// and [`pace_by`](super::PaceStreamExt::pace_by).
    ///
    /// It yields one result for each item of the inner stream: `Ok` if the item was granted, `Err` with the item inside if
    /// the limiter refused it. It asks the inner stream for the next item after the previous one has passed.
    ///
    /// # Cancel safety
    ///
    /// Futures that poll the stream can be dropped at any time: the waiting item stays in the stream and keeps its place
    /// in the queue. Dropping the stream leaves the queue, and no token is lost.
    ///
    /// # Panics
    ///
    /// Panics like [`Consume`](crate::Consume) on a runtime without timers.
    #[must_use = "streams do nothing unless polled"]
    pub struct PacedStream<S: Stream, C = fn(&<S as Stream>::Item) -> u64, L: AsLimiter = Limiter> {
        #[pin]
        inner: S,
        cost: C,
        // An item that came out of `inner` and is not paid for yet.
        held: Option<S::Item>,
        pacer: Pacer<L>,
    }
}

type Passed<T, L> = Option<Result<(T, OwnedGrant<L>), RefusedItem<T>>>;

impl<S: Stream, C, L: AsLimiter> PacedStream<S, C, L> {
    pub(super) fn new(inner: S, limiter: &L, cost: C) -> Self {
        Self { inner, cost, held: None, pacer: Pacer::new(limiter) }
    }

    /// Yields each item with its grant.
    ///
    /// With [`max_in_flight`](crate::Builder::max_in_flight), the tokens of the item are in flight until that grant is
    /// dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::{StreamExt, stream};
    /// use tollgate::stream::PaceStreamExt;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(3).build()?;
    /// let jobs = stream::iter(0..10).pace(&limiter).with_grants();
    /// jobs.for_each_concurrent(None, async |job| {
    ///     let (_job, _grant) = job.unwrap();
    ///     tokio::task::yield_now().await; // the work: 3 at a time
    /// })
    /// .await;
    /// # Ok(()) }
    /// ```
    pub fn with_grants(self) -> WithGrants<S, C, L> {
        WithGrants { paced: self }
    }

    /// Returns the inner stream.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner stream. Items taken from it directly pass unpaced.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner stream, and the item that came out of it and has not passed. Leaves the queue.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.inner, self.held)
    }
}

impl<S: Stream, C: FnMut(&S::Item) -> u64, L: AsLimiter> PacedStream<S, C, L> {
    fn poll_granted(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Passed<S::Item, L>> {
        let this = self.project();
        if this.held.is_none() {
            *this.held = ready!(this.inner.poll_next(cx));
        }
        let Some(item) = this.held else { return Poll::Ready(None) };
        let answer = ready!(this.pacer.poll_claim(cx, || (this.cost)(item)));
        let item = this.held.take().expect("present: it was just paid for");
        Poll::Ready(Some(match answer {
            Ok(grant) => Ok((item, grant)),
            Err(error) => Err(RefusedItem { item, error }),
        }))
    }
}

impl<S: Stream, C: FnMut(&S::Item) -> u64, L: AsLimiter> Stream for PacedStream<S, C, L> {
    type Item = Result<S::Item, RefusedItem<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_granted(cx).map(|passed| passed.map(|result| result.map(|(item, _grant)| item)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (least, most) = self.inner.size_hint();
        (least.saturating_add(held), most.and_then(|most| most.checked_add(held)))
    }
}

impl<S: FusedStream, C: FnMut(&S::Item) -> u64, L: AsLimiter> FusedStream for PacedStream<S, C, L> {
    fn is_terminated(&self) -> bool {
        self.held.is_none() && self.inner.is_terminated()
    }
}

/// If the inner stream is also a sink, items sent into it pass unchanged.
impl<T, S: Stream + Sink<T>, C, L: AsLimiter> Sink<T> for PacedStream<S, C, L> {
    type Error = S::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().inner.poll_ready(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), S::Error> {
        self.project().inner.start_send(item)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().inner.poll_close(cx)
    }
}

impl<S: Stream + fmt::Debug, C, L: AsLimiter> fmt::Debug for PacedStream<S, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.held.is_some();
        f.debug_struct("PacedStream").field("inner", &self.inner).field("holds", &holds).finish_non_exhaustive()
    }
}

pin_project! {
    /// A [`PacedStream`] that yields each item with its grant; created by [`with_grants`](PacedStream::with_grants).
    #[must_use = "streams do nothing unless polled"]
    pub struct WithGrants<S: Stream, C = fn(&<S as Stream>::Item) -> u64, L: AsLimiter = Limiter> {
        #[pin]
        paced: PacedStream<S, C, L>,
    }
}

impl<S: Stream, C, L: AsLimiter> WithGrants<S, C, L> {
    /// Returns the inner stream, and the item that came out of it and has not passed. Leaves the queue.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.paced.into_parts()
    }
}

impl<S: Stream, C: FnMut(&S::Item) -> u64, L: AsLimiter> Stream for WithGrants<S, C, L> {
    type Item = Result<(S::Item, OwnedGrant<L>), RefusedItem<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.project().paced.poll_granted(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.paced.size_hint()
    }
}

impl<S: FusedStream, C: FnMut(&S::Item) -> u64, L: AsLimiter> FusedStream for WithGrants<S, C, L> {
    fn is_terminated(&self) -> bool {
        self.paced.is_terminated()
    }
}

impl<S: Stream + fmt::Debug, C, L: AsLimiter> fmt::Debug for WithGrants<S, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithGrants").field("paced", &self.paced).finish()
    }
}

/// An item that the limiter refused, and why. Nothing was consumed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RefusedItem<T> {
    /// The item.
    pub item: T,
    /// Why the limiter refused it.
    pub error: ConsumeError,
}

impl<T> Error for RefusedItem<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl<T> fmt::Display for RefusedItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an item may not pass: {}", self.error)
    }
}

/// Omits the item, which need not be `Debug`.
impl<T> fmt::Debug for RefusedItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedItem").field("error", &self.error).finish_non_exhaustive()
    }
}
