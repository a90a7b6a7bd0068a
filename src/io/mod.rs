//! Paced bytes: tokio's `AsyncRead` and `AsyncWrite` at a token per byte. Feature `io`.
//!
//! [`PaceIoExt::pace_bytes`] wraps a connection, a file, one half of either, so that its bytes pass at the rate of a limiter, in
//! both directions or in one. Wrappers that share a limiter share its one line: they take turns, each for a chunk.
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
//! # What holds
//!
//! * **A read pays for what it got**, never for what it asked. Bytes are read first, at most a chunk of them, straight
//!   into the caller's buffer; if their tokens are not there at once, they move aside until they are. A silent peer holds no
//!   tokens and no place in the line.
//! * **A write is paid for before it happens**, a chunk at a time. What the inner writer does not take goes back at once,
//!   all of it if it takes nothing: a peer that does not read holds no tokens either. So the bytes that pass, and not only
//!   the grants, keep the limiter's law.
//! * `flush` waits for no tokens, `shutdown` neither: everything that was reported as written has been paid for.
//! * Futures that read or write can be dropped at any time: the wrapper keeps what was read and its place in the line. A
//!   write whose place was kept leaves it at `shutdown`, or when the wrapper is dropped; until then up to a chunk may be
//!   granted to it and unused.
//! * A limiter that refuses (it is closed, its line is full) makes an [`io::Error`] of which
//!   [`get_ref`](std::io::Error::get_ref) is a [`ConsumeError`]. No byte is lost by it: what was read and not handed out
//!   is in [`into_parts`](PacedIo::into_parts).
//!
//! # Chunks
//!
//! The line is strict, so a small write waits for the chunks that entered before it, one per connection, and
//! the chunk decides how long that is: a 16th of the smallest burst unless [`chunk`](PacedIo::chunk) says otherwise, at
//! most 64 KiB and the in-flight cap. It follows changes of the quotas; but a chunk that waits while the cap is lowered below
//! it holds up the line until the cap is raised, or the wrapper is dropped.

mod chunks;
mod paced;
mod reading;
mod writing;

pub use paced::PacedIo;

use crate::Limiter;
use crate::error::ConsumeError;
use std::io;

/// Paces the bytes of any `AsyncRead` or `AsyncWrite`. Another chunk than the default: [`PacedIo::chunk`].
pub trait PaceIoExt: Sized {
    /// Paces reads and writes, which share the limiter. For two limiters, `pace_reads` and `pace_writes`.
    fn pace_bytes(self, limiter: &Limiter) -> PacedIo<Self> {
        PacedIo::new(self).reads(limiter).writes(limiter)
    }

    /// Paces reads; writes go through.
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
    fn pace_reads(self, limiter: &Limiter) -> PacedIo<Self> {
        PacedIo::new(self).reads(limiter)
    }

    /// Paces writes; reads go through.
    fn pace_writes(self, limiter: &Limiter) -> PacedIo<Self> {
        PacedIo::new(self).writes(limiter)
    }
}

impl<T> PaceIoExt for T {}

impl From<ConsumeError> for io::Error {
    /// An error of kind `Other` that [`downcast`](io::Error::downcast)s to the `ConsumeError`.
    fn from(error: ConsumeError) -> Self {
        Self::other(error)
    }
}
