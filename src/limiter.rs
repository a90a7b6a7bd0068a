//! The public methods of a limiter. They document and delegate; the algorithm lives in `core`.

mod changes;
mod view;

use crate::blocking;
use crate::consume::{Consume, ConsumeOwned};
use crate::core::replenisher::Replenisher;
use crate::deadline::Allowed;
use crate::error::{ConsumeError, ReleaseError, TryAcquireError};
use crate::grant::{Grant, OwnedGrant};
use crate::handle::{Handle, Limiter};
use crate::wait::Wait;
use std::fmt;
use std::time::Duration;

impl Limiter {
    /// Waits in the queue until `cost` tokens are available, and takes them.
    ///
    /// If the grant is not needed, use [`wait`](Self::wait), which returns none.
    ///
    /// The queue is strictly first come, first served. A caller's place counts from the first poll of the future.
    /// Small claims wait behind a large one, so a large claim never starves. A cost above the burst waits until enough
    /// tokens are minted. A cost of 0 is granted at once.
    ///
    /// [`within`](Consume::within) bounds the wait.
    ///
    /// # Runtimes
    ///
    /// A claim that has to wait relies on the tokio runtime of the context in which it is polled. The limiter spawns a
    /// background task (a driver) there, and that runtime must be driven. A runtime is driven in every one of its
    /// tasks and inside `Runtime::block_on`. It may not be driven where
    /// [`Handle::enter`](tokio::runtime::Handle::enter) is combined with an executor other than tokio's, such as
    /// `futures::executor::block_on`: a current_thread runtime that no thread drives runs no task, and the claim waits
    /// until another driver serves the queue. The limiter cannot detect this, because tokio does not report whether
    /// another thread drives the runtime. Use [`blocking_consume`](Self::blocking_consume) there, or spawn a
    /// [`replenisher`](Self::replenisher) on a runtime that is driven: each driver serves the whole queue.
    ///
    /// # Other executors
    ///
    /// On an executor other than tokio's (smol, async-std, `futures::executor`), keep one tokio runtime with a worker
    /// thread and enter it where the claims are polled. The limiter then starts its background task there:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// let timers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(5))?;
    ///
    /// let _entered = timers.enter(); // on each thread of the executor
    /// futures::executor::block_on(async { // or smol::block_on
    ///     for _ in 0..10 {
    ///         limiter.wait(1).within(Duration::from_secs(1)).await?; // 5 at once, then one each millisecond
    ///     }
    ///     Ok::<_, tollgate::ConsumeError>(())
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// Where the executor's threads cannot enter it (their guard is not `Send`), wrap the futures in
    /// [`async_compat::Compat`](https://docs.rs/async-compat), or spawn a [`replenisher`](Self::replenisher) on that
    /// runtime. From its first poll on, the replenisher serves every waiter on any executor; until then a claim that has
    /// to wait gets [`NoRuntime`](ConsumeError::NoRuntime). [`within`](Consume::within) works only where a runtime is
    /// entered, because its timer is tokio's.
    ///
    /// # Several runtimes
    ///
    /// Callers on several runtimes may wait for one limiter. One of its drivers, the lead, wakes at the exact instant
    /// of each grant; the other drivers wake later. If the runtime of the lead is alive but no longer driven, the next
    /// driver takes the lead's place about 10 ms after the instant that the lead missed. Each further driver that
    /// should have woken earlier and is not driven either adds 10 ms. (A driver computes its alarm from the number of
    /// drivers at that time, so it can be up to twice as late.) The queue pays this delay once. The delay loses no
    /// tokens: everything that fell due meanwhile is granted together.
    ///
    /// # Errors
    ///
    /// * [`TooLarge`](ConsumeError::TooLarge): the cost exceeds the in-flight cap, [`max_cost`](crate::Builder::max_cost),
    ///   the amount of a sliding quota, the burst of a distributed quota, or 2<sup>48</sup>.
    /// * [`Closed`](ConsumeError::Closed): the limiter is closed, or is closed during the wait.
    /// * [`QueueFull`](ConsumeError::QueueFull): `max_waiting` callers are already waiting.
    /// * [`NoRuntime`](ConsumeError::NoRuntime): the call would have to wait outside of a tokio runtime.
    /// * [`Unreachable`](ConsumeError::Unreachable), [`QuotaConflict`](ConsumeError::QuotaConflict): the quota is
    ///   distributed.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`Consume`]. A new call starts at the end of the queue.
    ///
    /// # Panics
    ///
    /// See [`Consume`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(5))?;
    /// for _ in 0..10 {
    ///     let _grant = limiter.consume(1).await?; // 5 at once, then one each millisecond
    ///     // ... the work ...
    /// } // with an in-flight cap, the end of the block releases the grant
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn consume(&self, cost: u64) -> Consume<'_> {
        Consume::new(self.core(), cost)
    }

    /// Waits like [`consume`](Self::consume), and returns no grant: for a limiter without an in-flight cap, where a
    /// grant holds nothing.
    ///
    /// Use `consume` for a limiter with [`max_in_flight`](crate::Builder::max_in_flight), and where the cost is
    /// [settled](Grant::settle) afterwards.
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume), and [`MustHold`](ConsumeError::MustHold), at once and always, if the limiter
    /// has an in-flight cap.
    ///
    /// # Cancel safety
    ///
    /// The same as [`consume`](Self::consume).
    ///
    /// # Panics
    ///
    /// See [`Consume`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(5))?;
    /// for _ in 0..10 {
    ///     limiter.wait(1).await?; // 5 at once, then one each millisecond
    /// }
    /// limiter.wait(1).within(Duration::from_millis(200)).await?;
    ///
    /// let capped = Limiter::builder().max_in_flight(5).build()?;
    /// assert_eq!(capped.wait(1).await, Err(ConsumeError::MustHold));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn wait(&self, cost: u64) -> Wait<Consume<'_>> {
        Wait::new(self.consume(cost), self.core().capped)
    }

    /// Waits like [`consume`](Self::consume), with a future and a grant that own the limiter, for spawned tasks.
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume).
    ///
    /// # Cancel safety
    ///
    /// The same as [`consume`](Self::consume).
    ///
    /// # Examples
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
        ConsumeOwned::new(self.into_scope(), cost)
    }

    /// Blocks the current thread until `cost` tokens are available, and takes them.
    ///
    /// The thread waits in the same queue as all other callers, and drives the queue itself while it waits. It needs
    /// no runtime, and does not rely on one that was entered with [`Handle::enter`](tokio::runtime::Handle::enter).
    ///
    /// Do not call this from an async task: it would block the runtime's thread. On a thread of a runtime with paused
    /// time it waits until that time is advanced by hand. [`blocking_consume_within`](Self::blocking_consume_within)
    /// bounds the wait.
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime), which it never returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(1))?;
    /// for _ in 0..3 {
    ///     let _grant = limiter.blocking_consume(1)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume(&self, cost: u64) -> Result<Grant<'_>, ConsumeError> {
        blocking::consume(self.core(), cost, Allowed::ANY, || ()).map(Grant::new)
    }

    /// Waits like [`blocking_consume`](Self::blocking_consume), for at most `allowed`; see [`Consume::within`].
    ///
    /// # Errors
    ///
    /// The same as [`blocking_consume`](Self::blocking_consume). Also [`TooLate`](ConsumeError::TooLate), at once, if
    /// the schedule says that the wait would be longer than `allowed`, and [`TimedOut`](ConsumeError::TimedOut) if it
    /// becomes longer for a reason that the schedule cannot foresee.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_hour(1))?;
    /// let _grant = limiter.blocking_consume_within(1, Duration::from_millis(200))?;
    /// let refusal = limiter.blocking_consume_within(1, Duration::from_millis(200)).unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume_within(&self, cost: u64, allowed: Duration) -> Result<Grant<'_>, ConsumeError> {
        blocking::consume(self.core(), cost, Allowed::at_most(allowed), || ()).map(Grant::new)
    }

    /// Takes `cost` tokens if they are available and no caller is waiting.
    ///
    /// It never waits and never overtakes a waiting caller. A refusal consumes nothing and allocates nothing.
    ///
    /// # Errors
    ///
    /// * [`Denied`](TryAcquireError::Denied): not now. The error says when to retry, how many tokens remain, and which
    ///   bound refused.
    /// * [`TooLarge`](TryAcquireError::TooLarge): the cost exceeds a burst (half of a distributed one), the in-flight
    ///   cap or [`max_cost`](crate::Builder::max_cost), so a retry would not help.
    /// * [`Closed`](TryAcquireError::Closed): the limiter is closed.
    /// * [`Unreachable`](TryAcquireError::Unreachable), [`QuotaConflict`](TryAcquireError::QuotaConflict): the quota is
    ///   distributed.
    ///
    /// # Exactness and speed
    ///
    /// On a burst of 64 or more, calls more frequent than about one per microsecond do not read the clock each time. Up
    /// to a 64th of the burst is then granted by one atomic operation per call. No token is ever granted early. Such a
    /// grant counts as made at the next reading of the clock, so a bucket that was full gains nothing until then: it
    /// can lose as many tokens, at most that 64th of the burst. Bursts below 64 always use the exact path.
    ///
    /// # Examples
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
    // Inlined always, like `Core::try_acquire`, which is nearly all of it.
    #[inline(always)]
    pub fn try_acquire(&self, cost: u64) -> Result<Grant<'_>, TryAcquireError> {
        Grant::acquire(self.core(), cost)
    }

    /// Like [`try_acquire`](Self::try_acquire), with a grant that owns the limiter: for adapters and spawned tasks.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, OwnedGrant, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(10)).max_in_flight(1).build()?;
    /// let grant: OwnedGrant = limiter.clone().try_acquire_owned(1)?;
    /// assert!(limiter.try_acquire(1).is_err());
    /// std::thread::spawn(move || drop(grant)).join().unwrap();
    /// assert!(limiter.try_acquire(1).is_ok());
    /// # Ok(()) }
    /// ```
    pub fn try_acquire_owned(self, cost: u64) -> Result<OwnedGrant, TryAcquireError> {
        OwnedGrant::acquire(self.into_scope(), cost)
    }

    /// Adds `tokens` by hand, up to the bursts, and serves the queue.
    ///
    /// The tokens go to the manual quotas if there are any, otherwise to all quotas but a distributed one. If the first
    /// waiter costs more than the burst, tokens accumulate up to its cost.
    ///
    /// # Examples
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
        self.core().with_batch(|state, rovers, _| state.replenish(rovers, tokens));
    }

    /// Releases `tokens` of grants that were [forgotten](Grant::forget), and serves the queue.
    ///
    /// # Errors
    ///
    /// Returns a [`ReleaseError`] if `tokens` is more than the forgotten grants hold, or if the limiter has no
    /// in-flight cap. Nothing changes then.
    ///
    /// # Examples
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
        self.core().release_owed(tokens)
    }

    /// Mints the tokens that are due now and serves the queue.
    ///
    /// This is one step of the background task. Only a limiter on a [manual clock](crate::ManualClock) needs it, and
    /// there it serves every waiter that is due. Where a background task serves the queue, this call wakes at most one
    /// batch of waiters and makes the task continue at once.
    ///
    /// # Examples
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
        self.core().tick();
    }

    /// Returns the background task (a driver), for callers that want to spawn it on a runtime of their choice.
    ///
    /// This is optional: the first waiter on each runtime spawns one.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1_000).burst(1))?;
    /// let task = tokio::spawn(limiter.replenisher());
    /// limiter.wait(2).await?;
    /// drop(limiter);
    /// task.await?; // it ends with the limiter
    /// # Ok(()) }
    /// ```
    pub fn replenisher(&self) -> Replenisher {
        Replenisher::new(self.core())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limiter").field(&self.snapshot()).finish()
    }
}
