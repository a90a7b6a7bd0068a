//! Read access to the simulation.

use super::DryRun;
use crate::core::rovers::ahead;
use crate::core::schedule::Schedule;
use crate::core::state::MAX_SPAN;
use crate::core::supply::Supply;
use crate::snapshot::QuotaSnapshot;
use std::time::Duration;

impl DryRun {
    pub(crate) fn quotas(&self) -> &[Schedule] {
        self.supply.quotas()
    }

    pub(crate) fn supply(&self) -> &Supply {
        &self.supply
    }

    /// Whether neither a claim nor a debt is in the queue.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn waiting_tokens(&self) -> u64 {
        self.tokens
    }

    /// The position at which the last claim in the queue ends.
    pub(crate) fn tail(&self) -> u64 {
        self.supply.claimed().wrapping_add(self.tokens)
    }

    /// How many more tokens may be claimed before the positions are too far apart to be compared.
    pub(super) fn space_left(&self) -> u64 {
        (MAX_SPAN - ahead(self.tail(), self.supply.limit())).max(0) as u64
    }

    /// How far the head of `quota` is ahead of all claims; negative while claims wait or a debt is outstanding.
    pub(crate) fn level(&self, quota: usize) -> i64 {
        ahead(self.quotas()[quota].head, self.tail())
    }

    /// The number of tokens that `try_acquire` could get.
    pub(crate) fn available(&self) -> u64 {
        if self.supply.is_paused() || !self.queue.is_empty() {
            return 0;
        }
        ahead(self.supply.limit(), self.tail()).max(0) as u64
    }

    /// The number of tokens by which claims exceed the tokens available.
    pub(crate) fn deficiency(&self) -> u64 {
        ahead(self.tail(), self.supply.limit()).max(0) as u64
    }

    /// The state of `quota`, without its name.
    pub(crate) fn snapshot(&self, quota: usize, now: u64) -> QuotaSnapshot {
        let schedule = &self.quotas()[quota];
        let available = self.level(quota).max(0) as u64;
        let one_more = self.tail().wrapping_add(available).wrapping_add(1);
        QuotaSnapshot {
            name: None,
            quota: schedule.quota,
            head: schedule.head,
            level: ahead(schedule.head, self.supply.claimed()),
            available,
            more_in: schedule.reached(one_more).map(|at| Duration::from_nanos(at.saturating_sub(now))),
            dry_run: self.is_dry(quota),
            would_refuse: self.totals.refused_by[quota],
        }
    }
}
