//! Paced streams and sinks: items pass one by one, each for its cost in tokens. Feature `stream`.
//!
//! [`PaceStreamExt::pace`] takes a token for each item of a `Stream`, [`PaceSinkExt::pace_sends`] for each item sent
//! into a `Sink`. `pace_by` and `pace_sends_by` take the cost of each item from a closure. Adaptors that share a
//! limiter wait in its one queue, together with all other callers of that limiter.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use futures::{StreamExt, stream};
//! use tollgate::stream::PaceStreamExt;
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::new(Quota::per_second(1_000).burst(5))?;
//! let mut paced = stream::iter(0..10).pace(&limiter);
//! while let Some(item) = paced.next().await {
//!     let number = item?; // 5 at once, then one each millisecond
//! #   let _ = number;
//! }
//! # Ok(()) }
//! ```
//!
//! A [`Class`](crate::Class) of a limiter can take the place of the limiter:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use futures::{StreamExt, stream};
//! use tollgate::stream::PaceStreamExt;
//! use tollgate::{Limiter, Quota, Share};
//!
//! let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(5)).classes().build()?;
//! let (live, import) = (limiter.class("live", Share::weight(3))?, limiter.class("import", Share::weight(1))?);
//! let live = stream::iter(0..10).pace(&live).count();
//! let import = stream::iter(0..10).pace(&import).count();
//! assert_eq!(futures::join!(live, import), (10, 10));
//! # Ok(()) }
//! ```
//!
//! # Guarantees of both
//!
//! * Order is kept, and every item comes out: if the limiter refuses an item (it is closed, or its queue is full), the
//!   item is in the error, or stays in the sink.
//! * Tokens are taken for an item that is present and can go on, never in advance. A silent source or a sink that is
//!   not ready holds no tokens.
//! * `next()` and `send()` can be dropped at any time. The adaptor keeps the item and its place in the queue. Dropping
//!   the adaptor leaves the queue and refunds a grant that was not used; the item is dropped too, unless
//!   [`into_parts`](PacedStream::into_parts) takes it out.
//! * With [`max_in_flight`](crate::Builder::max_in_flight), the tokens of an item are released as soon as it passes.
//!   To hold them until its work is done, use [`PacedStream::with_grants`].

mod paced_sink;
mod paced_stream;

pub use paced_sink::{PacedSink, PacedSinkError};
pub use paced_stream::{PacedStream, RefusedItem, WithGrants};

use crate::as_limiter::AsLimiter;
use futures_core::Stream;
use futures_sink::Sink;

/// Paces the items of any `Stream`.
pub trait PaceStreamExt: Stream {
    /// Lets each item pass for one token.
    ///
    /// The stream's items become results: `Err` for an item that the limiter refused.
    #[allow(clippy::type_complexity, reason = "the default of `C`, which is named to get to `L`")]
    fn pace<L: AsLimiter>(self, limiter: &L) -> PacedStream<Self, fn(&Self::Item) -> u64, L>
    where
        Self: Sized,
    {
        PacedStream::new(self, limiter, |_| 1)
    }

    /// Lets each item pass for the cost that `cost` returns.
    ///
    /// The closure is called once per item. An item of cost 0 passes at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::{StreamExt, stream};
    /// use tollgate::stream::PaceStreamExt;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(10_000).burst(100))?;
    /// let words = stream::iter(["pay", "by", "the", "letter"]).pace_by(&limiter, |word| word.len() as u64);
    /// assert_eq!(words.count().await, 4);
    /// assert_eq!(limiter.snapshot().granted, 14);
    /// # Ok(()) }
    /// ```
    fn pace_by<C, L: AsLimiter>(self, limiter: &L, cost: C) -> PacedStream<Self, C, L>
    where
        Self: Sized,
        C: FnMut(&Self::Item) -> u64,
    {
        PacedStream::new(self, limiter, cost)
    }
}

impl<S: Stream + ?Sized> PaceStreamExt for S {}

/// Paces what is sent into any `Sink`.
pub trait PaceSinkExt<Item>: Sink<Item> {
    /// Lets each item pass for one token.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::{SinkExt, StreamExt, channel::mpsc};
    /// use tollgate::stream::PaceSinkExt;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(2))?;
    /// let (sender, receiver) = mpsc::channel(8);
    /// let mut paced = sender.pace_sends(&limiter);
    /// for n in 0..5 {
    ///     paced.send(n).await?; // 2 at once, then one each millisecond
    /// }
    /// drop(paced);
    /// assert_eq!(receiver.collect::<Vec<_>>().await, [0, 1, 2, 3, 4]);
    /// # Ok(()) }
    /// ```
    fn pace_sends<L: AsLimiter>(self, limiter: &L) -> PacedSink<Self, Item, fn(&Item) -> u64, L>
    where
        Self: Sized,
    {
        PacedSink::new(self, limiter, |_| 1)
    }

    /// Lets each item pass for the cost that `cost` returns.
    ///
    /// The closure is called once for each claim. An item of cost 0 passes at once.
    fn pace_sends_by<C, L: AsLimiter>(self, limiter: &L, cost: C) -> PacedSink<Self, Item, C, L>
    where
        Self: Sized,
        C: FnMut(&Item) -> u64,
    {
        PacedSink::new(self, limiter, cost)
    }
}

impl<Item, S: Sink<Item> + ?Sized> PaceSinkExt<Item> for S {}
