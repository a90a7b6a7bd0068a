//! Changes of the simulation by refunds, debts and the operator.

use super::DryRun;
use crate::core::supply::Supply;
use crate::quota::Quota;

impl DryRun {
    /// Returns tokens of a grant that were not used and that the limiter made at this instant. The simulation can have made it
    /// earlier, so a sliding quota gets nothing.
    pub(crate) fn refund(&mut self, tokens: u64, now: u64, granted_at: Option<u64>) {
        self.change(now, |supply, _| supply.refund_to(tokens, granted_at, |_, quota| !quota.is_sliding()));
    }

    /// Charges `tokens` more for a grant: a debt behind the claims in the queue.
    pub(crate) fn charge(&mut self, tokens: u64, now: u64) {
        self.serve(now);
        self.owe(tokens.min(self.space_left()));
    }

    pub(crate) fn replenish(&mut self, tokens: u64, now: u64) {
        self.change(now, |supply, front| supply.replenish(tokens, front));
    }

    /// Sets the end of the pause, later or earlier than before.
    pub(crate) fn set_gate(&mut self, gate: u64, now: u64) {
        self.change(now, |supply, _| supply.set_gate(gate));
    }

    pub(crate) fn set_quota(&mut self, index: usize, quota: Quota, now: u64) {
        self.change(now, |supply, front| supply.set_quota(index, quota, front));
    }

    /// Replaces all quotas, and counts the periods of stepped ones from the origin of time. New ones are in dry run if all
    /// the others are.
    pub(crate) fn replace_quotas(&mut self, quotas: impl Iterator<Item = Quota>, now: u64) {
        self.change(now, |supply, front| {
            supply.replace_quotas(quotas, front);
            supply.step_from_origin();
        });
        let is_dry = !self.is_dry.contains(&false);
        let resized = |old: &[bool], count| (0..count).map(|index| *old.get(index).unwrap_or(&is_dry)).collect();
        let count = self.supply.quotas().len();
        self.is_dry = resized(&self.is_dry, count);
        let refused_by = &self.totals.refused_by;
        self.totals.refused_by = (0..count).map(|index| *refused_by.get(index).unwrap_or(&0)).collect();
    }

    /// Forgets all claims: the limiter was closed. Returns them in a simulation that is to be dropped without the lock.
    pub(crate) fn close(&mut self, now: u64) -> Self {
        self.serve(now);
        self.supply.cut(None);
        let rest = Self::new(&self.supply, self.supply.claimed(), std::iter::empty());
        let rest = Self { is_dry: self.is_dry.clone(), totals: self.totals.clone(), ..rest };
        std::mem::replace(self, rest)
    }

    /// Changes the supply at `now`. The action also gets the ticket of the front claim.
    fn change(&mut self, now: u64, act: impl FnOnce(&mut Supply, Option<u64>)) {
        self.serve(now);
        let front = self.front_ticket();
        act(&mut self.supply, front);
        self.serve(now);
    }
}
