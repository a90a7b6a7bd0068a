//! How many nodes have waiters: they share the tokens.
//!
//! The store counts the nodes that ask for waiters, in epochs. A node that asks less often than once in an epoch is missing
//! in some of them. So each node corrects the count by the time between its own requests.

use super::RefillPlanner;
use super::sizes::MILLIS;

/// The length of an epoch of the store.
const EPOCH: u64 = 250 * MILLIS;

impl RefillPlanner {
    /// How many nodes have waiters: by the store's count, and if this node asks less often than once in an epoch, by as
    /// many more as are missing if the others ask as often as this one.
    pub(crate) fn busy(&self) -> u64 {
        let counted = u128::from(self.busy) * u128::from(self.period);
        let corrected = counted.div_ceil(u128::from(EPOCH)) as u64;
        corrected.min(self.nodes).max(self.busy)
    }

    /// Records that the node asks for waiters at `now`. A time in which the node had all that it was promised, and no
    /// waiter asked for more, does not count.
    pub(super) fn note_wanted(&mut self, now: u64) {
        let sample = self.owed_until.min(now).saturating_sub(self.wanted_at);
        self.period = sample.max((3 * self.period + sample) / 4);
        self.wanted_at = now;
    }
}
