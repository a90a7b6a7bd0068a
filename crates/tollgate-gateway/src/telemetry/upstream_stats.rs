//! The upstream's responses by class of their status, how long they took, and what failed instead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::response::Response;
use crossbeam_utils::CachePadded;

use super::counters::{SHARDS, own_shard};
use super::histogram::{Histogram, HistogramSnapshot};

/// Why the upstream has no response to a request. The proxy notes it in the response that it makes instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// No connection.
    Connect,
    /// No response in time.
    Timeout,
    /// The connection ended before the response.
    Broken,
    /// A response that HTTP does not allow.
    Malformed,
}

impl UpstreamError {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Connect, "connect"),
        (Self::Timeout, "timeout"),
        (Self::Broken, "broken"),
        (Self::Malformed, "malformed"),
    ];
}

/// The classes of status codes.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Debug, Default)]
pub(crate) struct UpstreamStats {
    shards: [CachePadded<Shard>; SHARDS],
    latency: Histogram,
}

#[derive(Debug, Default)]
struct Shard {
    classes: [AtomicU64; CLASSES.len()],
    faults: [AtomicU64; UpstreamError::ALL.len()],
}

/// All until now.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamCounts {
    /// The responses, in the order of [`CLASSES`].
    pub(crate) classes: [u64; CLASSES.len()],
    /// In the order of [`UpstreamError::ALL`].
    pub(crate) faults: [u64; UpstreamError::ALL.len()],
    /// From the last step before the request was forwarded to the head of the response.
    pub(crate) latency: HistogramSnapshot,
}

impl UpstreamStats {
    /// Counts what a forwarded request got, after `took`: a response of the upstream, a fault, or neither if the client
    /// was to blame.
    pub(crate) fn note(&self, took: Duration, response: &Response, is_answered: bool) {
        let shard = &self.shards[own_shard()];
        if let Some(fault) = response.extensions().get::<UpstreamError>() {
            shard.faults[*fault as usize].fetch_add(1, Ordering::Relaxed);
        } else if is_answered {
            let class = usize::from(response.status().as_u16() / 100).clamp(1, CLASSES.len()) - 1;
            shard.classes[class].fetch_add(1, Ordering::Relaxed);
            self.latency.note(took);
        }
    }

    pub(crate) fn counts(&self) -> UpstreamCounts {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| {
            self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum::<u64>()
        };
        UpstreamCounts {
            classes: std::array::from_fn(|class| sum(&|shard| &shard.classes[class])),
            faults: std::array::from_fn(|fault| sum(&|shard| &shard.faults[fault])),
            latency: self.latency.snapshot(),
        }
    }
}

impl UpstreamCounts {
    pub(crate) fn answered(&self) -> u64 {
        self.classes.iter().sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.faults.iter().sum()
    }
}
