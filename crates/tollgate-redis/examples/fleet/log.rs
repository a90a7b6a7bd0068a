//! What a node has reported.

use crate::law::Batch;
use crate::report::{Lease, Report, Sample};

/// All that a node has reported.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) ready: bool,
    pub(crate) began: Option<u64>,
    pub(crate) ended: Option<u64>,
    pub(crate) grants: Vec<Batch>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) last: Sample,
}

impl Log {
    /// Enters a report of a node whose clock is ahead of that of this process by `ahead` nanoseconds.
    pub(crate) fn enter(&mut self, report: Report, ahead: i64) {
        let here = |there: u64| there.wrapping_add_signed(-ahead);
        match report {
            Report::Ready => self.ready = true,
            Report::Began { at } => self.began = Some(here(at)),
            Report::Ended { at } => self.ended = Some(here(at)),
            Report::Grants { first, last, tokens } => {
                self.grants.push(Batch { first: here(first), last: here(last), tokens });
            }
            Report::Leased(lease) => self.leases.push(Lease { until: here(lease.until), ..lease }),
            Report::Sample(sample) => self.last = Sample { late: sample.late.max(self.last.late), ..sample },
        }
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.grants.iter().map(|batch| batch.tokens).sum()
    }

    /// The tokens granted in these nanoseconds.
    pub(crate) fn tokens_in(&self, time: std::ops::Range<u64>) -> u64 {
        let since = self.grants.partition_point(|batch| batch.last < time.start);
        self.grants[since..].iter().take_while(|batch| batch.last < time.end).map(|batch| batch.tokens).sum()
    }
}
