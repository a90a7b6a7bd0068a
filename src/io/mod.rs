//! Paced bytes: tokio's `AsyncRead` and `AsyncWrite` at a token per byte. Feature `io`.
//!
//! [`PaceIoExt::pace_bytes`] wraps a connection, a file, or one half of either, so that its bytes pass at the rate of
//! a limiter, in both directions or in one. Wrappers that share a limiter share its one queue: they take turns, each
//! for a chunk, and so get equal shares, whatever sizes they read and write.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tollgate::io::PaceIoExt;
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::new(Quota::per_second(10_000_000).burst(64 << 10))?; // 10 MB/s
//! let (client, mut server) = tokio::io::duplex(1 << 20);
//! let mut client = client.pace_writes(&limiter);
//! client.write_all(&[7; 100_000]).await?;
//! client.shutdown().await?;
//! let mut got = Vec::new();
//! server.read_to_end(&mut got).await?;
//! assert_eq!((got.len(), limiter.snapshot().granted - limiter.snapshot().refunded), (100_000, 100_000));
//! # Ok(()) }
//! ```
//!
//! A [`Class`](crate::Class) of a limiter can take the place of the limiter, in each direction another one:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tokio::io::AsyncWriteExt;
//! use tollgate::io::PaceIoExt;
//! use tollgate::{Limiter, Quota, Share};
//!
//! let limiter = Limiter::builder().quota(Quota::per_second(10_000_000).burst(64 << 10)).classes().build()?;
//! let (pages, backup) = (limiter.class("pages", Share::weight(9))?, limiter.class("backup", Share::weight(1))?);
//! let (mut page, mut copy) = (tokio::io::sink().pace_writes(&pages), tokio::io::sink().pace_writes(&backup));
//! tokio::try_join!(page.write_all(&[7; 100_000]), copy.write_all(&[7; 100_000]))?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! * **A read pays for the bytes it got**, never for the bytes it asked for. Bytes are read first, at most a chunk,
//!   straight into the caller's buffer. If their tokens are not available at once, the bytes move to an internal
//!   buffer until they are.
//! * **A write is paid for before it happens**. It may take fewer bytes than it was given, as any `AsyncWrite` may.
//! * **Tokens that are left of a chunk are kept** for the next bytes of this direction. They are refunded when the inner
//!   reader or writer is not ready, ends or fails, at `shutdown`, and when the wrapper is dropped. So a silent peer, and
//!   a peer that does not read, hold no tokens. If nothing was paid for during a second, the next read or write first
//!   refunds them; until then an idle connection holds less than a chunk.
//! * The limiter's guarantee holds for the grants, less the refunds. The bytes that pass during a window can exceed it by
//!   what the connections kept when the window began: less than a chunk each.
//! * Neither `flush` nor `shutdown` waits for tokens: everything that was reported as written has been paid for.
//! * Futures that read or write can be dropped at any time: the wrapper keeps the bytes that were read, and its place
//!   in the queue, for the next read or write. A write that is given up leaves the queue at `shutdown`, or when the
//!   wrapper is dropped. Neither a read nor `flush` makes it leave, because a task may do these while it waits to write.
//!   Until then, up to a chunk of tokens may be granted to it and stay unused.
//! * If the limiter refuses (it is closed, or its queue is full), the call returns an [`io::Error`]. Its
//!   [`get_ref`](std::io::Error::get_ref) is a [`ConsumeError`]. No byte is lost: bytes that were read and not
//!   returned are in [`into_parts`](PacedIo::into_parts).
//!
//! # Chunks
//!
//! A direction claims a whole chunk at a time: a large write passes in pieces of a chunk, and small writes share one. After
//! a second without payment, the first claim is only for the bytes at hand, so occasional messages claim what they use.
//!
//! The queue is strict, so a small write waits for the chunks that entered before it, one per connection, and then for its
//! own chunk. The chunk size decides how long that is. By default it is a 16th of the smallest burst (of a quota, or of a
//! ceiling of the class), but at most 64 KiB; [`chunk`](PacedIo::chunk) sets another size. Neither is above the in-flight cap or
//! [`max_cost`](crate::Builder::max_cost). The default follows changes of the quotas.
//!
//! With an in-flight cap, each claim is for the bytes at hand, and nothing is kept, because kept tokens would be in flight:
//! shares are then as large as the reads and writes, up to a chunk. A chunk that waits while the cap is lowered below it
//! blocks the queue until the cap is raised or the wrapper is dropped.

mod chunks;
mod paced;
mod reading;
mod writing;

pub use paced::PacedIo;

use crate::as_limiter::AsLimiter;
use crate::error::ConsumeError;
use crate::handle::Limiter;
use std::io;

/// Paces the bytes of any `AsyncRead` or `AsyncWrite`. [`PacedIo::chunk`] changes the chunk size.
pub trait PaceIoExt: Sized {
    /// Paces reads and writes, which share the limiter. For two limiters, see [`PacedIo::reads`] and
    /// [`PacedIo::writes`].
    fn pace_bytes<L: AsLimiter>(self, limiter: &L) -> PacedIo<Self, L, L> {
        PacedIo::new(self).reads(limiter).writes(limiter)
    }

    /// Paces reads; writes pass unpaced.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::io::AsyncReadExt;
    /// use tollgate::io::PaceIoExt;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000_000))?;
    /// let mut file = tokio::io::repeat(7).take(5_000).pace_reads(&limiter);
    /// let mut bytes = [0; 60_000];
    /// assert_eq!(file.read(&mut bytes).await?, 5_000);
    /// assert_eq!(limiter.snapshot().granted, 5_000); // for what it got
    /// # Ok(()) }
    /// ```
    fn pace_reads<L: AsLimiter>(self, limiter: &L) -> PacedIo<Self, L> {
        PacedIo::new(self).reads(limiter)
    }

    /// Paces writes; reads pass unpaced.
    fn pace_writes<L: AsLimiter>(self, limiter: &L) -> PacedIo<Self, Limiter, L> {
        PacedIo::new(self).writes(limiter)
    }
}

impl<T> PaceIoExt for T {}

impl From<ConsumeError> for io::Error {
    /// Makes an error of kind `Other` that [`downcast`](io::Error::downcast)s to the `ConsumeError`.
    fn from(error: ConsumeError) -> Self {
        Self::other(error)
    }
}
