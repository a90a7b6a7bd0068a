//! Builds limiters with a distributed quota.

use super::{Leases, Outage, QuotaTerms, RefillHandle, RefillPlanner, Store};
use crate::builder::{Builder, Supplier};
use crate::core::Core;
use crate::core::source::{RequestTask, Source};
use crate::error::QuotaError;
use crate::quota::Quota;
use std::sync::Arc;

impl Builder {
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
    /// limiter.wait(1).await?;
    /// # Ok(()) }
    /// ```
    pub fn distributed(self, store: impl Store) -> Self {
        self.shared_through(Arc::new(store))
    }

    pub(crate) fn shared_through(self, store: Arc<dyn Store>) -> Self {
        self.supplied(Arc::new(StoreSupplier(store)))
    }
}

impl Outage {
    /// Checks the share of a quota.
    pub(crate) fn check(self) -> Result<(), QuotaError> {
        let Self::Share(share) = self else { return Ok(()) };
        share.check()?;
        share.check_no_calendar("the share of an outage")?;
        QuotaTerms::of(&share).map(drop)
    }
}

/// Supplies a quota with tokens from its store.
#[derive(Debug)]
struct StoreSupplier(Arc<dyn Store>);

impl Supplier for StoreSupplier {
    fn source(&self, quota: &Quota, has_classes: bool) -> Result<Box<dyn Source>, QuotaError> {
        let terms = QuotaTerms::of(quota)?.with_version(self.0.quota_version());
        let outage = self.0.outage();
        outage.check()?;
        let mut planner = RefillPlanner::new(terms, outage);
        planner.classes = has_classes.then(Default::default);
        let mut leases = Leases::of(planner);
        leases.store = Some(Arc::clone(&self.0));
        Ok(Box::new(leases))
    }

    fn task(&self, core: &Arc<Core>) -> RequestTask {
        let mut state = core.state.lock();
        let final_return = state.planner_mut().map(|planner| Arc::clone(&planner.final_return)).unwrap_or_default();
        RequestTask::new(RefillHandle::new(core, Arc::clone(&self.0), final_return).run())
    }
}
