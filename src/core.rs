//! The part of a limiter that all clones share: the rovers, the clock, and one lock around queue and supply.
//!
//! Every operation on the state follows one protocol: read tail and time, take the lock, serve the queue up to that
//! time, act, serve again, publish, set alarms, release the lock, wake. [`Core::with`] and its variants implement it
//! for one limiter. Two places repeat it over several locks: a joint claim (`join/locked.rs`), and a limiter with its
//! parent (`core/parent.rs`). The life of a claim is in `core/claims.rs`; the drivers that serve the queue are in
//! `core/driving.rs`.
//!
//! No user code runs under the lock: clocks are read and wakers are cloned before it is taken, wakers are dropped and
//! woken after it is released.

pub(crate) mod alarm;
mod claims;
pub(crate) mod classes;
pub(crate) mod coop;
pub(crate) mod denial;
pub(crate) mod drivers;
mod driving;
pub(crate) mod fine;
pub(crate) mod joint;
#[cfg(feature = "distributed")]
mod leasing;
#[cfg(feature = "keyed")]
pub(crate) mod parent;

pub(crate) mod queue;
pub(crate) mod replenisher;
pub(crate) mod rovers;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod stride;
pub(crate) mod supply;
pub(crate) mod sync;
pub(crate) mod wakes;

pub(crate) use driving::instant_or_retry;
#[cfg(feature = "keyed")]
pub(crate) use driving::{Look, LookReason, QueueDriver};
#[cfg(feature = "keyed")]
pub(crate) use parent::ChildLimiter;

use crate::clock::Time;
use crate::core::rovers::Rovers;
use crate::core::state::{CatchUp, Reach, Sample, ServeResult, State};
use crate::core::sync::{AtomicU64, Mutex, MutexGuard};
use crate::core::wakes::{Wakes, wake_each};
use crate::observe::Observers;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// The fields are in this order, and without padding, so that an access to one of many queues touches few cache lines:
/// the reference count of the `Arc`, the lock and the most used part of the state are neighbours. The rovers are at
/// least one cache line away from both ends, so a write to whatever lies next to this on the heap does not slow them
/// down.
#[repr(C)]
pub(crate) struct Core {
    /// Queue, supply and drivers. No user code runs while this is locked.
    pub(crate) state: Mutex<State>,
    /// Atomic positions, for the fast path without the lock.
    pub(crate) rovers: Rovers,
    pub(crate) time: Time,
    /// True if there is an in-flight cap: grants then release their tokens on drop. Fixed at construction.
    pub(crate) capped: bool,
    /// Whether replenishers use the fine timer too.
    pub(crate) fine: bool,
    /// Whether there is a parent. A flag of its own because it is read often and there is mostly no parent.
    #[cfg(feature = "keyed")]
    has_parent: bool,
    rare: Box<RareParts>,
    /// Tokens of forgotten grants: the amount that may be released by hand. Changed without the lock.
    owed: AtomicU64,
}

/// Rarely used fields, boxed because a keyed limiter has one `Core` for each key that is waited on.
struct RareParts {
    /// The shared driver of this queue, if this is the queue of a key. `None` if the queue spawns drivers of its own.
    #[cfg(feature = "keyed")]
    link: Option<ChildLink>,
    /// A weak reference to this `Core`, for the drivers that it spawns.
    weak: Weak<Core>,
    /// The observers of waits and refusals.
    observers: Observers,
}

impl fmt::Debug for Core {
    /// Omits the state: a user's writer must not run under the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("rovers", &self.rovers).field("time", &self.time).finish_non_exhaustive()
    }
}

/// The next step of a driver after a turn.
#[derive(Debug)]
pub(crate) enum Drive {
    /// Sleep until this instant, or until woken. `crowd` is true if several claims wait.
    Until { alarm: u64, crowd: bool },
    /// More is due, but other tasks must run first.
    Yield,
}

/// Links the queue of a key to the driver that serves the queues of all keys.
#[cfg(feature = "keyed")]
struct ChildLink {
    driver: Arc<dyn QueueDriver>,
    /// The hash of the key, by which the driver and the keyed limiter find this queue.
    key_hash: u64,
    /// Another limiter that must grant whatever this one grants.
    parent_link: Option<parent::ParentLink>,
}

