//! The limiter's builder. Every check of a configuration is in `builder/build.rs` or in `Quota::check`.

mod build;
#[cfg(feature = "state")]
mod restore;

use crate::clock::{Chosen, Clock};
use crate::core::Core;
use crate::core::source::{RequestTask, Source};
use crate::error::{ConfigError, QuotaError};
use crate::handle::Limiter;
use crate::observe::Observers;
use crate::quota::Quota;
use crate::set_twice::SetTwice;
#[cfg(feature = "state")]
use crate::state::LimiterState;
use crate::which::Which;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "state")]
use std::time::SystemTime;

/// Configures a [`Limiter`]; created by [`Limiter::builder`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// use tollgate::{Limiter, Quota};
/// let limiter = Limiter::builder()
///     .quota(Quota::per_second(10))
///     .quota_named("minute", Quota::per_minute(200))
///     .max_in_flight(50)
///     .max_waiting(10_000)
///     .build()?;
/// # let _ = limiter; Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    quotas: Vec<Quota>,
    names: Vec<Option<Arc<str>>>,
    max_in_flight: Option<u64>,
    max_waiting: Option<u64>,
    max_cost: Option<u64>,
    clock: Option<Chosen>,
    rovers_at: u64,
    stride: Option<u64>,
    fine: bool,
    classes: bool,
    dry_run: DryRunOf,
    observers: Observers,
    set_twice: SetTwice,
    /// The state to continue from, and the present time of the wall clock.
    #[cfg(feature = "state")]
    restore: Option<(LimiterState, SystemTime)>,
    /// Suppliers of external tokens, each with the index of the quota that was added last before it; `None` if there
    /// was none.
    suppliers: Vec<(Option<usize>, Arc<dyn Supplier>)>,
}

/// Which quotas are in dry run.
#[derive(Clone, Debug, Default)]
struct DryRunOf {
    all: bool,
    indices: Vec<usize>,
    names: Vec<Box<str>>,
}

impl DryRunOf {
    fn any(&self) -> bool {
        self.all || !self.indices.is_empty() || !self.names.is_empty()
    }

    fn each(&self) -> impl Iterator<Item = Which<'_>> {
        self.indices.iter().map(|index| Which::Index(*index)).chain(self.names.iter().map(|name| Which::Name(name)))
    }
}

/// Supplies one quota with tokens from outside of the limiter.
pub(crate) trait Supplier: fmt::Debug + Send + Sync {
    /// Creates the source of tokens for the checked `quota`.
    fn source(&self, quota: &Quota, has_classes: bool) -> Result<Box<dyn Source>, QuotaError>;
    /// The background task that requests tokens for `core`.
    fn task(&self, core: &Arc<Core>) -> RequestTask;
}

impl Limiter {
    /// Creates a limiter with one quota and the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid.
    ///
    /// # Examples
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

