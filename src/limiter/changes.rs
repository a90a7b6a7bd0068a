//! Changes by the operator: quotas, the in-flight cap, pauses, closing.

use crate::clock::whole_nanos;
use crate::error::ConfigError;
use crate::handle::Limiter;
use crate::quota::{Quota, check_cap};
use crate::which::Which;
use std::time::Duration;
use tokio::time::Instant;

impl Limiter {
    /// Changes a quota, selected by index or by name.
    ///
    /// Tokens that have accrued count at the old rate up to now and stay, up to the new burst; tokens above the new
    /// burst are discarded. All waiters are rescheduled at once. The `initial` value of the new quota is ignored.
    ///
    /// # What carries over
    ///
    /// Besides the whole tokens in the bucket there may be a part of the next token, or of the next step:
    /// | from | to | carries over |
    /// |---|---|---|
    /// | continuous | continuous | the fraction of a token that has accrued |
    /// | stepped | stepped, same period | the period boundaries stay where they were; a new amount arrives from the next one on |
    /// | stepped | stepped, another period | the elapsed share of the period: a third of the way through an hour, a new period of a day has 16 hours left |
    /// | manual | manual | nothing accrues |
    /// | sliding | sliding | the tokens in the window, instead of the level: each comes back one new period after its grant |
    /// | any | sliding | what is missing of the amount counts as granted now |
    /// | calendar | the same calendar | the period goes on |
    /// | any | calendar | the level: the amount comes when the next period begins |
    /// | any | any other kind of refill | nothing: the first token, or the first period, counts from this instant |
    ///
    /// Setting the same quota again, however often, therefore changes nothing. Each change to another period can lose
    /// as much as the new quota mints in a nanosecond, and never gains anything. A limiter that is switched between
    /// continuous, stepped and manual more often than tokens arrive receives no tokens.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownQuota`](ConfigError::UnknownQuota), or the error that says why the new quota is invalid.
    /// Nothing changes then. With classes also [`CeilingBelowBurst`](ConfigError::CeilingBelowBurst): the smallest burst
    /// would exceed that of a ceiling above a floor, which could not be kept then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder().quota_named("api", Quota::per_second(10)).build()?;
    /// limiter.set_quota("api", Quota::per_second(5))?;
    /// assert_eq!(limiter.available(), 5);
    /// assert!(limiter.set_quota(1, Quota::per_second(5)).is_err());
    /// # Ok(()) }
    /// ```
    pub fn set_quota<'q>(&self, which: impl Into<Which<'q>>, quota: Quota) -> Result<(), ConfigError> {
        let which = which.into();
        let core = self.core();
        core.with(|state, rovers, sample| {
            let changed = state.set_quota(rovers, which, quota);
            state.note_calendars(&core.time, sample.now);
            changed
        })
    }

    /// Puts a quota in [dry run](crate::Builder::dry_run), or enforces it again. `which` is its index or its name.
    ///
    /// A quota that goes into dry run holds back no waiter from then on. Its level and its queue go on in the
    /// simulation.
    ///
    /// A quota that is enforced again has the level of the simulation. All calls that passed in the meantime count,
    /// also those that would still wait: then the level is below zero, and new callers wait for as long as they would
    /// have waited, had the quota been enforced all the time. [`deficiency`](Self::deficiency) returns how many tokens
    /// are missing, and [`replenish`](Self::replenish) with that number cancels the debt, so that the bucket is empty.
    /// The simulated queue holds at most `max_waiting` callers.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if there is no such quota, or if a dry run of this limiter is
    /// [not supported](ConfigError::DryRunUnsupported).
    ///
    /// # Panics
    ///
    /// Panics if the limiter's [clock](crate::Clock) panics. Nothing has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_day(10)).dry_run().build()?;
    /// let _first = limiter.try_acquire(4)?;
    /// limiter.set_dry_run(0, false)?;
    /// assert_eq!(limiter.available(), 6);
    /// assert!(limiter.try_acquire(7).is_err());
    /// limiter.set_dry_run(0, true)?;
    /// let _second = limiter.try_acquire(7)?;
    /// assert_eq!(limiter.available(), 6, "it would have been refused");
    /// # Ok(()) }
    /// ```
    pub fn set_dry_run<'q>(&self, which: impl Into<Which<'q>>, dry_run: bool) -> Result<(), ConfigError> {
        self.core().set_dry_run(which.into(), dry_run)
    }

    /// Changes the in-flight cap.
    ///
    /// If the new cap is below the number of tokens in flight, no claim passes until enough tokens are released. A
    /// waiter that costs more than the cap blocks the queue until the cap is raised or the waiter is dropped, and so does
    /// [`grow_within`](crate::Grant::grow_within) that no longer fits beside its own grant.
    ///
    /// # Errors
    ///
    /// Returns [`NotCapped`](ConfigError::NotCapped) if the limiter was built without a cap, and
    /// [`BadMaxInFlight`](ConfigError::BadMaxInFlight) if the new cap is invalid.
    pub fn set_max_in_flight(&self, tokens: u64) -> Result<(), ConfigError> {
        check_cap(tokens)?;
        self.core().with(|state, rovers, _| state.set_max_in_flight(rovers, tokens))
    }

    /// Pauses the limiter for `duration` from now, for example after an upstream returned "429, retry after".
    ///
    /// No claim passes during the pause. Buckets continue to fill up to their bursts. A shorter pause never shortens a
    /// longer one. [`resume`](Self::resume) ends the pause early.
    pub fn pause_for(&self, duration: Duration) {
        self.core().with(|state, rovers, sample| state.pause_for(rovers, sample.now, whole_nanos(duration)));
    }

    /// Pauses the limiter until an instant of tokio's clock; see [`pause_for`](Self::pause_for). An instant in the
    /// past does nothing.
    pub fn pause_until(&self, instant: Instant) {
        self.pause_for(instant.saturating_duration_since(Instant::now()));
    }

    /// Ends a pause now, for example because a second upstream takes the requests. Does nothing if the limiter is not
    /// paused.
    ///
    /// Waiting callers are served from now on, by the levels and the rates of the quotas. A caller that was refused during
    /// the pause is not told.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_hour(1))?;
    /// limiter.pause_for(Duration::from_secs(600));
    /// assert!(limiter.try_acquire(1).is_err());
    /// limiter.resume();
    /// let _grant = limiter.try_acquire(1)?;
    /// # Ok(()) }
    /// ```
    pub fn resume(&self) {
        self.core().with(|state, rovers, _| state.end_pause(rovers));
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    ///
    /// If many callers wait, the background task refuses most of them right after this call has returned.
    pub fn close(&self) {
        self.core().close();
        self.core().close_children();
    }
}