impl Core {
    pub(crate) fn new(rovers: Rovers, state: State, time: Time, fine: bool, weak: Weak<Core>) -> Self {
        let capped = state.cap.is_some();
        let rare = Box::new(RareParts {
            #[cfg(feature = "keyed")]
            link: None,
            weak,
            observers: Observers::default(),
        });
        Self {
            rovers,
            state: Mutex::new(state),
            time,
            capped,
            fine,
            #[cfg(feature = "keyed")]
            has_parent: false,
            rare,
            owed: AtomicU64::new(0),
        }
    }

    /// Makes this the limiter of one key: `driver` serves its queue, `observers` are shared by all keys, and
    /// `parent_link` is the parent of all keys, if there is one.
    #[cfg(feature = "keyed")]
    pub(crate) fn one_of_many(
        mut self,
        driver: Arc<dyn QueueDriver>,
        key_hash: u64,
        observers: Observers,
        parent_link: Option<Arc<Core>>,
    ) -> Self {
        self.has_parent = parent_link.is_some();
        self.state.lock().has_parent = self.has_parent;
        let parent_link = parent_link.map(|limiter| parent::ParentLink::new(limiter, &self.time));
        self.rare.link = Some(ChildLink { driver, key_hash, parent_link });
        self.rare.observers = observers;
        self
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn key_hash(&self) -> Option<u64> {
        self.rare.link.as_ref().map(|link| link.key_hash)
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.rare.observers
    }

    /// Reads the tail, then the time: every claim up to that tail was made by that time.
    #[inline]
    pub(crate) fn sample(&self) -> Sample {
        let tail = self.rovers.tail();
        Sample { tail, now: self.time.now() }
    }

    /// Runs `act` on the state. The queue is served up to now before `act` and served again after it; see the head of
    /// this file.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Now, CatchUp::Fully, act)
    }