    /// Returns a builder, to set several quotas, an in-flight cap, a bound on the queue, or another clock.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Adds a quota. Each grant takes its cost from all quotas, or from none.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(None);
        self
    }

    /// Adds a quota with a name. Refusals by this quota [carry the name](crate::Denied::quota_name), and
    /// [`set_quota`](Limiter::set_quota) accepts it.
    ///
    /// Names are for a fixed set of quotas: each distinct name stays in memory for the life of the process, once, however
    /// often it is used. Do not make names from input. Users, hosts or API keys are the keys of a keyed limiter, in
    /// which the quotas of all keys have the same names. Once all names take a megabyte, refusals leave out new ones and
    /// tell the index of the quota alone.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota, TryAcquireError};
    /// let limiter = Limiter::builder()
    ///     .quota_named("second", Quota::per_second(10))
    ///     .quota_named("day", Quota::per_day(5))
    ///     .build()?;
    /// let _grant = limiter.try_acquire(5)?;
    /// let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(1) else { panic!("a day has passed") };
    /// assert_eq!(denied.quota_name(), Some("day"));
    /// assert!(denied.to_string().starts_with("denied by quota `day`, 0 tokens remain: retry after"));
    /// # Ok(()) }
    /// ```
    pub fn quota_named(mut self, name: impl AsRef<str>, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(Some(name.as_ref().into()));
        self
    }

    /// Makes the tokens of the last quota come from `supplier`.
    #[cfg(feature = "distributed")]
    pub(crate) fn supplied(mut self, supplier: Arc<dyn Supplier>) -> Self {
        self.suppliers.push((self.quotas.len().checked_sub(1), supplier));
        self
    }

    /// Reports waits and refusals to `observers`, which the limiters of all keys share.
    #[cfg(all(feature = "keyed", feature = "distributed"))]
    pub(crate) fn observed_by(self, observers: Observers) -> Self {
        Self { observers, ..self }
    }

    /// Caps the tokens in flight: the tokens of all grants that are not dropped yet.
    ///
    /// The cap delays the queue and discards nothing: tokens minted meanwhile are kept up to the burst.
    ///
    /// A limiter may have a cap and no quota: it then limits how much runs at once, in FIFO order, and no rate.
    /// [`available`](Limiter::available) is the cap less the tokens in flight, [`estimate`](Limiter::estimate) is zero
    /// (or the rest of a pause), the [snapshot](Limiter::snapshot) has no quotas, and [`set_quota`](Limiter::set_quota)
    /// finds none.
    ///
    /// # Examples
    ///
    /// Keep the grant for as long as the work lasts; dropping it is the release.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::Limiter;
    /// let limiter = Limiter::builder().max_in_flight(2).build()?;
    /// let first = limiter.consume(1).await?;
    /// let _second = limiter.consume(1).await?;
    /// assert!(limiter.try_acquire(1).is_err());
    /// drop(first); // the release
    /// assert_eq!(limiter.available(), 1);
    /// # Ok(()) }
    /// ```
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.set_twice.set("max_in_flight", &mut self.max_in_flight, tokens);
        self
    }

    /// Refuses further waiters once this many callers are waiting; 0 refuses every caller that would have to wait.
    pub fn max_waiting(mut self, callers: u64) -> Self {
        self.set_twice.set("max_waiting", &mut self.max_waiting, callers);
        self
    }

    /// Refuses costs above `tokens` with `TooLarge`, so that a caller with a cost of any size, such as a length that a client
    /// has sent, cannot block the queue. There is no such bound by default: a cost may be up to 2<sup>48</sup> tokens.
    ///
    /// A grant that is [settled](crate::Grant::settle) for more is charged `tokens` in all; what it cost is known only when
    /// nothing can be refused any more.
    ///
    /// With this setting, each call takes the limiter's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Bound, ConsumeError, Limiter, Quota};
    /// let limiter = Limiter::builder().quota(Quota::per_second(100)).max_cost(1_000).build()?;
    /// let refusal = limiter.consume(1 << 40).await.unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLarge { most: 1_000, by: Some(Bound::MaxCost), .. }));
    /// let mut grant = limiter.consume(1).await?;
    /// grant.settle(u64::MAX);
    /// assert_eq!(grant.cost(), 1_000);
    /// # Ok(()) }
    /// ```
    pub fn max_cost(mut self, tokens: u64) -> Self {
        self.set_twice.set("max_cost", &mut self.max_cost, tokens);
        self
    }

    /// Lets the limiter have [classes](crate::Class), made with [`Limiter::class`]: each has a queue and a share of the
    /// tokens of its own.
    ///
    /// Claims of a limiter with classes are paid in installments of at most the smallest burst, so that a large claim
    /// does not hold up the other classes. Claims made on the limiter itself wait in a class of their own, of weight 1.
    /// While no claim waits, a claim on the limiter itself costs the same as without classes; one in a class takes the
    /// limiter's lock.
    ///
    /// While claims wait in one class only, and no ceiling is above it, a limiter with one quota that is refilled
    /// continuously grants at the same instants as one without classes. With several quotas, or stepped ones, a claim
    /// above the smallest burst can be granted later.
    ///
    /// With `distributed`, a class has its share of what all nodes receive, whichever nodes its callers are on. Such classes
    /// have neither floors nor ceilings, cannot be the parent of a keyed limiter and take no part in
    /// [joint claims](crate::join). The calls that find many waiters due serve all of them, instead of leaving most of them
    /// to the background task. Each installment costs some work, so a burst should be at least a
    /// millisecond's tokens; docs/classes.md lists what each call costs.
    pub fn classes(mut self) -> Self {
        self.classes = true;
        self
    }

    /// Puts all quotas of this limiter in dry run: they hold back no caller, and report what they would have done.
    ///
    /// Each call is also made on a simulation of this limiter in which all quotas are enforced. The simulation has its
    /// own levels and its own queue, and its verdict on a call is exact to the nanosecond:
    /// [`Grant::would_have_waited`](crate::Grant::would_have_waited) and
    /// [`Grant::would_have_been_refused`](crate::Grant::would_have_been_refused) return it, and
    /// [`Snapshot::dry_run`](crate::Snapshot::dry_run), metrics and tracing report it. Switch with
    /// [`Limiter::set_dry_run`] while calls are made; no level is lost.
    ///
    /// With [`dry_run_quota`](Self::dry_run_quota) only some quotas are in dry run. The others grant, delay and refuse
    /// exactly as they do without it.
    ///
    /// # What each call and setting does in dry run
    ///
    /// * `consume` would have waited for as long as the schedule says when it arrives. It would have been refused if the
    ///   wait is longer than `within` allows, or if the simulated queue holds `max_waiting` callers. It holds at most
    ///   65,536, whatever `max_waiting` is.
    /// * `try_acquire` would have been refused if it finds too few tokens, a queue, or a cost above the burst.
    /// * A call that would have been refused takes no tokens in the simulation, and settling its grant changes nothing
    ///   there. (It does change the quotas that are enforced by then: a refund those that gave the tokens, a charge all.)
    /// * `available`, `deficiency`, `estimate`, `Grant::remaining` and the levels of the snapshot are those of the
    ///   simulation.
    /// * `settle`, `replenish`, `pause_for` and `set_quota` also act on the simulation, at the instant of the call. A
    ///   verdict that was given before stays as it was; the verdicts of later calls include the change.
    /// * A call that an enforced quota, the cap, a pause or `max_waiting` refuses is not made on the simulation, and a
    ///   `consume` that is dropped while one of them holds it back leaves the simulation too.
    /// * `max_in_flight`, `max_waiting`, pauses and `close` are no quotas, so they stay enforced. The cap is left out of
    ///   the simulation, as it is left out of [`estimate`](Limiter::estimate).
    /// * If the wait depends on a manual quota, it is unknown.
    ///
    /// With a quota in dry run, each call takes the limiter's lock. A limiter without such quotas pays nothing.
    ///
    /// # What cannot be in dry run
    ///
    /// | | error | instead |
    /// |---|---|---|
    /// | a limiter with [`classes`](Self::classes) | [`DryRunUnsupported`] | try the quota on one without classes |
    /// | a distributed limiter | [`DryRunUnsupported`] | try the quota in one process, without a store |
    /// | the parent of a keyed limiter, and its keys | [`DryRunUnsupported`] | try the quota without the parent |
    /// | a limiter with only a cap | [`DryRunUnsupported`] | add the quota to try: the cap stays enforced |
    /// | a limiter in which a joint claim waits | [`DryRunUnsupported`] of `set_dry_run` | try again when none waits |
    /// | a [joint claim](crate::join) from a limiter in dry run | [`JoinError::InDryRun`] | claim from that limiter alone |
    ///
    /// [`DryRunUnsupported`]: ConfigError::DryRunUnsupported
    /// [`JoinError::InDryRun`]: crate::JoinError::InDryRun
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Bound, Limiter, ManualClock, Quota};
    /// let builder = Limiter::builder().quota(Quota::per_second(10).burst(2)).clock(ManualClock::new());
    /// let limiter = builder.dry_run().build()?;
    ///
    /// let waits = [0, 0, 100, 200].map(Duration::from_millis);
    /// for wait in waits {
    ///     let grant = limiter.consume(1).await?; // at once
    ///     assert_eq!(grant.would_have_waited(), Some(wait));
    /// }
    /// let grant = limiter.try_acquire(1)?;
    /// assert_eq!(grant.would_have_been_refused(), Some(Bound::Queue));
    ///
    /// limiter.set_dry_run(0, false)?; // from now on it is enforced, with its level
    /// assert_eq!(limiter.estimate(1), Some(Duration::from_millis(300)));
    /// assert!(limiter.try_acquire(1).is_err());
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.dry_run.all = true;
        self
    }

    /// Puts one quota in [dry run](Self::dry_run), by its index or its name. It may be added before or after this call.
    ///
    /// # Examples
    ///
    /// A second quota is tried out beside one that stays enforced.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Bound, Limiter, Quota};
    /// let limiter = Limiter::builder()
    ///     .quota_named("second", Quota::per_second(100))
    ///     .quota_named("day", Quota::per_day(50))
    ///     .dry_run_quota("day")
    ///     .build()?;
    /// let _first = limiter.try_acquire(50)?;
    /// let second = limiter.try_acquire(50)?;
    /// assert_eq!(second.would_have_been_refused(), Some(Bound::Quota(1)));
    /// assert!(limiter.try_acquire(50).is_err(), "the quota per second is enforced");
    /// # Ok(()) }
    /// ```
    pub fn dry_run_quota<'q>(mut self, which: impl Into<Which<'q>>) -> Self {
        match which.into() {
            Which::Index(index) => self.dry_run.indices.push(index),
            Which::Name(name) => self.dry_run.names.push(name.into()),
        }
        self
    }

    /// Reads the time from `clock` instead of tokio's clock. [`Clock`] says what the clocks do while the machine is
    /// suspended, and when the system's clock is set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.set_twice.set("clock", &mut self.clock, Chosen::new(clock));
        self
    }

    /// Serves waiters closer to the instants of the schedule, with the operating system's timer. Linux only.
    ///
    /// tokio's timers work in steps of a millisecond; with this timer waiters are served a fraction of a millisecond
    /// late (see docs/BENCHMARKS.md). On other systems this setting changes nothing. Needs the feature `fine-timer`.
    ///
    /// The timer is one open file per limiter and per runtime on which callers have waited. Nothing else changes:
    /// neither the rate, nor the order, nor paused time, during which this timer is not used. The setting affects
    /// callers on runtimes only: [`blocking_consume`](Limiter::blocking_consume) is as precise without it, and
    /// [`within`](crate::Consume::within) gives up by tokio's timer.
    ///
    /// The price is CPU time, because the driver looks at the queue more often, and most of each look is spent in the
    /// operating system. When several callers wait, everything that falls due within 0.4 ms is served together, so a
    /// limiter looks at most 2,500 times per second; with tokio's timer it looks up to 1,000 times per second. The
    /// measured CPU time per grant is in docs/BENCHMARKS.md.
    ///
    /// The runtime needs `enable_io`, which `enable_all` and `#[tokio::main]` include. Without it tokio panics; the
    /// limiter catches that panic, which is still printed, and uses tokio's timer. It also uses tokio's timer when no
    /// more files can be opened. In a program built with `panic = "abort"` the panic ends the process.
    ///
    /// In a test that pauses time while callers wait, the first of them can be served 20 ms later than the schedule
    /// says.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::builder().quota(Quota::per_second(10_000).burst(1)).fine_timer().build()?;
    /// for _ in 0..10 {
    ///     limiter.wait(1).await?; // each 0.1 ms, one by one
    /// }
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "fine-timer")]
    pub fn fine_timer(mut self) -> Self {
        self.fine = true;
        self
    }

    /// Starts the positions of the limiter at `position` instead of 0, to test that they wrap.
    #[doc(hidden)]
    pub fn rovers_at(mut self, position: u64) -> Self {
        self.rovers_at = position;
        self
    }

    /// Fixes the stride of the fast path, which otherwise adapts. 0 makes every call exact.
    #[doc(hidden)]
    pub fn stride(mut self, tokens: u64) -> Self {
        self.stride = Some(tokens);
        self
    }
}
