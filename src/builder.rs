//! The limiter's builder. Every check of a configuration is here or in `Quota::check`.

use crate::clock::{Chosen, Clock, Time};
use crate::core::Core;
use crate::core::rovers::Rovers;
use crate::core::state::State;
use crate::core::supply::Supply;
#[cfg(feature = "distributed")]
use crate::distributed::{Outage, QuotaTerms, RefillHandle, RefillPlanner, Store};
use crate::error::ConfigError;
use crate::observe::Observers;
use crate::quota::MAX_BURST;
use crate::{Limiter, Quota};
use std::sync::Arc;

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
    max_waiting: Option<usize>,
    clock: Option<Chosen>,
    rovers_at: u64,
    stride: Option<u64>,
    fine: bool,
    classes: bool,
    /// The stores passed to `distributed`, each with the index of the quota given before it.
    #[cfg(feature = "distributed")]
    core: Vec<(Option<usize>, Arc<dyn Store>)>,
}

impl Builder {
    /// Adds a quota. Each grant takes its cost from all quotas, or from none.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(None);
        self
    }

    /// Adds a quota with a name that [`set_quota`](Limiter::set_quota) accepts.
    pub fn quota_named(mut self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(Some(name.into()));
        self
    }

    /// Makes the last quota distributed: all limiters with the same quota on the same store share it, on any machine.
    ///
    /// See [`distributed`](crate::distributed). All other settings belong to this limiter alone.
    ///
    /// The limiter must be built on a tokio runtime, because it spawns a task there that asks the store for tokens. If
    /// that runtime is shut down, the next runtime on which a caller waits takes over. If that runtime is alive but
    /// not driven, no task asks the store.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota, distributed::MemoryStore};
    /// let store = MemoryStore::new(); // or, of tollgate-redis: RedisStore::connect("redis://...", "child:42").await?
    /// let limiter = Limiter::builder().quota(Quota::per_second(10_000)).distributed(store).build()?;
    /// limiter.consume(1).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "distributed")]
    pub fn distributed(self, store: impl Store) -> Self {
        self.shared_through(Arc::new(store))
    }

    #[cfg(feature = "distributed")]
    pub(crate) fn shared_through(mut self, store: Arc<dyn Store>) -> Self {
        self.core.push((self.quotas.len().checked_sub(1), store));
        self
    }

    /// Caps the tokens in flight: the tokens of all grants that are not dropped yet.
    ///
    /// The cap delays the queue and discards nothing: tokens minted meanwhile are kept up to the burst.
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.max_in_flight = Some(tokens);
        self
    }

    /// Refuses further waiters once this many callers are waiting; 0 refuses every caller that would have to wait.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = Some(callers);
        self
    }

    /// Lets the limiter have [classes](crate::Class), made with [`Limiter::class`]: each has a queue and a share of the
    /// tokens of its own.
    ///
    /// Claims of a limiter with classes are paid in installments of at most the smallest burst, so that a large claim
    /// does not hold up the other classes. Claims made on the limiter itself wait in a class of their own, of weight 1.
    /// Until two classes have waiting claims at the same time, the limiter grants like one without classes, and an
    /// uncontended grant costs the same.
    ///
    /// Such a limiter cannot be distributed, cannot be the parent of a keyed limiter and takes no part in
    /// [joint claims](crate::join). The calls that wake many due waiters serve all of them, instead of leaving most of
    /// them to the background task.
    pub fn classes(mut self) -> Self {
        self.classes = true;
        self
    }

    /// Reads the time from `clock` instead of tokio's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Chosen::new(clock));
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
    ///     limiter.consume(1).await?; // each 0.1 ms, one by one
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

    /// Checks the configuration and builds the limiter. Its time begins now.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the wrong field and says how to correct it.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        if self.quotas.is_empty() {
            return Err(ConfigError::NoQuota);
        }
        for (index, quota) in self.quotas.iter().enumerate() {
            quota.check(index)?;
        }
        self.check_names()?;
        self.max_in_flight.map_or(Ok(()), check_cap)?;
        #[cfg(feature = "distributed")]
        let planner = self.planner()?;
        #[cfg(feature = "distributed")]
        if self.classes && planner.is_some() {
            return Err(ConfigError::DistributedClasses);
        }
        let supply = Supply::new(&self.quotas, self.max_in_flight, self.rovers_at);
        let mut state = State::new(supply, self.max_in_flight, self.rovers_at);
        if self.names.iter().any(Option::is_some) {
            state.rare().names = self.names.into();
        }
        state.max_waiting = self.max_waiting.unwrap_or(usize::MAX);
        if self.classes {
            state.divide();
        }
        if let Some(tokens) = self.stride {
            state.stride.fix(tokens);
        }
        let rovers = Rovers::new(self.rovers_at);
        let time = self.clock.map_or_else(Time::tokio, Time::other);
        #[cfg(feature = "distributed")]
        let refill_task = match planner {
            Some(_) if time.is_manual() => return Err(ConfigError::DistributedOutsideRuntime),
            Some((planner, store)) => Some((state.lease(planner, self.rovers_at), store)),
            None => None,
        };
        let core =
            Arc::new_cyclic(|weak| Core::new(rovers, state, time, self.fine, Observers::default(), weak.clone()));
        #[cfg(feature = "distributed")]
        if let Some((final_return, store)) = refill_task {
            let host = tokio::runtime::Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
            host.spawn(RefillHandle::new(&core, store, final_return).run());
        }
        Ok(Limiter::from_core(core))
    }

    /// Checks the distributed quota, if there is one, and prepares its refill plan.
    #[cfg(feature = "distributed")]
    fn planner(&self) -> Result<Option<PlannerAndStore>, ConfigError> {
        let (index, store) = match &self.core[..] {
            [] => return Ok(None),
            [(Some(index), store)] => (*index, store),
            _ => return Err(ConfigError::DistributedQuotaCount),
        };
        let terms = QuotaTerms::of(&self.quotas[index], index)?;
        let outage = store.outage();
        if let Outage::Share(share) = outage {
            share.check(index)?;
            QuotaTerms::of(&share, index)?;
        }
        Ok(Some((RefillPlanner::new(index, terms, outage), Arc::clone(store))))
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        for (index, name) in self.names.iter().enumerate() {
            if let Some(name) = name
                && self.names[..index].contains(&Some(name.clone()))
            {
                return Err(ConfigError::DuplicateName { name: name.to_string() });
            }
        }
        Ok(())
    }
}

/// The refill plan of a distributed quota, and its store.
#[cfg(feature = "distributed")]
type PlannerAndStore = (RefillPlanner, Arc<dyn Store>);

pub(crate) fn check_cap(cap: u64) -> Result<(), ConfigError> {
    if cap == 0 || cap > MAX_BURST {
        return Err(ConfigError::BadMaxInFlight { cap, most: MAX_BURST });
    }
    Ok(())
}
