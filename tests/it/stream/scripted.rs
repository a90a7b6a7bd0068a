//! Streams and sinks that follow a script.

use crate::fixture::*;

use futures::stream::FusedStream;
use futures::{Sink, Stream};

/// Yields items as scripted; `None` is a poll that finds no item yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source<T> {
    pub(crate) script: VecDeque<Option<T>>,
}

impl<T> Source<T> {
    pub(crate) fn new(script: impl IntoIterator<Item = Option<T>>) -> Self {
        Self { script: script.into_iter().collect() }
    }
}

impl<T: Unpin> Stream for Source<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.script.pop_front() {
            Some(Some(item)) => Poll::Ready(Some(item)),
            Some(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.script.iter().flatten().count();
        (items, Some(items))
    }
}

impl<T: Unpin> FusedStream for Source<T> {
    fn is_terminated(&self) -> bool {
        self.script.is_empty()
    }
}

/// Takes an item whenever its script says that it is ready; after the script, always.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain<T> {
    pub(crate) ready: VecDeque<bool>,
    pub(crate) taken: Vec<T>,
    pub(crate) flushes: usize,
    promised: bool,
}

impl<T> Drain<T> {
    pub(crate) fn new(ready: impl IntoIterator<Item = bool>) -> Self {
        Self { ready: ready.into_iter().collect(), taken: Vec::new(), flushes: 0, promised: false }
    }
}

impl<T: Unpin> Sink<T> for Drain<T> {
    type Error = &'static str;

    fn poll_ready(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.promised = self.ready.pop_front().unwrap_or(true);
        if self.promised { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn start_send(mut self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        assert!(std::mem::take(&mut self.promised), "sent to a sink that was not ready");
        self.taken.push(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }
}
