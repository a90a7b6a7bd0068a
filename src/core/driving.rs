//! Drivers serve the queue when it is due. A waiter hires one on its runtime.

use super::{Core, Drive, drop_quietly};
use crate::core::alarm::Alarm;
use crate::core::drivers::{Driver, Kind, NextLook};
use crate::core::joint::{Fronts, JointSet};
use crate::core::state::{Sample, Served, State};
use crate::core::wakes::{Hired, Wakes, wake_each};
use crate::sync::MutexGuard;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle;

/// How many batches a driver delivers before it yields: 128 grants, half of what the local run queue of a tokio worker
/// holds. Tasks woken beyond that go through the queue that all workers share, which made grants late under load; and
/// much longer polls starved the timers.
const BATCHES_PER_TURN: usize = 4;

impl Core {
    /// The runtime that would serve a caller that has to wait. `None` outside of a runtime, and with a manual clock,
    /// which needs no timer.
    pub(crate) fn host(&self) -> Option<Handle> {
        if self.time.is_manual() { None } else { Handle::try_current().ok() }
    }

    /// Whether a driver will serve the queue for a caller on `host`, or can be hired to.
    pub(crate) fn is_driven(&self, state: &State, host: &Option<Handle>) -> bool {
        self.time.is_manual() || host.is_some() || state.drivers.serve_outside()
    }

    /// Whether no driver serves the queue for a caller on `host`, either not yet or no longer.
    #[inline]
    pub(super) fn is_unserved(&self, state: &State, host: &Option<Handle>) -> bool {
        match host {
            Some(host) => !state.serves(host),
            None => {
                !self.is_driven(state, host)
                    || state.source_task_is_gone()
                    || self.has_parent && self.parent_is_stopped()
            }
        }
    }

    /// Whether the source of the parent has no task, so that a thread outside of all runtimes would wait in vain. The caller
    /// may hold the lock of this limiter.
    #[cold]
    fn parent_is_stopped(&self) -> bool {
        !self.time.is_manual() && self.parent().is_some_and(|parent| parent.state.lock().source_task_is_gone())
    }

    /// Makes `host`, which must be the current runtime, serve this queue. Returns false if it is shutting down.
    ///
    /// # Panics
    /// If the runtime has no timers. The panic reaches the caller, which can see it there, rather than a background
    /// task.
    pub(crate) fn serve_here(&self, host: &Handle) -> bool {
        if self.state.lock().serves(host) {
            return true;
        }
        drop(Alarm::new());
        self.serve_from(host)
    }

    /// Makes runtime `host` serve this queue and all other queues that its joint claims wait in: a waiter on `host`
    /// behind one of these claims must not depend on other runtimes. (So every queue tied to one that `host` serves is
    /// served by it too.) Returns false if `host` is shutting down.
    pub(crate) fn serve_from(&self, host: &Handle) -> bool {
        match self.hire(host) {
            Hired::Now => {}
            Hired::Before => return true,
            Hired::InVain => return false,
        }
        let mut tied = self.tied_to();
        while let Some(peer) = tied.pop() {
            if let Hired::Now = peer.hire(host) {
                tied.extend(peer.tied_to());
            }
        }
        true
    }

    /// The other queues that joint claims in this queue wait in, and its parent.
    fn tied_to(&self) -> Vec<Arc<Self>> {
        let sets: Vec<Arc<JointSet>> = self.state.lock().joint().into_iter().flat_map(Fronts::sets).cloned().collect();
        let members = sets.iter().flat_map(|set| &set.members).filter_map(|member| member.core.upgrade());
        members
            .filter(|peer| !std::ptr::eq(&**peer, self))
            .chain(self.parent().map(|parent| Arc::clone(&parent.limiter)))
            .collect()
    }

    /// Ticks the queues that joint claims in this queue also wait in, and those tied to them in turn. Returns true if
    /// there are any.
    pub(crate) fn tick_tied(&self) -> bool {
        let (mut tied, mut is_tied) = (self.tied_to(), false);
        let mut seen: HashMap<*const Self, Arc<Self>> = HashMap::new();
        while let Some(peer) = tied.pop() {
            if std::ptr::eq(&*peer, self) || seen.contains_key(&Arc::as_ptr(&peer)) {
                continue;
            }
            // The parent itself is skipped: a child with waiters has it driven already.
            if self.parent().is_none_or(|parent| !Arc::ptr_eq(&parent.limiter, &peer)) {
                peer.tick();
                is_tied = true;
            }
            tied.extend(peer.tied_to());
            seen.insert(Arc::as_ptr(&peer), peer);
        }
        is_tied
    }

