//! The writing direction: pay, write, count the bytes that were taken.
//!
//! Writing first and paying later is not possible: bytes that were written must be reported as written, and a caller
//! that gets `Pending` may come back with other bytes or not at all.

use super::chunks::Chunks;
use crate::as_limiter::AsLimiter;
use arrayvec::ArrayVec;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// How many buffers of a vectored write are passed on at once. Linux takes 1024; few callers have more than this.
const MAX_SLICES: usize = 64;

impl<L: AsLimiter> Chunks<L> {
    pub(super) fn poll_write<W: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        inner: Pin<&mut W>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return inner.poll_write(cx, buf);
        }
        let paid = ready!(self.poll_pay(cx, buf.len()))?;
        let written = inner.poll_write(cx, &buf[..paid]);
        self.spent(cx, written)
    }

    pub(super) fn poll_write_vectored<W: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        inner: Pin<&mut W>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !inner.is_write_vectored() {
            // The inner writer would take the first buffer only, so only that one is claimed.
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            return self.poll_write(cx, inner, first);
        }
        let total = bufs.iter().fold(0_usize, |total, buf| total.saturating_add(buf.len()));
        if total == 0 {
            return inner.poll_write_vectored(cx, bufs);
        }
        let paid = ready!(self.poll_pay(cx, total))?;
        let written = inner.poll_write_vectored(cx, &cut(bufs, paid));
        self.spent(cx, written)
    }

    /// Counts the bytes that the inner writer has taken. A writer that takes none takes no more.
    fn spent(&mut self, cx: &Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(taken @ 1..)) => self.spend(*taken),
            other => self.stall(cx, other.is_ready()),
        }
        written
    }
}

/// Returns the first `most` bytes of `bufs`, or less if there are more than `MAX_SLICES` buffers.
fn cut<'b>(bufs: &'b [IoSlice<'_>], most: usize) -> ArrayVec<IoSlice<'b>, MAX_SLICES> {
    let mut left = most;
    let parts = bufs.iter().filter(|buf| !buf.is_empty()).map_while(|buf| {
        let part = &buf[..left.min(buf.len())];
        left -= part.len();
        (!part.is_empty()).then(|| IoSlice::new(part))
    });
    parts.take(MAX_SLICES).collect()
}
