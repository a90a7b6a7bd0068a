//! The part of a limiter that all clones share: the rovers, the clock, and one lock around queue and supply.
//!
//! This file holds the data. The lock protocol that every operation on the state follows is in `core/locked.rs`, the
//! life of a claim in `core/claims.rs`, that of a grant in `core/grants.rs`, a limiter with a parent in
//! `core/parent.rs`, and the drivers that serve the queue in `core/driving.rs`.
//!
//! `#[inline(always)]` marks parts of every grant or wait, also large ones: as calls they were measured to be slower
//! (`scripts/bench`).

pub(crate) mod alarm;
pub(crate) mod arithmetic;
pub(crate) mod calendar;
pub(crate) mod claim_scope;
pub(crate) mod claims;
mod class_ops;
pub(crate) mod classes;
pub(crate) mod coop;
pub(crate) mod denial;
pub(crate) mod drivers;
pub(crate) mod driving;
pub(crate) mod dry_run;
mod expiry;
mod fine;
pub(crate) mod forecast;
pub(crate) mod grants;
pub(crate) mod in_use;
pub(crate) mod joint;
pub(crate) mod locked;
pub(crate) mod outcome;
mod pair;
pub(crate) mod parent;
pub(crate) mod queue;
pub(crate) mod replenisher;
pub(crate) mod rovers;
pub(crate) mod schedule;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod stride;
pub(crate) mod supply;
pub(crate) mod wakes;
pub(crate) mod window;

use crate::clock::Time;
use crate::core::classes::KeyName;
use crate::core::joint::Fronts;
use crate::core::parent::{Parent, ParentLink};
use crate::core::rovers::Rovers;
use crate::core::state::{Sample, State};
use crate::core::wakes::{Wakes, wake_each};
use crate::error::ConfigError;
use crate::observe::{Observed, Observers};
use crate::sync::Mutex;
use crate::which::Which;
use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// The fields are in this order, and without padding, so that an access to one of many queues touches few cache lines:
/// the reference count of the `Arc`, the lock and the most used part of the state are neighbours. The rovers are at
/// least one cache line away from both ends, so that writes to neighbouring heap allocations do not slow them down.
#[repr(C)]
pub struct Core {
    /// Queue, supply and drivers. No user code runs while this is locked, except `Clock::wall` and a reading beside it.
    pub(crate) state: Mutex<State>,
    /// Atomic positions, for the fast path without the lock.
    pub(crate) rovers: Rovers,
    pub(crate) time: Time,
    /// True if there is an in-flight cap, here or in the parent: grants then release their tokens on drop. Fixed at
    /// construction.
    pub(crate) capped: bool,
    /// Whether replenishers use the fine timer in addition to tokio's. Fixed at construction.
    pub(crate) fine: bool,
    /// Whether there is a parent. A separate flag, because it is read often and most limiters have no parent.
    has_parent: bool,
    /// Whether the limiter was built with classes. Fixed at construction.
    pub(crate) has_classes: bool,
    /// Whether a quota is in dry run. Changed under the lock, and read without the lock.
    has_dry_run: AtomicBool,
    /// Whether the tokens come from a source that shares them among the classes of many limiters. Fixed at
    /// construction.
    shares_among_classes: bool,
    /// The shared driver of this queue, if this is the queue of a key. `None` if the queue spawns drivers of its own.
    link: Option<Box<ChildLink>>,
    /// A weak reference to this `Core`, for the drivers that it spawns.
    weak: Weak<Core>,
    /// The observers of waits and refusals. Takes no space in builds without observers.
    observers: Observers,
}

/// The lock does not poison, and no user code runs under it but the wall clock, whose panics are caught: a panic in a
/// caller, its clock or its waker leaves the state whole, so a limiter may be used after one.
impl UnwindSafe for Core {}
impl RefUnwindSafe for Core {}

impl fmt::Debug for Core {
    /// Omits the state: a user's writer must not run under the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("rovers", &self.rovers).field("time", &self.time).finish_non_exhaustive()
    }
}

/// The next step of a driver after a turn.
#[derive(Debug)]
pub(crate) enum Drive {
    /// Sleep until this instant, or until woken. `several_wait`: whether more than one claim waits. `source_task_is_gone`:
    /// whether the task of the source has to be spawned.
    Until { alarm: u64, several_wait: bool, source_task_is_gone: bool },
    /// More is due, but other tasks must run first.
    Yield,
}

/// Links the queue of a key to the driver that serves the queues of all keys.
struct ChildLink {
    driver: Arc<dyn QueueDriver>,
    /// The hash of the key, by which the driver and the keyed limiter find this queue.
    key_hash: u64,
    /// Another limiter that must grant whatever this one grants.
    parent_link: Option<ParentLink>,
}

/// Drives the queues of many limiters at once.
pub(crate) trait QueueDriver: fmt::Debug + Send + Sync {
    /// Makes `host` serve the queue of `core` from now on. Returns false if `host` is shutting down.
    fn hire(&self, host: &Handle, core: &Core) -> bool;
    /// Called after a reference to the limiter of this key hash was dropped.
    fn let_go(&self, key_hash: u64);
}

