//! The wrapper that paces a reader, a writer or both.

use super::chunks::Chunks;
use super::reading::Reading;
use crate::as_limiter::AsLimiter;
use crate::handle::Limiter;
use pin_project_lite::pin_project;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pin_project! {
    /// A reader, a writer or both that takes a token per byte; created by [`PaceIoExt`](super::PaceIoExt). See the
    /// [module](super) for its guarantees.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::io::PacedIo;
    /// use tollgate::{Limiter, Quota};
    /// let down = Limiter::new(Quota::per_second(10_000_000))?;
    /// let up = Limiter::new(Quota::per_second(1_000_000))?;
    /// let (here, there) = tokio::io::duplex(4096);
    /// let mut there = PacedIo::new(there).reads(&down).writes(&up).chunk(1024);
    /// # drop(here);
    /// # let (mut here, far) = tokio::io::duplex(4096); drop(far);
    /// tokio::io::copy_bidirectional(&mut here, &mut there).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Futures that poll it can be dropped at any time: it keeps the bytes that were read, and its place in the queue.
    /// Dropping it leaves the queue and refunds the tokens that it has not used.
    ///
    /// # Panics
    ///
    /// Panics like [`Consume`](crate::Consume) on a runtime without timers.
    #[derive(Debug)]
    pub struct PacedIo<T, R: AsLimiter = Limiter, W: AsLimiter = Limiter> {
        #[pin]
        inner: T,
        reading: Option<Reading<R>>,
        writing: Option<Chunks<W>>,
        // The chunk size set by the user.
        chunk: Option<u64>,
    }
}

impl<T> PacedIo<T> {
    /// Wraps `inner` and paces nothing yet.
    pub fn new(inner: T) -> Self {
        Self { inner, reading: None, writing: None, chunk: None }
    }
}

impl<T, R: AsLimiter, W: AsLimiter> PacedIo<T, R, W> {
    /// Paces reads by `limiter`, in place of the limiter that paced them before. Bytes that were read already and not
    /// returned are charged to the new one.
    #[must_use = "this returns the changed wrapper"]
    pub fn reads<L: AsLimiter>(self, limiter: &L) -> PacedIo<T, L, W> {
        let Self { inner, reading: before, writing, chunk } = self;
        let reading = Reading::new(limiter, chunk);
        let reading = Some(match before {
            Some(before) => reading.continue_from(before),
            None => reading,
        });
        PacedIo { inner, reading, writing, chunk }
    }

    /// Paces writes by `limiter`, in place of the limiter that paced them before.
    #[must_use = "this returns the changed wrapper"]
    pub fn writes<L: AsLimiter>(self, limiter: &L) -> PacedIo<T, R, L> {
        let Self { inner, reading, chunk, .. } = self;
        PacedIo { inner, reading, writing: Some(Chunks::new(limiter, chunk)), chunk }
    }

    /// Sets how many bytes are claimed at once, in each direction; 0 counts as 1. The last call counts. Connections get
    /// equal shares if they have equal chunks.
    ///
    /// Smaller chunks let other callers pass sooner. Larger chunks cost less, because a claim and a call of the inner
    /// reader or writer are for one chunk at most. A chunk above the burst is granted as a whole, once enough tokens are
    /// minted for it.
    #[must_use = "this returns the changed wrapper"]
    pub fn chunk(mut self, bytes: usize) -> Self {
        let bytes = bytes.max(1) as u64;
        self.chunk = Some(bytes);
        if let Some(reading) = &mut self.reading {
            reading.chunks.fix(bytes);
        }
        if let Some(writing) = &mut self.writing {
            writing.fix(bytes);
        }
        self
    }

    /// Returns the inner reader or writer.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the inner reader or writer. Bytes that pass through it directly are unpaced, and a direct read skips the
    /// bytes that the wrapper has read ahead.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the inner reader or writer, and the bytes that were read from it and not returned. These are at most a
    /// chunk, and none unless a read was dropped or refused. Leaves the queue.
    pub fn into_parts(self) -> (T, Vec<u8>) {
        let aside = self.reading.map_or_else(Vec::new, |reading| reading.aside().to_vec());
        (self.inner, aside)
    }
}

impl<T: AsyncRead, R: AsLimiter, W: AsLimiter> AsyncRead for PacedIo<T, R, W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        match this.reading {
            Some(reading) => reading.poll_read(cx, this.inner, buf),
            None => this.inner.poll_read(cx, buf),
        }
    }
}

impl<T: AsyncWrite, R: AsLimiter, W: AsLimiter> AsyncWrite for PacedIo<T, R, W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        match this.writing {
            Some(writing) => writing.poll_write(cx, this.inner, buf),
            None => this.inner.poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        match this.writing {
            Some(writing) => writing.poll_write_vectored(cx, this.inner, bufs),
            None => this.inner.poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// Flushes the inner writer. A write that waits keeps its place in the queue, and its task is woken.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    /// Shuts the inner writer down. Nothing will be written any more, so a write that still waits leaves the queue, and
    /// tokens that are left are refunded.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        if let Some(writing) = this.writing {
            writing.cancel();
            writing.refund();
        }
        this.inner.poll_shutdown(cx)
    }
}
