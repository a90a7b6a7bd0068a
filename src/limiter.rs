//! The public verbs. They document and delegate; the algorithm lives in `shared`, `state` and `supply`.

use crate::builder::{Builder, check_cap};
use crate::clock::whole_nanos;
use crate::consume::{Consume, ConsumeOwned};
use crate::error::{ConfigError, ConsumeError, ReleaseError, TryAcquireError};
#[cfg(any(feature = "tower", all(feature = "keyed", feature = "redis")))]
use crate::grant::OwnedGrant;
use crate::grant::{Grant, Permit};
use crate::replenisher::Replenisher;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::{Quota, Which, blocking};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A waiting rate limiter: one fair line in front of a shared token bucket.
///
/// Cheap to clone; clones share everything. See the [crate's front page](crate) for a tour.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

impl Limiter {
    /// A limiter of one quota, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota makes no sense.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(Quota::per_second(100).burst(20))?;
    /// assert_eq!(limiter.available(), 20);
    /// # Ok(()) }
    /// ```
    pub fn new(quota: Quota) -> Result<Self, ConfigError> {
        Self::builder().quota(quota).build()
    }

    /// A limiter of several quotas, an in-flight cap, a bounded line, or another clock.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn into_shared(self) -> Arc<Shared> {
        self.shared
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Waits in line until `cost` tokens are there.
    ///
    /// The line is strictly first come, first served, counted from the first poll: small claims behind a large one
    /// wait, and a large one is never starved. A cost above the burst waits for as long as minting takes. A cost of 0
    /// is granted at once.
    ///
    /// [`within`](Consume::within) bounds the wait.
    ///
    /// # Errors
    ///
    /// * [`TooLarge`](ConsumeError::TooLarge): the cost exceeds the in-flight cap or 2<sup>48</sup>; of a quota that is
    ///   [shared](crate::Builder::shared), also 16 bursts and what is minted in a minute, whichever is more.
    /// * [`Closed`](ConsumeError::Closed): the limiter is, or becomes, closed.
    /// * [`LineFull`](ConsumeError::LineFull): `max_waiting` callers wait already.
    /// * [`NoRuntime`](ConsumeError::NoRuntime): it would have to wait outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`Consume`]. Dropped and called again, it stands at the end of the
    /// line.
    ///
    /// # Panics
    ///
    /// See [`Consume`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(5))?;
    /// for _ in 0..10 {
    ///     limiter.consume(1).await?; // 5 at once, then one each millisecond
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn consume(&self, cost: u64) -> Consume<'_> {
        Consume::new(&self.shared, cost)
    }

    /// [`consume`](Self::consume) that holds the limiter itself, for spawned tasks.
    ///
    /// # Errors
    ///
    /// As [`consume`](Self::consume).
    ///
    /// # Cancel safety
    ///
    /// As [`consume`](Self::consume).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::builder().quota(Quota::per_second(100)).max_in_flight(10).build()?;
    /// let grant = limiter.clone().consume_owned(3).await?;
    /// tokio::spawn(async move {
    ///     // ... work ...
    ///     drop(grant); // the release
    /// })
    /// .await?;
    /// assert_eq!(limiter.snapshot().in_flight, Some(0));
    /// # Ok(()) }
    /// ```
    pub fn consume_owned(self, cost: u64) -> ConsumeOwned {
        ConsumeOwned::new(self.shared, cost)
    }

    /// [`consume`](Self::consume) for a thread without a runtime: blocks it until the tokens are there. It stands in
    /// the same line as everybody else, and drives the line while it waits.
    ///
    /// Do not call it from a task: it would hold up the runtime's thread.
    ///
    /// # Errors
    ///
    /// As [`consume`](Self::consume), but never [`NoRuntime`](ConsumeError::NoRuntime).
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(1))?;
    /// for _ in 0..3 {
    ///     limiter.blocking_consume(1)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume(&self, cost: u64) -> Result<Grant<'_>, ConsumeError> {
        blocking::consume(&*self.shared, cost).map(Grant::new)
    }

    /// Takes `cost` tokens if they are there and nobody waits; never waits, never overtakes.
    ///
    /// # Errors
    ///
    /// * [`Denied`](TryAcquireError::Denied): not now; it says when, what is left, and which bound refused.
    /// * [`TooLarge`](TryAcquireError::TooLarge): the cost exceeds a burst or the in-flight cap, so that no wait would
    ///   help.
    /// * [`Closed`](TryAcquireError::Closed): the limiter was closed.
    ///
    /// A refusal consumes nothing and allocates nothing.
    ///
    /// # Exactness and speed
    ///
    /// Called faster than about once a microsecond, on a burst of 64 or more, it does not read the clock each time:
    /// up to a 64th of the burst is then handed out by one atomic operation each. Never is a token granted early; up to
    /// that 64th can be granted one call late. Bursts below 64 never leave the exact path.
    ///
    /// ```
    /// use tollgate::{Bound, Limiter, Quota, TryAcquireError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_minute(60).burst(3))?;
    /// let grant = limiter.try_acquire(2)?;
    /// assert_eq!(grant.remaining(), 1);
    /// match limiter.try_acquire(2) {
    ///     Err(TryAcquireError::Denied(denied)) => {
    ///         assert_eq!((denied.remaining, denied.by), (1, Bound::Quota(0)));
    ///         assert!(denied.retry_after.unwrap() <= std::time::Duration::from_secs(1));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn try_acquire(&self, cost: u64) -> Result<Grant<'_>, TryAcquireError> {
        let remaining = self.shared.try_acquire(cost)?;
        Ok(Grant::new(Permit::new(&self.shared, cost, remaining)))
    }

    /// [`try_acquire`](Self::try_acquire) whose grant holds the limiter itself.
    #[cfg(any(feature = "tower", all(feature = "keyed", feature = "redis")))]
    pub(crate) fn try_acquire_owned(self, cost: u64) -> Result<OwnedGrant, TryAcquireError> {
        let remaining = self.shared.try_acquire(cost)?;
        Ok(OwnedGrant::new(Permit::new(self.shared, cost, remaining)))
    }

    /// Whether nobody holds this limiter but who asks, and nothing would be lost with it.
    #[cfg(all(feature = "keyed", feature = "redis"))]
    pub(crate) fn is_spare(&self) -> bool {
        Arc::strong_count(&self.shared) == 1 && self.shared.is_at_rest()
    }

    /// Adds `tokens` by hand, as far as the bursts, and serves the line: to the manual quotas if there are any, else to
    /// all. A front waiter that costs more than the burst may save up to its cost.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(Quota::manual(10).initial(0))?;
    /// limiter.replenish(25);
    /// assert_eq!(limiter.available(), 10);
    /// # Ok(()) }
    /// ```
    pub fn replenish(&self, tokens: u64) {
        self.shared.with(|state, rovers, _| state.replenish(rovers, tokens));
    }

    /// Releases `tokens` of grants that were [forgotten](Grant::forget), and serves the line.
    ///
    /// # Errors
    ///
    /// A [`ReleaseError`] for more than is owed, or without an in-flight cap; nothing moves then.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(100)).max_in_flight(10).build()?;
    /// limiter.try_acquire(10)?.forget();
    /// assert_eq!(limiter.available(), 0);
    /// limiter.release(4)?;
    /// assert_eq!(limiter.available(), 4);
    /// assert!(limiter.release(7).is_err());
    /// # Ok(()) }
    /// ```
    pub fn release(&self, tokens: u64) -> Result<(), ReleaseError> {
        self.shared.release_owed(tokens)
    }

    /// Mints what is due by now and serves the line: the replenisher's step, for your own hands. Only a limiter on a
    /// [manual clock](crate::ManualClock) needs it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let clock = ManualClock::new();
    /// let limiter =
    ///     Limiter::builder().quota(Quota::per_second(10).initial(0)).clock(clock.clone()).build()?;
    /// let mut waiting = tokio_test::task::spawn(limiter.consume(1));
    /// assert!(waiting.poll().is_pending());
    /// clock.advance(Duration::from_millis(100));
    /// limiter.tick();
    /// assert!(waiting.is_woken() && waiting.poll().is_ready());
    /// # Ok(()) }
    /// ```
    pub fn tick(&self) {
        self.shared.tick();
    }

    /// How many tokens [`try_acquire`](Self::try_acquire) could take now: 0 while anybody waits.
    pub fn available(&self) -> u64 {
        self.shared.look_at(|state, rovers, _| state.available(rovers))
    }

    /// By how many tokens claims overrun what there is: what those in line still lack, and the debts left by
    /// [`settle`](Grant::settle).
    pub fn deficiency(&self) -> u64 {
        self.shared.look_at(|state, rovers, _| state.deficiency(rovers))
    }

    /// How long a [`consume`](Self::consume) of `cost` made now would wait, by the schedule: exact if nobody leaves the
    /// line and nothing is changed. The in-flight cap is left out, since no clock can tell when others release. `None`
    /// if no clock can tell: only [`replenish`](Self::replenish) can help, a [joint claim](crate::join) waits in the line, the
    /// cost can never be granted, or the instant is beyond 584 years.
    ///
    /// With several quotas, stepped ones, or during a pause, this takes a step per waiter.
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
        self.shared.look_at(|state, rovers, sample| state.estimate(rovers, cost, sample.now))
    }

    /// Changes a quota, by index or by name. What has accrued counts at the old rate up to now and stays, as far as the
    /// new burst; what is above it burns. Waiters are timed anew at once. The new quota's `initial` is not looked at.
    ///
    /// # Errors
    ///
    /// [`UnknownQuota`](ConfigError::UnknownQuota), or what is wrong with the new one; nothing changes then.
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
        self.shared.with(|state, rovers, _| state.set_quota(rovers, which, quota))
    }

    /// Changes the in-flight cap. Below what is in flight, nobody passes until enough was released; a waiter that costs
    /// more than the cap holds the line up until the cap is raised or the waiter leaves.
    ///
    /// # Errors
    ///
    /// [`NotCapped`](ConfigError::NotCapped) if the limiter was built without a cap, and
    /// [`BadMaxInFlight`](ConfigError::BadMaxInFlight).
    pub fn set_max_in_flight(&self, tokens: u64) -> Result<(), ConfigError> {
        check_cap(tokens)?;
        self.shared.with(|state, rovers, _| state.set_max_in_flight(rovers, tokens))
    }

    /// Lets nobody pass for `duration` from now: after an upstream said "429, retry after". Buckets go on filling up to
    /// their bursts. A shorter pause never shortens a longer one.
    pub fn pause_for(&self, duration: Duration) {
        self.shared.with(|state, rovers, sample| {
            state.pause_until(rovers, sample.now.saturating_add(whole_nanos(duration)));
        });
    }

    /// [`pause_for`](Self::pause_for) until an instant of tokio's clock. An instant that has passed does nothing.
    pub fn pause_until(&self, instant: Instant) {
        self.pause_for(instant.saturating_duration_since(Instant::now()));
    }

    /// Ends it: every waiter and every later caller gets `Closed`. Grants already out stay valid.
    pub fn close(&self) {
        self.shared.with(|state, rovers, _| state.close(rovers));
        #[cfg(feature = "keyed")]
        self.shared.close_tenants();
    }

    /// True once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.shared.look_at(|state, _, _| state.closed)
    }

    /// A consistent picture of everything. Takes the lock; costs the others nothing: the rovers are the counters.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now))
    }

    /// The background task, for those who want to spawn it themselves, on a runtime of their choice. Nobody has to: the
    /// first waiter of each runtime spawns one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(1))?;
    /// let task = tokio::spawn(limiter.replenisher());
    /// limiter.consume(2).await?;
    /// drop(limiter);
    /// task.await?; // it ends with the limiter
    /// # Ok(()) }
    /// ```
    pub fn replenisher(&self) -> Replenisher {
        Replenisher::new(self.shared.weak())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limiter").field(&self.snapshot()).finish()
    }
}
