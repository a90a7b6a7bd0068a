//! Readers and writers that follow a script.

use crate::fixture::*;
use std::io::{self, IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one poll does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads or writes this many bytes, or as many as there is space for. The rest of a read is left for the next poll.
    Bytes(usize),
    Pending,
    Fails,
}

/// Reads the numbers from 0 on as bytes, as scripted, then reports the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub(crate) script: VecDeque<Step>,
    pub(crate) next: u8,
}

impl AsyncRead for Source {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.script.pop_front() {
            None => Poll::Ready(Ok(())),
            Some(Step::Pending) => Poll::Pending,
            Some(Step::Fails) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Step::Bytes(there)) => {
                let got = there.min(buf.remaining());
                if got < there {
                    self.script.push_front(Step::Bytes(there - got));
                }
                for _ in 0..got {
                    buf.put_slice(&[self.next]);
                    self.next = self.next.wrapping_add(1);
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Writes bytes as scripted, then everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    pub(crate) script: VecDeque<Step>,
    pub(crate) taken: Vec<u8>,
    /// Whether it writes several buffers at once, and how many each call passed.
    pub(crate) vectored: bool,
    pub(crate) slices: Vec<Vec<usize>>,
    pub(crate) is_shut: bool,
}

impl AsyncWrite for Drain {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.slices.push(bufs.iter().map(|buf| buf.len()).collect());
        let all = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>();
        if all.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match self.script.pop_front().unwrap_or(Step::Bytes(usize::MAX)) {
            Step::Pending => Poll::Pending,
            Step::Fails => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Step::Bytes(space) => {
                let took = space.min(all.len());
                self.taken.extend_from_slice(&all[..took]);
                Poll::Ready(Ok(took))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        Poll::Ready(Ok(()))
    }
}
