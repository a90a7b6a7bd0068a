//! The shadow of a limiter's quotas: the levels that they would have if no divided claim had taken from them.
//!
//! A divided claim that leaves gives back what was set aside for it. The bucket may have filled up again since, so
//! giving back up to the burst would let other claims pass beyond the rate law. Up to the shadow level it does not: by
//! themselves, the claims that are paid in one piece are bounded by the shadow's bucket.

use crate::core::rovers::{ahead, earlier};
use crate::core::schedule::Schedule;
use crate::core::supply::Supply;

#[derive(Clone, Debug)]
pub(super) struct Shadow {
    quotas: Vec<Schedule>,
    /// The position up to which claims paid in one piece, and debts, were taken.
    taken: u64,
}

impl Shadow {
    /// The shadow begins as the level that the limiter has before the first installment. That is at most the level of
    /// a bucket that no divided claim ever took from.
    pub(super) fn of(supply: &Supply, base: u64) -> Self {
        Self { quotas: supply.quotas().to_vec(), taken: base }
    }

    fn mint(&mut self, now: u64) {
        let taken = self.taken;
        self.quotas.iter_mut().for_each(|quota| quota.mint(now, taken.wrapping_add(quota.burst)));
    }

    pub(super) fn take(&mut self, tokens: u64, now: u64) {
        self.mint(now);
        self.taken = self.taken.wrapping_add(tokens);
    }

    /// Tokens of a grant came back.
    pub(super) fn refund(&mut self, tokens: u64, now: u64, granted_at: Option<u64>) {
        self.mint(now);
        let taken = self.taken;
        self.quotas.iter_mut().for_each(|quota| quota.refund(tokens, 0, taken.wrapping_add(quota.burst), granted_at));
    }

    pub(super) fn look(&mut self, now: u64, offset: Option<i128>, synced: u64) {
        self.quotas.iter_mut().for_each(|quota| _ = quota.look(now, offset, synced));
    }

    /// Tokens were added by hand: to the manual quotas if there are any, else to all.
    pub(super) fn replenish(&mut self, tokens: u64, now: u64) {
        self.mint(now);
        let taken = self.taken;
        let any_manual = self.quotas.iter().any(Schedule::is_manual);
        for quota in self.quotas.iter_mut().filter(|quota| quota.is_manual() || !any_manual) {
            quota.add(tokens, taken.wrapping_add(quota.burst));
        }
    }

    /// The quota number `index` of the limiter was replaced by that of `supply`.
    pub(super) fn requote(&mut self, supply: &Supply, index: usize, now: u64) {
        self.mint(now);
        let taken = self.taken;
        let quota = &mut self.quotas[index];
        quota.become_quota(supply.quotas()[index].quota, taken, now);
        quota.cut(taken.wrapping_add(quota.burst));
    }

    /// Gives `tokens` back to the supply, as far as the burst and the shadow level allow.
    pub(super) fn restore(&mut self, supply: &mut Supply, base: u64, tokens: u64) {
        self.mint(supply.synced());
        for (index, shadow) in self.quotas.iter().enumerate() {
            let level = ahead(shadow.head, self.taken);
            let full = base.wrapping_add(shadow.burst);
            supply.restore(index, tokens, earlier(full, base.wrapping_add_signed(level)), shadow);
        }
    }
}
