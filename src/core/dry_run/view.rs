//! Read access to the simulation.

use super::DryRun;
use crate::core::rovers::ahead;
use crate::core::state::MAX_SPAN;

impl DryRun {
    /// Whether neither a claim nor a debt is in the queue.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn waiting(&self) -> u64 {
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
        ahead(self.supply.quotas()[quota].head, self.tail())
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
}
