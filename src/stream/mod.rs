//! Paced streams and sinks: items pass one by one, each for its cost in tokens. Feature `stream`.
//!
//! [`PaceStreamExt::pace`] takes a token for each item of a `Stream`, [`PaceSinkExt::pace_sends`] for each item sent
//! into a `Sink`; `pace_by` and `pace_sends_by` ask a closure what an item costs. Adaptors that share a limiter stand in
//! its one line, beside everybody else who does.
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
//! # What holds for both
//!
//! * Order is kept, and every item comes out: if the limiter refuses one (it is closed, its line is full), the item is
//!   in the error, or stays in the sink.
//! * Tokens are taken for an item that is there and can go on, never in advance: a silent source and a sink that is not
//!   ready hold none.
//! * `next()` and `send()` can be dropped at any time. The adaptor keeps the item and its place in the line. Dropping
//!   the adaptor leaves the line and gives back what was granted; the item goes with it, unless
//!   [`into_parts`](PacedStream::into_parts) takes it out.
//! * With [`max_in_flight`](crate::Builder::max_in_flight), an item's tokens land as soon as it passes. To hold them
//!   until its work is done, take the grants along: [`PacedStream::with_grants`].

mod paced_sink;
mod paced_stream;

pub use paced_sink::{PacedSink, PacedSinkError};
pub use paced_stream::{PacedStream, RefusedItem, WithGrants};

use crate::Limiter;
use futures_core::Stream;
use futures_sink::Sink;

/// Paces the items of any `Stream`.
pub trait PaceStreamExt: Stream {
    /// Lets items pass for one token each.
    ///
    /// The stream's items become results: `Err` for an item that the limiter refused.
    fn pace(self, limiter: &Limiter) -> PacedStream<Self>
    where
        Self: Sized,
    {
        PacedStream::new(self, limiter, |_| 1)
    }

    /// Lets items pass for what `cost` says of each. It is asked once per item; a cost of 0 passes at once.
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
    fn pace_by<C>(self, limiter: &Limiter, cost: C) -> PacedStream<Self, C>
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
    /// Lets items pass for one token each.
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
    fn pace_sends(self, limiter: &Limiter) -> PacedSink<Self, Item>
    where
        Self: Sized,
    {
        PacedSink::new(self, limiter, |_| 1)
    }

    /// Lets items pass for what `cost` says of each. It is asked once for each claim; a cost of 0 passes at once.
    fn pace_sends_by<C>(self, limiter: &Limiter, cost: C) -> PacedSink<Self, Item, C>
    where
        Self: Sized,
        C: FnMut(&Item) -> u64,
    {
        PacedSink::new(self, limiter, cost)
    }
}

impl<Item, S: Sink<Item> + ?Sized> PaceSinkExt<Item> for S {}
