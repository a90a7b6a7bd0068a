//! What the access log hands to its writer, and the counts of its lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::record::{Record, RequestLine, ResponseEnd};

/// How many lines were written, and how many were not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<LineCounts>);

#[derive(Debug, Default)]
struct LineCounts {
    written: AtomicU64,
    /// Lines that found the queue full.
    dropped: AtomicU64,
    /// Lines that could not be written.
    failed: AtomicU64,
}

impl Lines {
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let LineCounts { written, dropped, failed } = &*self.0;
        [("written", written), ("dropped", dropped), ("failed", failed)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn drop_one(&self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, written: u64, failed: u64) {
        self.0.written.fetch_add(written, Ordering::Relaxed);
        self.0.failed.fetch_add(failed, Ordering::Relaxed);
    }
}

/// What the writer gets.
pub(crate) enum Message {
    Line(Box<(RequestLine, Record, ResponseEnd)>),
    /// Look whether the file has to be opened again.
    Wake,
    /// Answer when all earlier lines are written.
    Flush(oneshot::Sender<()>),
}
