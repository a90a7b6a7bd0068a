//! The level of a quota as it outlives its limiter.

use super::{Mint, Schedule};
use crate::core::rovers::ahead;
use crate::quota::Quota;

/// The level of a quota at an instant, without positions or clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "state", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SavedLevel {
    /// Whole tokens; negative for a debt.
    pub(crate) tokens: i64,
    /// The fraction of the next token: how many parts of the period, in lowest terms.
    pub(crate) fraction: u64,
    /// For a stepped quota, the nanoseconds until the next step; `None` if that is beyond the end of time. For a calendar quota,
    /// the beginning of the next period in nanoseconds since 1970; `None` if it is not known.
    pub(crate) step_in: Option<u64>,
}

impl SavedLevel {
    /// The name and the value of the part that no limiter with the checked `quota` can have, if there is one.
    pub(crate) fn impossible(&self, quota: &Quota) -> Option<(&'static str, i128)> {
        let full = quota.capacity() as i64;
        let (fractions, steps) = match Mint::new(*quota, 0) {
            // A full bucket keeps the fraction that came with its last token, and no more: see `Schedule::mint`.
            Mint::Continuous { amount, period, .. } if self.tokens == full => (amount.min(period), 0),
            Mint::Continuous { period, .. } => (period, 0),
            Mint::Stepped { period, .. } => (1, period),
            Mint::Calendar { .. } => (1, u64::MAX),
            Mint::Manual | Mint::Open | Mint::External(_) | Mint::Sliding(_) => (1, 0),
        };
        let step_in = self.step_in.filter(|step_in| !(1..=steps).contains(step_in));
        // No queue owes more than 2^62 tokens.
        if !(-(1 << 62)..=full).contains(&self.tokens) {
            Some(("tokens", self.tokens.into()))
        } else if self.fraction >= fractions {
            Some(("fraction", self.fraction.into()))
        } else {
            step_in.map(|step_in| ("step_in", step_in.into()))
        }
    }
}

impl Schedule {
    /// Creates the schedule of a limiter that is built now, from one that was at `saved` some `offline` nanoseconds
    /// ago, when everything claimed so far ended at `claimed`.
    pub(crate) fn restored(quota: Quota, saved: SavedLevel, claimed: u64, offline: u64) -> Self {
        // The schedule is created as of the instant of saving, and then advanced to now, which becomes the new origin.
        let mut schedule = Self::new(quota, claimed, 0);
        schedule.head = claimed.wrapping_add_signed(saved.tokens);
        match &mut schedule.mint {
            Mint::Continuous { rem, .. } => *rem = saved.fraction,
            Mint::Stepped { next, .. } => *next = saved.step_in,
            Mint::Calendar { time, .. } => saved.step_in.into_iter().for_each(|next| time.restore(next)),
            // The instants of the grants of a sliding quota are not saved: they count as made when the level was.
            Mint::Manual | Mint::Open | Mint::External(_) | Mint::Sliding(_) => {}
        }
        schedule.mint(offline, claimed.wrapping_add(quota.capacity()));
        match &mut schedule.mint {
            Mint::Continuous { stamp, .. } => *stamp -= offline,
            Mint::Stepped { next, .. } => *next = next.map(|next| next - offline),
            Mint::Sliding(window) => window.begin(offline),
            Mint::Calendar { .. } | Mint::Manual | Mint::Open | Mint::External(_) => {}
        }
        schedule
    }

    /// This schedule at `now`, up to which it has been minted, when everything granted so far ends at `granted`. A quota in
    /// dry run is saved as full.
    pub(crate) fn saved(&self, granted: u64, now: u64) -> SavedLevel {
        let limit = granted.wrapping_add(self.quota.capacity());
        // What is above the burst was saved up for the front waiter, which is not a part of the saved state.
        let mut own = self.clone();
        own.cut(limit);
        own.mint(now, limit);
        let begun = if let Mint::Open = self.mint { &Mint::new(self.quota, now) } else { &self.mint };
        let step_in = match begun {
            Mint::Stepped { next, .. } => next.map(|next| next.saturating_sub(now)),
            Mint::Calendar { time, .. } => time.next_on_wall(),
            _ => None,
        };
        SavedLevel { tokens: ahead(own.head, granted), fraction: own.fraction(), step_in }
    }
}
