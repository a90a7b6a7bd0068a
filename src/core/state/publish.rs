//! The exchange between the state and the fast path: how far claims may go, and how far they have gone.

use super::{Role, Sample, State};
use crate::core::rovers::{Rovers, earlier};

impl State {
    /// Tells the fast path how far claims may go, and which answer to give beyond that. While a waiter waits, the
    /// published position does not reach the tail, so the fast path can claim nothing.
    #[inline(always)]
    pub(super) fn publish(&mut self, rovers: &Rovers) {
        if !std::mem::take(&mut self.denied) {
            self.forget_denial(rovers);
        }
        let limit = self.supply.limit();
        let until = if !self.is_clear() || self.supply.aside() > 0 {
            self.base(rovers)
        } else if self.closed || self.supply.is_paused() || self.role.has(Role::DRY_RUN) {
            // A dry run learns of each claim.
            rovers.tail()
        } else {
            rovers.tail().wrapping_add(self.stride.tokens)
        };
        rovers.publish(earlier(limit, until), limit);
    }

    /// The sample that a clock would give if it had stood still since the last reading.
    #[inline]
    pub(crate) fn last_sample(&self) -> Sample {
        Sample { tail: self.supply.claimed(), now: self.supply.synced() }
    }

    /// Records `sample` once the queue has been served up to `sample.now`.
    #[inline(always)]
    pub(crate) fn note_sample(&mut self, rovers: &Rovers, sample: Sample) {
        self.supply.know_claimed(earlier(sample.tail, self.base(rovers)));
        let most = self.supply.least_burst() / 64;
        self.stride.adapt(rovers.tail(), sample.now, most);
    }

    /// Stops the fast path: takes back the tokens that were published and not claimed, by moving the tail past them and
    /// shifting every other position by the same amount.
    pub(crate) fn retract(&mut self, rovers: &Rovers) {
        let shift = rovers.retract();
        self.supply.shift(shift);
        self.totals.skipped = self.totals.skipped.wrapping_add(shift);
        self.stride.shift(shift);
    }
}
