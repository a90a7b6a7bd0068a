//! The methods that read the state of a limiter.

use crate::core::classes::ROOT;
use crate::core::rovers::Rovers;
use crate::core::state::{Sample, State};
use crate::handle::Limiter;
use crate::snapshot::Snapshot;
use std::time::Duration;

impl Limiter {
    /// Returns how many tokens [`try_acquire`](Self::try_acquire) could take now: 0 while any caller waits. In a limiter
    /// with classes, callers that a ceiling holds back do not count. For a key under a parent, the parent counts too.
    pub fn available(&self) -> u64 {
        let core = self.core();
        let own = core.look_at(|state, rovers, sample| state.shown_available(rovers, ROOT, sample.now));
        core.parent().map_or(own, |parent| own.min(parent.available()))
    }

    /// Returns by how many tokens the claims exceed the supply: the tokens that waiters still lack, plus the debts
    /// left by [`settle`](crate::Grant::settle).
    pub fn deficiency(&self) -> u64 {
        self.core().look_at(|state, rovers, sample| state.shown_deficiency(rovers, sample.now))
    }

    /// Returns how long a [`consume`](Self::consume) of `cost` made now would wait according to the schedule.
    ///
    /// The result is exact if no waiter leaves the queue, no token is refunded or added, and no setting changes. It
    /// ignores the in-flight cap, because the time of a release is unknown. It is `None` if the time is unknown: only
    /// [`replenish`](Self::replenish) can help, the store of a distributed quota has not promised the tokens yet, a
    /// [joint claim](crate::join) waits in the queue, or any claim in that of a key under a parent, the cost can never be
    /// granted, or the instant is more than 584 years away.
    ///
    /// The running time does not grow with the queue, with one exception: behind a stepped quota next to other quotas,
    /// quotas with a burst below the cost of a waiter, and similar cases, the first call after a cancellation in the
    /// middle of the queue, a refund, or a change of the limiter takes one step per waiter. There each call does, while a cap
    /// holds back a caller that the quotas would let pass.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(Quota::per_minute(1).initial(0))?;
    /// let wait = limiter.estimate(2).unwrap();
    /// assert!(wait <= Duration::from_secs(120) && wait > Duration::from_secs(119));
    /// # Ok(()) }
    /// ```
    pub fn estimate(&self, cost: u64) -> Option<Duration> {
        let core = self.core();
        let estimate =
            |state: &mut State, rovers: &Rovers, sample: Sample| state.shown_estimate(rovers, cost, sample.now);
        let own = core.look_ahead(core.sample(), cost, estimate)?;
        core.parent().map_or(Some(own), |parent| parent.estimate_later(cost, own))
    }

    /// Returns true once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.core().look_at(|state, _, _| state.closed)
    }

    /// Returns a consistent picture of the limiter's state.
    ///
    /// It takes the lock. It adds no cost to other calls, because it reads the positions that the limiter keeps anyway.
    ///
    /// The call wakes at most one batch of waiters. If more are due because the background task is late, the snapshot
    /// shows the instant up to which the queue has been served, and the task continues at once.
    pub fn snapshot(&self) -> Snapshot {
        self.core().look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now))
    }
}
