//! The public verbs. They document and delegate; the algorithm lives in `core`, `state` and `supply`.

use crate::builder::{Builder, check_cap};
use crate::clock::whole_nanos;
use crate::consume::{Consume, ConsumeOwned};
use crate::core::Core;
use crate::core::replenisher::Replenisher;
use crate::error::{ConfigError, ConsumeError, ReleaseError, TryAcquireError};
#[cfg(any(feature = "tower", all(feature = "keyed", feature = "redis")))]
use crate::grant::OwnedGrant;
use crate::grant::{Grant, Permit};
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
    core: Arc<Core>,
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

    pub(crate) fn from_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn into_core(self) -> Arc<Core> {
        self.core
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Waits in line until `cost` tokens are there.
    ///
    /// The line is strictly first come, first served, counted from the first poll: small claims behind a large one
    /// wait, and a large one is never starved. A cost above the burst waits for as long as minting takes. A cost of 0
    /// is granted at once.
    ///
    /// [`within`](Consume::within) bounds the wait.
    ///
    /// # Runtimes
    ///
    /// A claim that has to wait relies on the tokio runtime in whose context it is polled: the limiter spawns a background task
    /// there, and that runtime must be driven. It is in every task, and inside `Runtime::block_on`. It may not be where
    /// [`Handle::enter`](tokio::runtime::Handle::enter) is combined with an executor that is not tokio's, such as
    /// `futures::executor::block_on`: a current_thread runtime that no thread drives runs no task, and the claim waits until
    /// another driver serves the queue. The limiter cannot detect this, since tokio does not tell whether another thread
    /// drives the runtime. Use [`blocking_consume`](Self::blocking_consume) there, or spawn a
    /// [`replenisher`](Self::replenisher) on a runtime that is driven: each driver serves the whole queue.
    ///
    /// Callers on several runtimes may wait for one limiter. One of its drivers, called the lead, wakes at the very instant of
    /// each grant, and the others wake later. If the runtime of the lead is alive but is not driven any more, the next driver
    /// takes its place some 10 ms after the instant that was missed, and 10 ms more for each further driver that should have
    /// woken before it and is not driven either. This delay is paid once, and delays no tokens: what fell due meanwhile is
    /// granted together. (A driver set its alarm by the number of drivers that there were then, up to twice this late.)
    ///
    /// # Errors
    ///
    /// * [`TooLarge`](ConsumeError::TooLarge): the cost exceeds the in-flight cap or 2<sup>48</sup>; of a quota that is
    ///   [shared](crate::Builder::distributed), also 16 bursts and what is minted in a minute, whichever is more.
    /// * [`Closed`](ConsumeError::Closed): the limiter is, or becomes, closed.
    /// * [`QueueFull`](ConsumeError::LineFull): `max_waiting` callers wait already.
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
        Consume::new(&self.core, cost)
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
        ConsumeOwned::new(self.core, cost)
    }

    /// [`consume`](Self::consume) for a thread without a runtime: blocks it until the tokens are there. It stands in
    /// the same line as everybody else, and drives the line while it waits.
    ///
    /// Do not call it from a task: it would hold up the runtime's thread. It needs no runtime, and does not rely on the one
    /// that was entered with [`Handle::enter`](tokio::runtime::Handle::enter), if there is one.
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
        blocking::consume(&*self.core, cost).map(Grant::new)
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
        let remaining = self.core.try_acquire(cost)?;
        Ok(Grant::new(Permit::new(&self.core, cost, remaining)))
    }

    /// [`try_acquire`](Self::try_acquire) whose grant holds the limiter itself.
    #[cfg(any(feature = "tower", all(feature = "keyed", feature = "redis")))]
    pub(crate) fn try_acquire_owned(self, cost: u64) -> Result<OwnedGrant, TryAcquireError> {
        let remaining = self.core.try_acquire(cost)?;
        Ok(OwnedGrant::new(Permit::new(self.core, cost, remaining)))
    }

    /// Whether nobody holds this limiter but who asks, and nothing would be lost with it.
    #[cfg(all(feature = "keyed", feature = "redis"))]
    pub(crate) fn is_spare(&self) -> bool {
        Arc::strong_count(&self.core) == 1 && self.core.is_at_rest()
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
        self.core.with_batch(|state, rovers, _| state.replenish(rovers, tokens));
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
        self.core.release_owed(tokens)
    }

    /// Mints what is due by now and serves the line: the replenisher's step, for your own hands. Only a limiter on a
    /// [manual clock](crate::ManualClock) needs it, and there it serves every waiter that is due. Where a background task
    /// serves the line, this wakes a batch of waiters at most and has the task go on at once.
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
        self.core.tick();
    }

    /// How many tokens [`try_acquire`](Self::try_acquire) could take now: 0 while anybody waits.
    pub fn available(&self) -> u64 {
        self.core.look_at(|state, rovers, _| state.available(rovers))
    }

    /// By how many tokens claims overrun what there is: what those in line still lack, and the debts left by
    /// [`settle`](Grant::settle).
    pub fn deficiency(&self) -> u64 {
        self.core.look_at(|state, rovers, _| state.deficiency(rovers))
    }

    /// How long a [`consume`](Self::consume) of `cost` made now would wait, by the schedule: exact if nobody leaves the
    /// line and nothing is changed. The in-flight cap is left out, since no clock can tell when others release. `None`
    /// if no clock can tell: only [`replenish`](Self::replenish) can help, a [joint claim](crate::join) waits in the line, the
    /// cost can never be granted, or the instant is beyond 584 years.
    ///
    /// The cost does not grow with the queue, with one exception: behind a stepped quota next to other quotas, quotas whose
    /// burst is below the cost of a waiter, and the like, the first call after a cancellation in the middle of the queue,
    /// a refund, or a change of the limiter takes a step per waiter.
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
        self.core.look_at(|state, rovers, sample| state.estimate(rovers, cost, sample.now))
    }

    /// Changes a quota, by index or by name. Tokens that have accrued count at the old rate up to now and stay, as far as
    /// the new burst; tokens above it are discarded. Waiters are timed anew at once. The new quota's `initial` is ignored.
    ///
    /// # What carries over
    ///
    /// Beside the whole tokens in the bucket there may be a part of the next one, or of the next step:
    ///
    /// | from | to | carries over |
    /// |---|---|---|
    /// | continuous | continuous | the fraction of a token that has accrued |
    /// | stepped | stepped, same period | the period boundaries stay where they were; a new amount arrives from the next one on |
    /// | stepped | stepped, another period | the share of the period that has passed: after a third of an hour's period, a day's has 16 hours left |
    /// | manual | manual | nothing is on its way |
    /// | any | another way of refilling | nothing: the first token, or the first period, is counted from this instant |
    ///
    /// So setting the same quota again, however often, changes nothing. Each change to another period can lose as much as
    /// the new quota brings in a nanosecond, and never gains anything. A limiter that is switched between
    /// continuous, stepped and manual more often than tokens arrive receives none.
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
        self.core.with(|state, rovers, _| state.set_quota(rovers, which, quota))
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
        self.core.with(|state, rovers, _| state.set_max_in_flight(rovers, tokens))
    }

    /// Lets nobody pass for `duration` from now: after an upstream said "429, retry after". Buckets go on filling up to
    /// their bursts. A shorter pause never shortens a longer one.
    pub fn pause_for(&self, duration: Duration) {
        self.core.with(|state, rovers, sample| {
            state.pause_until(rovers, sample.now.saturating_add(whole_nanos(duration)));
        });
    }

    /// [`pause_for`](Self::pause_for) until an instant of tokio's clock. An instant that has passed does nothing.
    pub fn pause_until(&self, instant: Instant) {
        self.pause_for(instant.saturating_duration_since(Instant::now()));
    }

    /// Ends it: every waiter and every later caller gets `Closed`. Grants already out stay valid.
    ///
    /// Where many wait, the background task turns most of them away, right after this has returned.
    pub fn close(&self) {
        self.core.close();
        #[cfg(feature = "keyed")]
        self.core.close_children();
    }

    /// True once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.core.look_at(|state, _, _| state.closed)
    }

    /// A consistent picture of everything. Takes the lock; costs the others nothing: the rovers are the counters.
    ///
    /// Wakes a batch of waiters at most. If more are due, because the background task is late, the picture is that of the
    /// instant up to which the line has been served; the task goes on at once.
    pub fn snapshot(&self) -> Snapshot {
        self.core.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now))
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
        Replenisher::new(self.core.weak())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limiter").field(&self.snapshot()).finish()
    }
}
