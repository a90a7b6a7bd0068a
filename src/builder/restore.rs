//! Building a limiter that continues from a saved state.

use super::Builder;
use crate::state::LimiterState;
use std::time::SystemTime;

impl Builder {
    /// Continues from `state`, when the wall clock shows `wall_clock`: the buckets are as full as when the state was
    /// saved, plus what the time between has refilled; see [`state`](crate::state). Manual quotas gain nothing. Whether a
    /// calendar quota has begun a new period is asked of the limiter's clock, not of `wall_clock`.
    ///
    /// [`build`](Self::build) then fails with a [`StateError`](crate::state::StateError) if the state has another
    /// version or an impossible value, or if the quotas are not those of the state, in the same order, unless the state
    /// [converts](LimiterState::convert). The in-flight cap, the bound on waiters and the names may differ.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_hour(10))?;
    /// let _grant = limiter.try_acquire(7)?;
    /// let state = limiter.state()?;
    /// let other = Limiter::builder().quota(Quota::per_hour(2));
    /// let error = other.clone().restore(state.clone(), SystemTime::now()).build().unwrap_err();
    /// assert!(error.to_string().starts_with("quota 0 was `10/h` when the state was saved and is `2/h` now"));
    /// let restored = other.restore(state.convert(), SystemTime::now()).build()?;
    /// assert_eq!(restored.available(), 2);
    /// # Ok(()) }
    /// ```
    pub fn restore(mut self, state: LimiterState, wall_clock: SystemTime) -> Self {
        self.set_twice.set("restore", &mut self.restore, (state, wall_clock));
        self
    }
}
