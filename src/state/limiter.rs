//! The state of a limiter.

use super::version::Versioned;
use super::{StateError, WallTime};
use crate::Limiter;
use crate::core::schedule::SavedLevel;
use crate::core::state::saved::Saved;
use crate::core::supply::Supply;
use crate::quota::Quota;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::SystemTime;

/// The state of a [`Limiter`] at an instant, returned by [`Limiter::state`]; see [`state`](crate::state).
///
/// To be written and read by serde, in any format. A state that was read is checked when a limiter is
/// [built](crate::Builder::build) from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimiterState {
    form: Versioned<Form>,
    /// Whether the state may be restored to other quotas.
    #[serde(skip)]
    converts: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Form {
    saved_at: WallTime,
    levels: Saved,
}

impl LimiterState {
    /// Returns when the state was saved, by the wall clock; `None` if another version of its form was read.
    pub fn saved_at(&self) -> Option<SystemTime> {
        self.form.0.as_ref().ok().map(|form| form.saved_at.time())
    }

    /// Allows to restore the state to other quotas. As with [`set_quota`](Limiter::set_quota), each quota keeps the
    /// tokens of the saved one with the same index, up to its burst, and a quota without a saved one starts full.
    #[must_use = "this returns the changed state"]
    pub fn convert(self) -> Self {
        Self { converts: true, ..self }
    }

    /// The supply of a limiter with `quotas` that continues from this state, after checking all of it.
    pub(crate) fn supply(
        &self,
        quotas: &[Quota],
        cap: Option<u64>,
        start: u64,
        now: SystemTime,
    ) -> Result<Supply, StateError> {
        let Form { saved_at, levels } = self.form.0.as_ref().map_err(Clone::clone)?;
        for (index, (quota, level)) in levels.quotas.iter().enumerate() {
            let part = || format!("quota {index}");
            quota.check().map_err(|_| StateError::Impossible { part: part(), value: quota.to_string() })?;
            check_level(level, quota, part())?;
        }
        if !self.converts {
            check_quotas(levels.quotas.iter().map(|(quota, _)| *quota), quotas)?;
        }
        Ok(Supply::restored(quotas, levels, cap, start, saved_at.offline(now)))
    }
}

impl Limiter {
    /// Returns the state of the limiter, to [restore](crate::Builder::restore) it in another process; see
    /// [`state`](crate::state). Waiters, classes and tokens in flight are not a part of it. A quota in dry run is saved as
    /// full.
    ///
    /// # Errors
    ///
    /// Returns [`StateError::Distributed`] for a distributed limiter: its store keeps the tokens.
    pub fn state(&self) -> Result<LimiterState, StateError> {
        self.save(SystemTime::now)
    }

    /// Like [`state`](Self::state), when the wall clock shows `wall_clock`: for tests, and for another source of time.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state`](Self::state).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Limiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Limiter::builder().quota(Quota::per_second(10)).clock(ManualClock::new());
    /// let limiter = builder.clone().build()?;
    /// let _grant = limiter.try_acquire(10)?;
    /// let state = limiter.state_at(UNIX_EPOCH)?;
    /// let restored = builder.restore(state, UNIX_EPOCH + Duration::from_millis(300)).build()?;
    /// assert_eq!(restored.available(), 3);
    /// # Ok(()) }
    /// ```
    pub fn state_at(&self, wall_clock: SystemTime) -> Result<LimiterState, StateError> {
        self.save(|| wall_clock)
    }

    fn save(&self, wall_clock: impl FnOnce() -> SystemTime) -> Result<LimiterState, StateError> {
        let levels = self.core().with(|state, rovers, _| state.saved(rovers)).ok_or(StateError::Distributed)?;
        // The wall clock last: the time between the two readings is then not taken for time offline.
        let form = Form { saved_at: WallTime::of(wall_clock()), levels };
        Ok(LimiterState { form: Versioned(Ok(form)), converts: false })
    }
}

/// Checks that a saved level is one that `quota` can have.
pub(crate) fn check_level(level: &SavedLevel, quota: &Quota, of: impl Display) -> Result<(), StateError> {
    level.impossible(quota).map_or(Ok(()), |(name, value)| {
        Err(StateError::Impossible { part: format!("{name} of {of}"), value: value.to_string() })
    })
}

/// Checks that both have the same quotas, apart from how full a bucket starts.
pub(crate) fn check_quotas(saved: impl Iterator<Item = Quota>, built: &[Quota]) -> Result<(), StateError> {
    let saved: Vec<Quota> = saved.collect();
    for index in 0..saved.len().max(built.len()) {
        let (saved, built) = (saved.get(index), built.get(index));
        if !saved.zip(built).is_some_and(|(saved, built)| saved.is_same_limit(built)) {
            let text = |quota: Option<&Quota>| quota.map_or("none".to_owned(), Quota::to_string);
            return Err(StateError::OtherQuota { index, saved: text(saved), built: text(built) });
        }
    }
    Ok(())
}
