//! A stream that outlives the library's connection on it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) struct PrefixedIo<I> {
    /// Read before all others: what an earlier connection has read.
    prefix: Bytes,
    stream: I,
    state: Arc<IoState>,
}

/// What the owner of the connection knows about its stream.
#[derive(Default)]
pub(super) struct IoState {
    /// Whether the peer takes nothing of what was written last.
    pub(super) is_blocked: AtomicBool,
    /// Whether the stream stays open when the connection ends.
    pub(super) stays_open: AtomicBool,
}

impl<I> PrefixedIo<I> {
    pub(super) fn new(prefix: Bytes, stream: I) -> (Self, Arc<IoState>) {
        let state = Arc::<IoState>::default();
        (Self { prefix, stream, state: Arc::clone(&state) }, state)
    }

    /// The stream without its prefix, which must have been read.
    pub(super) fn into_inner(self) -> I {
        self.stream
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.state.is_blocked.store(written.is_pending(), Relaxed);
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for PrefixedIo<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for PrefixedIo<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.stays_open.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