    /// The runtimes that serve this queue.
    pub(crate) fn hosts(&self) -> Vec<Handle> {
        self.state.lock().drivers.hosts().cloned().collect()
    }

    pub(crate) fn add_driver(&self, kind: Kind) -> u64 {
        self.state.lock().drivers.add(kind)
    }

    /// Driver `id` ends. If waiters may have relied on it, they are woken, so that each looks for a driver on its
    /// runtime and hires one. The departure of a thread wakes at most the drivers that now wake first.
    pub(crate) fn remove_driver(&self, id: u64) {
        let mut state = self.state.lock();
        let own = state.drivers.remove(id);
        let due = state.last_due();
        let successors = state.drivers.call_successors(due);
        let is_missed = own.as_ref().is_some_and(Driver::serves_others);
        let waiting = if is_missed { state.take_wakers() } else { Vec::new() };
        drop(state);
        drop_quietly(own);
        wake_each(waiting.into_iter().chain(successors.into_iter().flatten()));
    }

    /// One turn of a driver: serves what is due, then returns how long to sleep. `waker` cuts the sleep short.
    pub(crate) fn drive(&self, id: u64, waker: &Waker) -> Drive {
        let waker = waker.clone();
        // If reading the clock panics, reuse the last sample: this driver also serves waiters in other queues, which
        // must not lose it.
        let sample = self.sample_or_last();
        let state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        let slept = self.serve_turn(state, sample, |state, due| {
            let several_wait = state.queue.len() > 1;
            let (alarm, old) = state.drivers.sleep(id, due, sample.now, waker);
            (Drive::Until { alarm, several_wait, source_task_is_gone: state.source_task_is_gone() }, old)
        });
        slept.map_or(Drive::Yield, |(until, _old)| until)
    }

    /// Serves what is due, up to the limit of one turn, then calls `rest` with the next due instant, under the same
    /// lock. Returns `None` if more is due, but other tasks must run first.
    fn serve_turn<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut sample: Sample,
        rest: impl FnOnce(&mut State, u64) -> R,
    ) -> Option<R> {
        let mut wakes = Wakes::default();
        let mut batches = 0;
        while batches < BATCHES_PER_TURN {
            if state.finish(&self.rovers, sample.now, &mut wakes) == Served::All {
                if state.is_unfinished() {
                    // A joint set is reviewed before this queue is served further.
                    drop(state);
                    wakes.run();
                    sample = self.sample_or_last().unwrap_or(sample);
                    state = self.state.lock();
                    batches += 1;
                    continue;
                }
                let due = state.last_due();
                let rested = rest(&mut state, due);
                self.note_parent_poll(&state, &mut wakes);
                drop(state);
                wakes.run();
                return Some(rested);
            }
            // A proxy adds its waker to the batch.
            batches += usize::from(wakes.is_full() || state.awaited_child().is_none());
            (state, sample) = self.again(state, sample, &mut wakes);
        }
        drop(state);
        wakes.run();
        None
    }

    /// One turn of driver `id`, which serves many queues with one reading of the time: serves what is due by `now`. `waker`
    /// replaces its waker if that was used. Returns `None` if more is due, but other tasks must run first.
    pub(crate) fn drive_one(&self, id: u64, now: u64, waker: Option<Waker>) -> Option<NextLook> {
        let state = self.state.lock();
        // A driver claims nothing, so it does not need a new reading of the tail.
        let sample = Sample { now, ..state.last_sample() };
        self.serve_turn(state, sample, |state, due| state.drivers.rest(id, due, now, waker))
    }

    /// Whether driver `id` can withdraw its entry that the queue may be removed, and withdraws it then: either a waiter
    /// has a due instant, so the driver will take another turn anyway, or no claim waits and `surely` is true. Waiters
    /// that wait for other queues do not count: the drivers of those queues may serve them without a turn of this
    /// driver.
    pub(crate) fn stays(&self, id: u64, surely: bool) -> bool {
        let mut state = self.state.lock();
        let stays = if state.queue.is_empty() { surely } else { state.drivers.will_look(id) };
        if stays {
            state.drivers.stop_lingering(id);
        }
        stays
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