    /// Like [`with`](Self::with), for acts that change nothing for the front waiter: acts that read the state, or join
    /// the end of the queue. Serves one batch at most.
    pub(crate) fn look_at<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Held, CatchUp::Batch, act)
    }

    /// Like [`with`](Self::with), for acts that are also correct on a queue that is behind. Serves one batch at most.
    pub(crate) fn with_batch<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Now, CatchUp::Batch, act)
    }

    /// Like [`with_batch`](Self::with_batch), for acts that must not fail, such as a cancellation or a later step of
    /// something that has begun: if the clock panics, the last sample is used.
    pub(crate) fn leaving<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(self.sample_or_last(), Reach::Now, CatchUp::Batch, act)
    }

    /// Like [`with`](Self::with), for background tasks: a clock that panics once must not end them, so the last sample
    /// is used then.
    #[cfg(feature = "distributed")]
    fn with_anyway<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(self.sample_or_last(), Reach::Now, CatchUp::Fully, act)
    }

    /// Reads tail and time; `None` if the clock panics, and the caller then uses the last sample. A cancellation must
    /// not unwind here: its place would be dropped while it is linked in the queue, which aborts the process.
    pub(crate) fn sample_or_last(&self) -> Option<Sample> {
        catch_unwind(AssertUnwindSafe(|| self.sample())).ok()
    }

    fn sampled<R>(
        &self,
        sample: Option<Sample>,
        reach: Reach,
        catch_up: CatchUp,
        act: impl FnOnce(&mut State, &Rovers, Sample) -> R,
    ) -> R {
        self.sampled_with(Wakes::default(), sample, reach, catch_up, act)
    }

    fn sampled_with<R>(
        &self,
        mut wakes: Wakes,
        sample: Option<Sample>,
        reach: Reach,
        catch_up: CatchUp,
        act: impl FnOnce(&mut State, &Rovers, Sample) -> R,
    ) -> R {
        let mut state = self.state.lock();
        #[cfg(feature = "distributed")]
        state.assert_kept();
        let mut sample = sample.unwrap_or_else(|| state.last_sample());
        let mut is_behind = false;
        while !is_behind && state.settle(&self.rovers, sample.now, reach, &mut wakes) == ServeResult::Again {
            let served = wakes.is_full();
            (state, sample) = self.again(state, sample, &mut wakes);
            is_behind = served && catch_up == CatchUp::Batch && self.can_hand_over(&state);
        }
        let result = if is_behind {
            state.act_behind(&self.rovers, sample.now, |state| act(state, &self.rovers, sample))
        } else {
            state.observe(&self.rovers, sample);
            act(&mut state, &self.rovers, sample)
        };
        state = self.finish_or_hand_over(state, sample, is_behind, &mut wakes);
        self.note_parent_poll(&state, &mut wakes);
        drop(state);
        Self::leave(&mut wakes);
        result
    }

    /// Serves one batch, or nothing if the queue `is_behind`, and leaves the rest to the drivers.
    fn finish_or_hand_over<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut sample: Sample,
        mut is_behind: bool,
        wakes: &mut Wakes,
    ) -> MutexGuard<'a, State> {
        loop {
            is_behind = is_behind && self.can_hand_over(&state);
            let progress = if is_behind {
                state.hand_over(&self.rovers, sample.now, wakes)
            } else {
                state.finish(&self.rovers, sample.now, wakes)
            };
            if progress == ServeResult::Done {
                return state;
            }
            is_behind |= wakes.is_full();
            (state, sample) = self.again(state, sample, wakes);
        }
    }

    /// Whether drivers can serve the rest of the queue. With a manual clock every caller serves all of it.
    fn can_hand_over(&self, state: &State) -> bool {
        !self.time.is_manual() && !state.queue.is_empty() && !state.drivers.is_empty()
    }

    /// Does the work that must happen without a lock: wakes, then has the other queues of joint claims serve
    /// themselves. These are taken one after the other from a list, so that a chain of joint claims does not grow the
    /// stack.
    pub(crate) fn leave(wakes: &mut Wakes) {
        wakes.wake_all();
        loop {
            while let Some(joint) = wakes.pop_joint() {
                for core in joint.members() {
                    core.serve_into(wakes);
                    core.let_go();
                }
            }
            if !Self::poll_next_parent(wakes) {
                return;
            }
        }
    }

    /// Polls the parent of one queue that asked for it. Returns false if there is none.
    fn poll_next_parent(wakes: &mut Wakes) -> bool {
        #[cfg(feature = "keyed")]
        if let Some(queue) = wakes.pop_parent_poll() {
            if let Some(queue) = queue.upgrade() {
                queue.poll_parent(wakes);
                queue.let_go();
            }
            return true;
        }
        #[cfg(not(feature = "keyed"))]
        let _ = wakes;
        false
    }

    /// Records, before the lock is released, whether the front of this queue needs something from the parent.
    fn note_parent_poll(&self, state: &State, wakes: &mut Wakes) {
        #[cfg(feature = "keyed")]
        if state.wants_parent() {
            wakes.push_parent_poll(self.weak());
        }
        #[cfg(not(feature = "keyed"))]
        let _ = (state, wakes);
    }

    /// Drops a reference that was held for a moment, and tells the keyed limiter, which may remove the key if it was
    /// the last one.
    fn let_go(self: Arc<Self>) {
        #[cfg(feature = "keyed")]
        if let Some(link) = self.rare.link.as_ref().filter(|_| self.has_parent) {
            let (driver, key_hash) = (Arc::clone(&link.driver), link.key_hash);
            drop(self);
            driver.let_go(key_hash);
        }
    }

    /// Serves this queue, and collects in `wakes` the work for other queues. If the clock panics, the last sample is
    /// used: the operation that calls this has begun and must be completed.
    pub(crate) fn serve_into(&self, wakes: &mut Wakes) {
        let sample = self.sample_or_last();
        let mut state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        state = self.finish_or_hand_over(state, sample, false, wakes);
        self.note_parent_poll(&state, wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Releases the lock, wakes, reads the time, and takes the lock again. If the clock panics, `before` is used: the
    /// caller is in the middle of an operation.
    fn again<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        before: Sample,
        wakes: &mut Wakes,
    ) -> (MutexGuard<'a, State>, Sample) {
        drop(state);
        wakes.wake_all();
        let sample = catch_unwind(AssertUnwindSafe(|| self.sample())).unwrap_or(before);
        (self.state.lock(), sample)
    }
}

/// Drops a value that may be the user's. Its destructor may panic, and such a panic must neither lose a grant nor leave
/// a place linked in a queue.
pub(crate) fn drop_quietly(spare: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(spare))).map_err(std::mem::forget);
}

impl Drop for Core {
    /// The last limiter is gone, so no claim can be waiting. Wakes the drivers, which find that out and end.
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let sleeping = state.drivers.take_wakers();
        #[cfg(feature = "distributed")]
        let sleeping: Vec<_> = sleeping.into_iter().chain(state.return_all(&self.rovers)).collect();
        drop(state);
        wake_each(sleeping);
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
        assert!(rovers >= 64);
        assert!(offset_of!(Core, owed) >= rovers + size_of::<Rovers>() + 64);
    }
}
