//! Between the keeper of a shared line and the state.

use super::{Core, drop_quietly};
use crate::core::wakes::wake_each;
use crate::distributed::{LeaseGrant, LeaseRequest, Plan, RefillHandle, Replan};
use std::task::Waker;
use tokio::runtime::Handle;
use tokio::time::Instant;

impl Core {
    /// What the keeper does next; `waker` cuts its sleep short. `None` if no quota is shared.
    pub(crate) fn plan(&self, waker: &Waker) -> Option<Plan> {
        let waker = waker.clone();
        // The keeper works for all waiters: a clock that panics once must not end it.
        let (plan, old) = self.with_anyway(|state, rovers, sample| {
            let plan = state.plan(rovers, sample.now);
            let planner = state.supply.planner_mut().filter(|_| matches!(plan, Some(Plan::Sleep(_))));
            (plan, planner.and_then(|planner| planner.rest(waker)))
        });
        drop_quietly(old);
        plan
    }

    /// What is to be asked for in place of an ask that was never sent; nothing, if nothing is needed any more and `may_rest`.
    pub(crate) fn plan_anew(&self, may_rest: bool) -> Replan {
        self.with_anyway(|state, rovers, sample| match state.plan(rovers, sample.now) {
            Some(Plan::Request(ask)) => Replan::Request(ask),
            _ if may_rest => {
                state.supply.planner_mut().into_iter().for_each(|planner| planner.withdraw());
                Replan::Nothing
            }
            _ => Replan::Look,
        })
    }

    /// The line has answered `ask`, which went off at `sent`.
    pub(crate) fn receive(&self, ask: &LeaseRequest, answer: &LeaseGrant, sent: Instant) {
        let elapsed = crate::clock::whole_nanos(sent.elapsed());
        // What was answered counts, whatever the clock does.
        self.with_anyway(|state, rovers, sample| state.receive(rovers, sample.now, ask, answer, elapsed));
    }

    /// Somebody wanted `cost` at once, and may come again.
    #[cfg(feature = "keyed")]
    pub(crate) fn miss(&self, cost: u64) {
        self.with(|state, rovers, _| state.misses(rovers, cost));
    }

    /// Whether the limiter may be forgotten.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.look_at(|state, rovers, sample| state.is_at_rest(rovers, sample.now))
    }

    /// The line cannot be reached.
    pub(crate) fn lose(&self) {
        self.with_anyway(|state, rovers, sample| state.lose(rovers, sample.now));
    }

    /// The keeper goes with its runtime. Whoever waits looks again, so that another runtime has the next one.
    pub(crate) fn vacate(&self, refill: RefillHandle) {
        let mut state = self.state.lock();
        let old = state.supply.planner_mut().and_then(|planner| {
            planner.vacant = Some(refill);
            planner.rouse()
        });
        let waiting = state.queue.take_wakers();
        drop(state);
        drop_quietly(old);
        wake_each(waiting);
    }

    /// Has `host` run the keeper, if there is none.
    pub(super) fn start_refill_task(&self, host: &Handle) {
        let refill = self.state.lock().supply.planner_mut().and_then(|planner| planner.vacant.take());
        if let Some(refill) = refill {
            host.spawn(refill.run());
        }
    }
}
