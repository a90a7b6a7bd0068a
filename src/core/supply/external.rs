//! Quotas with tokens from an external [`Source`].

use super::{Quotas, Supply};
use crate::core::rovers::ahead;
use crate::core::schedule::Schedule;
use crate::core::source::Source;

impl Supply {
    /// Mints external tokens, or slides a window. Kept out of the loop over all quotas, which nearly always have none.
    #[cold]
    #[inline(never)]
    pub(super) fn mint_unsteady(quota: &mut Schedule, claimed: u64, now: u64, front: Option<u64>) {
        if quota.is_sliding() {
            return quota.slide(claimed, now);
        }
        quota.run_out(now);
        Self::trim(quota, claimed, front);
        let full = Self::bound(claimed, quota.burst, None);
        quota.mint_external(now, full, front.unwrap_or(full));
    }

    /// Mints up to `at`, when the front claim passes, which ends at `ticket`. Returns true if external tokens that the
    /// claim would take could not be kept any longer: they are gone then, and the caller has to decide anew.
    #[cold]
    pub(crate) fn falls_short(&mut self, ticket: u64, at: u64) -> bool {
        // All had arrived before, and are more than may be kept unused: something else, such as a pause, has held the claim back.
        let is_stale = self.external().is_some_and(|quota| {
            let kept = self.claimed.wrapping_add(quota.burst);
            ahead(ticket, kept) > 0 && quota.passes(ticket, kept).is_some_and(|reached| reached < at)
        });
        self.mint(at, Some(ticket));
        if is_stale {
            self.shed(ticket);
            return true;
        }
        self.lacks_external(ticket)
    }

    /// Whether external tokens are missing for a front claim that ends at `ticket`.
    pub(crate) fn lacks_external(&self, ticket: u64) -> bool {
        self.external().is_some_and(|quota| ahead(ticket, quota.head) > 0)
    }

    /// If the external tokens reach the ticket of the front waiter and something else holds the waiter back, keeps only
    /// as many of its saved tokens as may be kept unused. Other users of the source rely on the rest not being granted
    /// later than the instant at which it was minted.
    #[cold]
    pub(crate) fn shed(&mut self, ticket: u64) {
        let claimed = self.claimed;
        self.quotas.iter_mut().for_each(|quota| quota.shed(ticket, claimed.wrapping_add(quota.burst)));
    }

    /// The instant at which the external tokens let a front claim pass that ends at `ticket`.
    pub(crate) fn passes_external(&self, ticket: u64) -> Option<u64> {
        let quota = self.external()?;
        quota.passes(ticket, Self::bound(self.claimed, quota.burst, None))
    }

    /// Whether the ceiling and all quotas but that with external tokens let a claim that ends at `ticket` pass by `soon`.
    pub(crate) fn others_pass(&self, ticket: u64, soon: u64) -> bool {
        let mut others = self.quotas.iter().filter(|quota| !quota.is_external());
        !self.is_capped_below(ticket) && others.all(|quota| quota.reached(ticket).is_some_and(|at| at <= soon))
    }

    /// The source of external tokens, and the index of its quota, if one of the quotas has one.
    #[inline]
    pub(crate) fn source(&self) -> Option<(usize, &dyn Source)> {
        match &self.quotas {
            Quotas::One(only) => Some((0, only.source()?)),
            Quotas::Many(many) => many.iter().enumerate().find_map(|(index, quota)| Some((index, quota.source()?))),
        }
    }

    pub(crate) fn source_mut(&mut self) -> Option<&mut dyn Source> {
        self.external_mut()?.source_mut()
    }

    /// The quota with external tokens, if there is one.
    pub(crate) fn external(&self) -> Option<&Schedule> {
        self.quotas.iter().find(|quota| quota.is_external())
    }

    pub(crate) fn external_mut(&mut self) -> Option<&mut Schedule> {
        self.quotas.iter_mut().find(|quota| quota.is_external())
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::quota::Quota;

    #[test]
    fn a_claim_would_pass_once_all_other_quotas_and_the_ceiling_let_it() {
        let soonest = |ticket, quotas: &[Quota]| {
            let supply = Supply::new(quotas, Some(10), 0);
            let instants = [0, 999_999, 1_000_000, 999_999_999, 1_000_000_000, u64::MAX];
            instants.into_iter().find(|soon| supply.others_pass(ticket, *soon))
        };
        let (slow, fast) = (Quota::per_second(1), Quota::per_second(1_000).burst(2));
        assert_eq!([1, 2, 3].map(|ticket| soonest(ticket, &[fast])), [Some(0), Some(0), Some(1_000_000)]);
        assert_eq!([1, 2].map(|ticket| soonest(ticket, &[fast, slow])), [Some(0), Some(1_000_000_000)]);
        assert_eq!(
            [10, 11].map(|ticket| soonest(ticket, &[fast])),
            [Some(999_999_999), None],
            "8 ms, and beyond the ceiling"
        );
    }
}
