//! The methods that the refill task of a distributed quota calls.

use super::{Core, drop_quietly};
use crate::core::wakes::wake_each;
use crate::distributed::{LeaseGrant, LeaseRequest, Plan, RefillHandle, Replan};
use std::task::Waker;
use tokio::runtime::Handle;
use tokio::time::Instant;

impl Core {
    /// Returns the next step of the refill task; `waker` cuts its sleep short. `None` if no quota is distributed.
    pub(crate) fn plan(&self, waker: &Waker) -> Option<Plan> {
        let waker = waker.clone();
        // The refill task works for all waiters: a clock that panics once must not end it.
        let (plan, old) = self.with_anyway(|state, rovers, sample| {
            let plan = state.plan(rovers, sample.now);
            let planner = state.supply.planner_mut().filter(|_| matches!(plan, Some(Plan::Sleep(_))));
            (plan, planner.and_then(|planner| planner.rest(waker)))
        });
        drop_quietly(old);
        plan
    }

    /// Returns the request to make in place of one that was never sent. `Replan::Nothing` if nothing is needed any more
    /// and `may_rest`.
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

    /// The store has answered `ask`, which was sent at `sent`.
    pub(crate) fn receive(&self, ask: &LeaseRequest, answer: &LeaseGrant, sent: Instant) {
        let elapsed = crate::clock::whole_nanos(sent.elapsed());
        // The answer counts even if the clock panics.
        self.with_anyway(|state, rovers, sample| state.receive(rovers, sample.now, ask, answer, elapsed));
    }

    /// A caller wanted `cost` tokens at once and was refused; it may try again.
    pub(crate) fn miss(&self, cost: u64) {
        self.with(|state, rovers, _| state.misses(rovers, cost));
    }

    /// Whether the limiter may be dropped: no claim waits, no tokens are owed, and the store has promised none.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.look_at(|state, rovers, sample| state.is_at_rest(rovers, sample.now))
    }

    /// The store cannot be reached.
    pub(crate) fn lose(&self) {
        self.with_anyway(|state, rovers, sample| state.lose(rovers, sample.now));
    }

    /// The refill task ends with its runtime. All waiters are woken, so that one of them starts the next refill task on
    /// another runtime.
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

    /// Makes `host` run the refill task, if none runs.
    pub(super) fn start_refill_task(&self, host: &Handle) {
        let refill = self.state.lock().supply.planner_mut().and_then(|planner| planner.vacant.take());
        if let Some(refill) = refill {
            host.spawn(refill.run());
        }
    }
}
