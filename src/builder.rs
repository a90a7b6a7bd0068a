//! Building a limiter: every configuration check is made here or in `Quota::check`.

use crate::clock::{Chosen, Clock, Time};
use crate::core::Core;
use crate::core::rovers::Rovers;
use crate::core::state::State;
use crate::core::supply::Supply;
#[cfg(feature = "redis")]
use crate::distributed::{Outage, QuotaTerms, RefillHandle, RefillPlanner, Store};
use crate::error::ConfigError;
use crate::quota::MAX_BURST;
use crate::{Limiter, Quota};
use std::sync::Arc;

/// What a [`Limiter`] will be; from [`Limiter::builder`].
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
    /// Which quota is shared, and through what.
    #[cfg(feature = "redis")]
    core: Vec<(Option<usize>, Arc<dyn Store>)>,
}

impl Builder {
    /// Adds a quota. Each grant fits all quotas, or takes from none.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(None);
        self
    }

    /// Adds a quota that [`set_quota`](Limiter::set_quota) can be told by name.
    pub fn quota_named(mut self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.quotas.push(quota);
        self.names.push(Some(name.into()));
        self
    }

    /// Shares the quota given last with all limiters, on whatever machines, that have the same quota on the same line; see
    /// [`lease`](crate::distributed). Everything else stays the limiter's own.
    ///
    /// The limiter must be built on a tokio runtime: it spawns a task there that asks the line for tokens. If that runtime
    /// is shut down, the next one on which somebody waits takes its place; while it stands still, nobody asks.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota, RedisStore};
    /// let store = RedisStore::connect("redis://127.0.0.1/", "child:42").await?;
    /// let limiter = Limiter::builder().quota(Quota::per_second(10_000)).distributed(store).build()?;
    /// limiter.consume(1).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn distributed(self, store: impl Store) -> Self {
        self.shared_through(Arc::new(store))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn shared_through(mut self, store: Arc<dyn Store>) -> Self {
        self.core.push((self.quotas.len().checked_sub(1), store));
        self
    }

    /// Caps the tokens in flight: granted, and their grants not dropped yet. The cap holds the line back and burns
    /// nothing: what is minted meanwhile is kept up to the burst.
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.max_in_flight = Some(tokens);
        self
    }

    /// Turns callers away once this many are waiting; 0 lets nobody wait.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = Some(callers);
        self
    }

    /// Takes time from `clock` instead of tokio's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Chosen::new(clock));
        self
    }

    /// Serves waiters 0.05 to 0.25 ms after the instants of the schedule, at the median, instead of 0.5 to 1 ms. Feature
    /// `fine-timer`; on Linux: elsewhere it changes nothing.
    ///
    /// tokio's timers go by steps of a millisecond. This one is the operating system's, an open file per limiter and
    /// runtime on which callers have waited. Nothing else changes: not the rate, not the order, not paused time, in which it
    /// rests. It is for callers on runtimes: [`blocking_consume`](Limiter::blocking_consume) is as fine without it, and
    /// [`within`](crate::Consume::within) gives up by tokio's timer.
    ///
    /// The price is CPU for more looks at the line, each some 30 us, most of that the operating system's. Where several wait,
    /// what falls due within 0.4 ms is served together, so a limiter looks 2,500 times in a second at most, where tokio's
    /// timer has it look up to 1,000 times: some 1.5 x the CPU per grant at 1,000/s and at 100,000/s, more in between.
    ///
    /// The runtime needs `enable_io`, which `enable_all` and `#[tokio::main]` include. Without it tokio panics, which is
    /// caught, but printed, and tokio's timer serves, as it does when no more files can be opened. A program built with
    /// `panic = "abort"` ends there instead.
    ///
    /// A test that pauses time while callers wait can see the first of them served 20 ms later than the schedule says.
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

    /// Lets the rovers begin somewhere else than at 0, to test that they wrap.
    #[doc(hidden)]
    pub fn rovers_at(mut self, position: u64) -> Self {
        self.rovers_at = position;
        self
    }

    /// Fixes the stride of the fast path, which else adapts; 0 makes every call exact.
    #[doc(hidden)]
    pub fn stride(mut self, tokens: u64) -> Self {
        self.stride = Some(tokens);
        self
    }

    /// Checks everything and builds the limiter. Its time begins now.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        if self.quotas.is_empty() {
            return Err(ConfigError::NoQuota);
        }
        for (index, quota) in self.quotas.iter().enumerate() {
            quota.check(index)?;
        }
        self.check_names()?;
        self.max_in_flight.map_or(Ok(()), check_cap)?;
        #[cfg(feature = "redis")]
        let planner = self.planner()?;
        let supply = Supply::new(&self.quotas, self.max_in_flight, self.rovers_at);
        let mut state = State::new(supply, self.max_in_flight, self.rovers_at);
        if self.names.iter().any(Option::is_some) {
            state.rare().names = self.names.into();
        }
        state.max_waiting = self.max_waiting.unwrap_or(usize::MAX);
        if let Some(tokens) = self.stride {
            state.stride.fix(tokens);
        }
        let rovers = Rovers::new(self.rovers_at);
        let time = self.clock.map_or_else(Time::tokio, Time::other);
        #[cfg(feature = "redis")]
        let refill_task = match planner {
            Some(_) if time.is_manual() => return Err(ConfigError::DistributedOutsideRuntime),
            Some((planner, store)) => Some((state.lease(planner, self.rovers_at), store)),
            None => None,
        };
        let core = Arc::new_cyclic(|weak| Core::new(rovers, state, time, self.fine, weak.clone()));
        #[cfg(feature = "redis")]
        if let Some((final_return, store)) = refill_task {
            let host = tokio::runtime::Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
            host.spawn(RefillHandle::new(&core, store, final_return).run());
        }
        Ok(Limiter::from_core(core))
    }

    /// What is to be known of the line of the shared quota, if one is.
    #[cfg(feature = "redis")]
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

/// What a shared quota is fed by.
#[cfg(feature = "redis")]
type PlannerAndStore = (RefillPlanner, Arc<dyn Store>);

pub(crate) fn check_cap(cap: u64) -> Result<(), ConfigError> {
    if cap == 0 || cap > MAX_BURST {
        return Err(ConfigError::BadMaxInFlight { cap, most: MAX_BURST });
    }
    Ok(())
}
