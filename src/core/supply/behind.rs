//! The instant of a grant behind a queue, from positions alone: without a step per waiter.

use super::Supply;
use crate::core::rovers::ahead;
use crate::core::schedule::Schedule;

impl Supply {
    /// The instant at which a claim that ends at `end` is granted behind a queue. The first claim of the queue ends at
    /// `front`, and no claim in it costs more than `largest`. `None` if the positions alone do not decide.
    ///
    /// A quota that never stands at its limit reaches a position at an instant that depends on that position alone. If
    /// this holds for all quotas, a claim is granted at the latest of these instants, whatever waits before it. A quota
    /// that does stand at its limit loses time. The loss changes nothing in two cases. For each pair of quotas, the
    /// first case must hold while the queue waits for the slower quota, and the second while it waits for the faster:
    ///
    /// * The faster quota is full while the queue waits for the slower one. The faster quota still reaches every
    ///   position first if at least one token stays in it, because all instants are whole nanoseconds and no quota
    ///   mints more than one token per nanosecond; or if the time between its tokens is shorter by at least a
    ///   nanosecond.
    /// * The slower quota is not full while the queue waits for the faster one. The queue then drains the slower quota
    ///   faster than it fills, so its lead over the faster one is greatest at the front of the queue. The two
    ///   additional tokens in the comparison allow for rounding.
    ///
    /// A single quota is never full while a waiter waits for it. If it is stepped, a step must not overrun the limit.
    pub(crate) fn scheduled_behind(&self, front: u64, largest: u64, end: u64) -> Option<u64> {
        if !self.may_use_position(largest) {
            return None;
        }
        let mut ahead = self.clone();
        ahead.mint(ahead.scheduled(front)?, Some(front));
        ahead.scheduled_by_position(largest, end)
    }

    /// The rest of [`scheduled_behind`](Self::scheduled_behind): the first claim is granted next.
    fn scheduled_by_position(&self, largest: u64, end: u64) -> Option<u64> {
        if self.quotas.len() == 1 {
            return self.scheduled(end);
        }
        let pace = |quota: &Schedule| quota.pace().map(|(amount, period)| (u128::from(amount), u128::from(period)));
        for (slow, fast) in self.quotas.iter().flat_map(|slow| self.quotas.iter().map(move |fast| (slow, fast))) {
            let ((few, long), (many, short)) = (pace(slow)?, pace(fast)?);
            if std::ptr::eq(slow, fast) || long * many < short * few {
                continue;
            }
            if fast.burst <= largest && long * many < (short + many) * few {
                return None;
            }
            let lead = i128::from(ahead(slow.head, fast.head));
            if long * many > short * few && lead + i128::from(largest) + 2 > i128::from(slow.burst) {
                return None;
            }
        }
        self.scheduled(end)
    }

    /// Serves a claim of `cost` that begins at `base` ahead of time. `None` if no clock can tell when it passes.
    pub(crate) fn serve_ahead(&mut self, base: u64, cost: u64) -> Option<()> {
        let ticket = base.wrapping_add(cost);
        self.mint(self.scheduled(ticket)?, Some(ticket));
        self.claim(cost);
        Some(())
    }

    /// Whether positions may be able to decide, if no waiter costs more than `largest`.
    fn may_use_position(&self, largest: u64) -> bool {
        match &*self.quotas {
            [only] => only.is_gapless() || only.keeps_steps(largest),
            many => many.iter().all(Schedule::is_gapless),
        }
    }
}
