//! The methods that the refill task of a distributed quota calls.

use super::{Answered, Plan};
use crate::clock::whole_nanos;
use crate::core::source::RequestTask;
use crate::core::wakes::wake_each;
use crate::core::{Core, drop_quietly};
use crate::error::QuotaConflict;
use std::task::Waker;

impl Core {
    /// The store of the distributed quota, if there is one.
    #[cfg(feature = "metrics")]
    pub(crate) fn store(&self) -> Option<std::sync::Arc<dyn super::Store>> {
        self.look_at(|state, _, _| state.any_leases()?.store.clone())
    }

    /// Returns the next step of the refill task; `waker` cuts its sleep short. `None` if no quota is distributed.
    pub(crate) fn plan(&self, waker: &Waker) -> Option<Plan> {
        let waker = waker.clone();
        // The refill task works for all waiters: a clock that panics once must not end it.
        let (plan, old) = self.with_anyway(|state, rovers, sample| {
            let plan = state.plan(rovers, sample.now);
            let planner = state.planner_mut().filter(|_| matches!(plan, Some(Plan::Sleep(_))));
            (plan, planner.and_then(|planner| planner.waker.replace(waker)))
        });
        drop_quietly(old);
        plan
    }

    /// The store has answered. Returns by how many tokens that may exceed the quota, if it has
    /// lost its state, and whether the node has a place there.
    ///
    /// `None` if the clock panics: the tokens count from when the answer has come, and the last reading may be from before the
    /// request. The caller tries again.
    pub(crate) fn receive(&self, answered: &Answered) -> Option<(Option<u64>, bool)> {
        // The time since the request is read after the limiter's clock: if the thread stands still between them, the request
        // seems older than it is, and the allowance ends too early rather than too late.
        self.with_present(|state, rovers, sample| {
            let lost = state.receive(rovers, sample.now, answered, whole_nanos(answered.sent.elapsed()));
            (lost, state.planner_mut().is_some_and(|planner| planner.placed))
        })
    }

    /// A caller wanted `cost` tokens at once and was refused; it may try again.
    pub(crate) fn miss(&self, cost: u64) {
        self.with(|state, rovers, _| _ = state.note_miss(rovers, cost));
    }

    /// Whether the caller holds the only reference to this limiter and may drop it: no claim waits, no tokens are owed,
    /// the store has promised none, and no pause is kept.
    pub(crate) fn is_spare(&self) -> bool {
        self.weak().strong_count() == 1
            && self.look_at(|state, rovers, sample| !state.supply.is_paused() && state.is_at_rest(rovers, sample.now))
    }

    /// The store cannot be reached or answers with an error, or refuses the limiter's quota because of `conflict`.
    pub(crate) fn lose(&self, conflict: Option<QuotaConflict>) {
        self.with_anyway(|state, rovers, sample| state.lose(rovers, sample.now, conflict));
    }

    /// The refill task ends with its runtime. All waiters and drivers are woken, so that one of them spawns the next refill
    /// task on another runtime. Waiters of children have only the drivers for that: their proxies have no wakers.
    pub(crate) fn vacate(&self, next: RequestTask) {
        let mut state = self.state.lock();
        let old = state.planner_mut().and_then(|planner| {
            planner.vacant = Some(next);
            planner.take_waker()
        });
        let waiting = state.take_wakers();
        let drivers = state.drivers.take_wakers();
        drop(state);
        drop_quietly(old);
        wake_each(waiting.into_iter().chain(drivers));
    }
}