impl Core {
    pub(crate) fn new(
        rovers: Rovers,
        mut state: State,
        time: Time,
        fine: bool,
        observers: Observers,
        weak: Weak<Core>,
    ) -> Self {
        let now = state.supply.synced();
        state.note_calendars(&time, now);
        let (capped, has_classes) = (state.cap.is_some(), state.classes().is_some());
        let shares_among_classes = has_classes && state.has_source();
        let has_dry_run = AtomicBool::new(state.dry_run().is_some());
        Self {
            rovers,
            state: Mutex::new(state),
            time,
            capped,
            fine,
            has_parent: false,
            has_classes,
            shares_among_classes,
            has_dry_run,
            link: None,
            weak,
            observers,
        }
    }

    /// Makes this the core of `key`: `driver` serves its queue, and `parent` is the parent of all keys, if there is
    /// one.
    pub(crate) fn one_of_many(mut self, driver: Arc<dyn QueueDriver>, key: KeyName, parent: Option<Parent>) -> Self {
        let has_cap = self.capped;
        if let Some(parent) = &parent {
            self.has_parent = true;
            self.capped |= parent.capped;
            self.state.lock().set_parent();
        }
        let parent_link = parent.map(|parent| ParentLink::new(parent, &self.time, key, has_cap));
        self.link = Some(Box::new(ChildLink { driver, key_hash: key.hash, parent_link }));
        self
    }

    pub(crate) fn key_hash(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.key_hash)
    }

    /// Puts a quota in dry run, or enforces it again.
    pub(crate) fn set_dry_run(&self, which: Which<'_>, is_dry: bool) -> Result<(), ConfigError> {
        let set = |state: &mut State, rovers: &Rovers, _| {
            let ended = state.set_dry_run(rovers, which, is_dry)?;
            self.has_dry_run.store(state.dry_run().is_some(), Ordering::Relaxed);
            Ok(ended)
        };
        self.with(set).map(drop)
    }

    /// Puts all quotas in dry run, or enforces them again, as `is_dry` says once the lock is held.
    pub(crate) fn set_dry_run_of_all(&self, is_dry: impl FnOnce() -> bool) -> Result<(), ConfigError> {
        let set = |state: &mut State, rovers: &Rovers, _| {
            let ended = state.set_dry_run_of_all(rovers, is_dry())?;
            self.has_dry_run.store(state.dry_run().is_some(), Ordering::Relaxed);
            Ok(ended)
        };
        self.with_anyway(set).map(drop)
    }

    /// Whether a quota is in dry run. This can have changed by the time the caller acts on it.
    pub(crate) fn has_dry_run(&self) -> bool {
        self.has_dry_run.load(Ordering::Relaxed)
    }

    pub(crate) fn shares_among_classes(&self) -> bool {
        self.shares_among_classes
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// The observers and the clock, for the records of waits.
    pub(crate) fn observed(&self) -> Observed<'_> {
        Observed { observers: &self.observers, time: &self.time, class: None }
    }

    /// Reads the tail, then the time: every claim up to that tail was made by that time.
    #[inline]
    pub(crate) fn sample(&self) -> Sample {
        let tail = self.rovers.tail();
        Sample { tail, now: self.time.now() }
    }

    /// Reads tail and time; `None` if the clock panics, and the caller then uses the last sample. A cancellation must
    /// not unwind here: its place would be dropped while it is linked in the queue, which aborts the process.
    pub(crate) fn sample_or_last(&self) -> Option<Sample> {
        quietly(|| self.sample())
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.weak.clone()
    }
}

/// Runs code that may be the user's. If it panics, the panic ends here; the panic hook has reported it.
pub(crate) fn quietly<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).map_err(drop_quietly).ok()
}

/// Drops a value that may be the user's. Its destructor may panic, and such a panic must neither lose a grant nor leave
/// a place linked in a queue.
pub(crate) fn drop_quietly(spare: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(spare))).map_err(std::mem::forget);
}

impl Drop for Core {
    /// The last limiter is gone, so no claim can be waiting, unless its future was forgotten. Wakes the drivers, which then
    /// find that the limiter is gone, and end.
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let sleeping = state.drivers.take_wakers();
        let requests = state.end_source(&self.rovers);
        let sets: Vec<_> = state.joint().into_iter().flat_map(Fronts::sets).cloned().collect();
        drop(state);
        wake_each(sleeping.into_iter().chain(requests));
        // Joint claims that were forgotten end in the other limiters too.
        let mut wakes = Wakes::default();
        sets.into_iter().for_each(|set| set.review(&mut wakes));
        wakes.run();
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn core_fits_ten_cache_lines() {
        let size = size_of::<Core>();
        assert!(size <= 640, "{size} bytes");
    }

    #[test]
    fn the_rovers_share_no_cache_line_with_their_neighbours() {
        let rovers = offset_of!(Core, rovers);
        assert!(rovers >= 64 && rovers % 16 == 0);
        assert!(size_of::<Core>() >= rovers + size_of::<Rovers>() + 64);
    }
}
