//! The part of a limiter that outlives its process: the levels of its quotas and a pause. Waiters and tokens in flight
//! end with the process.

use super::State;
use crate::core::rovers::Rovers;
use crate::core::schedule::{SavedLevel, Schedule};
use crate::core::supply::Supply;
use crate::quota::Quota;

/// The levels of a limiter at an instant, without positions or clock readings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "state", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Saved {
    /// Each quota and its level.
    pub(crate) quotas: Vec<(Quota, SavedLevel)>,
    /// The rest of a pause, in nanoseconds. The pause of all keys is not a part of it.
    pub(crate) paused_for: u64,
}

impl State {
    /// The levels as they would be if all waiters had left, as of [`synced`](Supply::synced). The queue must have been
    /// served up to now. `None` if tokens come from outside.
    pub(crate) fn saved(&self, rovers: &Rovers) -> Option<Saved> {
        let supply = &self.supply;
        if supply.quotas().iter().any(Schedule::is_external) {
            return None;
        }
        let (granted, now) = (self.base(rovers), supply.synced());
        let lent = self.joint().map_or(&[] as &[u64], |fronts| &fronts.lent.0);
        let level = |(index, schedule): (usize, &Schedule)| {
            let level = schedule.saved(granted, now);
            // Debts behind the waiters are not charged yet.
            let debts = supply.debts() + lent.get(index).copied().unwrap_or(0);
            (schedule.quota, SavedLevel { tokens: level.tokens.saturating_sub_unsigned(debts), ..level })
        };
        let quotas = supply.quotas().iter().enumerate().map(level);
        Some(Saved { quotas: quotas.collect(), paused_for: self.pauses().own.saturating_sub(now) })
    }
}

impl Supply {
    /// Creates a supply with `quotas` that begins now, from levels that were saved `offline` nanoseconds ago. A quota
    /// that differs from the saved one at its index keeps its tokens, as with
    /// [`set_quota`](crate::Limiter::set_quota); a quota without a saved one starts as if it were new.
    pub(crate) fn restored(quotas: &[Quota], saved: &Saved, cap: Option<u64>, start: u64, offline: u64) -> Self {
        let restored = |(index, quota): (usize, &Quota)| {
            let Some((old, level)) = saved.quotas.get(index) else { return Schedule::new(*quota, start, 0) };
            let mut schedule = Schedule::restored(*old, *level, start, offline);
            if old != quota {
                schedule.become_quota(*quota, start, 0);
                schedule.cut(start.wrapping_add(quota.capacity()));
            }
            schedule
        };
        let schedules = quotas.iter().enumerate().map(restored);
        let mut supply = Self::from_schedules(schedules, cap, start, 0);
        supply.set_gate(saved.paused_for.saturating_sub(offline));
        supply
    }
}
