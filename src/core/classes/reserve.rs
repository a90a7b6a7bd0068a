//! Joint claims in the scheduler: a claim that also waits in other limiters has its turn before its tokens are taken.
//!
//! The turn charges the classes on the path, as an installment does. The tokens are taken from the quotas when all
//! limiters grant the claim. What was set aside for a claim above the burst in earlier turns stays set aside until then,
//! although the claim is not at the front of its leaf any more.

use super::scheduler::Scheduler;
use crate::core::supply::Supply;

impl Scheduler {
    /// A joint claim that had its turn was granted `cost` tokens of the quotas at the instant of `supply`, beside the `paid`
    /// tokens that were set aside for it.
    pub(crate) fn grant_reserved(&mut self, cost: u64, paid: u64, supply: &mut Supply) {
        supply.grant_aside(paid);
        if paid == 0 {
            self.note_taken(cost, supply.synced());
        }
        self.drop_shadow(supply);
    }

    /// A claim for which `paid` tokens were set aside leaves without a grant: gives them back, as far as the burst and the
    /// shadow allow. If it is in front of its leaf, [`advance`](Self::advance) follows.
    pub(crate) fn withdraw(&mut self, paid: u64, supply: &mut Supply, base: u64) {
        supply.drop_aside(paid);
        if paid > 0 {
            self.with_shadow(supply.synced(), |shadow| supply.restore(paid, base, shadow));
        }
        self.drop_shadow(supply);
    }

    /// `tokens` were granted in one piece, or charged.
    #[inline]
    pub(crate) fn note_taken(&mut self, tokens: u64, now: u64) {
        self.with_shadow(now, |shadow| shadow.claim(tokens));
    }

    /// Changes the shadow as of `now`, if there is one.
    #[inline]
    pub(crate) fn with_shadow(&mut self, now: u64, act: impl FnOnce(&mut Supply)) {
        if let Some(shadow) = &mut self.shadow {
            shadow.mint(now, None);
            act(shadow);
        }
    }

    /// No shadow is needed while nothing is set aside.
    #[inline]
    pub(super) fn drop_shadow(&mut self, supply: &Supply) {
        if self.shadow.is_some() && supply.aside() == 0 {
            self.shadow = None;
        }
    }
}
