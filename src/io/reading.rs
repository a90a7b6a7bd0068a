//! The reading direction: read, pay, return.
//!
//! Bytes go straight into the caller's buffer, and stay there if their tokens are available at once. Otherwise the
//! read must return pending, and the caller may come back with another buffer or not at all, so the bytes first move to
//! a buffer of this struct. No further bytes are read until these are returned, so this struct never holds more than a
//! chunk.

use super::chunks::Chunks;
use crate::as_limiter::AsLimiter;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

#[derive(Debug)]
pub(super) struct Reading<L: AsLimiter> {
    pub(super) chunks: Chunks<L>,
    /// The bytes that were read and not returned, beginning at `start`.
    aside: Vec<u8>,
    start: usize,
}

impl<L: AsLimiter> Reading<L> {
    pub(super) fn new(limiter: &L, chunk: Option<u64>) -> Self {
        Self { chunks: Chunks::new(limiter, chunk), aside: Vec::new(), start: 0 }
    }

    /// Takes over the bytes that `before` read.
    pub(super) fn continue_from(self, before: Reading<impl AsLimiter>) -> Self {
        let Reading { aside, start, .. } = before;
        Self { aside, start, ..self }
    }

    /// The bytes that were read and not returned.
    pub(super) fn aside(&self) -> &[u8] {
        &self.aside[self.start..]
    }

    pub(super) fn poll_read<R: AsyncRead>(
        &mut self,
        cx: &mut Context<'_>,
        inner: Pin<&mut R>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.aside().is_empty() {
            return self.poll_hand_out(cx, buf);
        }
        if buf.remaining() == 0 {
            return inner.poll_read(cx, buf);
        }
        let most = self.chunks.of(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        let answer = inner.poll_read(cx, &mut part);
        let got = part.filled().len();
        if got == 0 || !matches!(answer, Poll::Ready(Ok(()))) {
            self.chunks.stall(cx, answer.is_ready());
            return answer;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| self.chunks.poll_pay(cx, got)));
        // The chunk may have become smaller than the read.
        if matches!(answer, Ok(Poll::Ready(Ok(paid))) if paid >= got) {
            self.chunks.spend(got);
            buf.advance(got);
            return Poll::Ready(Ok(()));
        }
        // Also if the clock or the waker has panicked: the bytes are not in the inner reader any more.
        self.start = 0;
        self.aside.clear();
        self.aside.extend_from_slice(part.filled());
        ready!(answer.unwrap_or_else(|panic| resume_unwind(panic)))?;
        self.poll_hand_out(cx, buf)
    }

    /// Pays for the bytes in the internal buffer, and returns those that are paid for.
    fn poll_hand_out(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let paid = ready!(self.chunks.poll_pay(cx, self.aside().len()))?;
        let part = paid.min(buf.remaining());
        buf.put_slice(&self.aside()[..part]);
        self.start += part;
        self.chunks.spend(part);
        Poll::Ready(Ok(()))
    }
}
