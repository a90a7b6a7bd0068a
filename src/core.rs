//! What all clones of a limiter share: the rovers, and one lock around line and supply.
//!
//! The shape of every verb: read tail and time, take the lock, bring the line up to that time, act, serve again,
//! publish, set alarms, leave the lock, wake. [`Core::with`] is that shape; only a joint claim (`join/lines.rs`), which acts on
//! several limiters at once, has that shape written out again. The life of a claim is in `core/asking.rs`, those who
//! serve the line in `core/driving.rs`.
//!
//! No user code runs under the lock: clocks are read and wakers cloned before it, wakers are dropped and woken after.

pub(crate) mod alarm;
mod claims;
pub(crate) mod coop;
pub(crate) mod denial;
pub(crate) mod drivers;
mod driving;
pub(crate) mod fine;
pub(crate) mod joint;
#[cfg(feature = "redis")]
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

/// In this order, and without padding, a look at one of many lines asks for few cache lines: the count of those who hold it,
/// the lock and what is mostly asked for of the state are neighbours. What others write, whatever lies next to this on the
/// heap, is a cache line away from the rovers.
#[repr(C)]
pub(crate) struct Core {
    pub(crate) state: Mutex<State>,
    pub(crate) rovers: Rovers,
    pub(crate) time: Time,
    /// With an in-flight cap, grants release on drop. Fixed when built.
    pub(crate) capped: bool,
    /// Whether replenishers use the fine timer too.
    pub(crate) fine: bool,
    /// Whether there is a roof: asked often, where there mostly is none.
    #[cfg(feature = "keyed")]
    has_parent: bool,
    rare: Box<RareParts>,
    /// Tokens of forgotten grants: what may be released by hand.
    owed: AtomicU64,
}

/// What is seldom needed: kept apart, since there is one of these for each key that is waited on.
struct RareParts {
    /// Who serves this line, where it is one of many; else it hires drivers of its own.
    #[cfg(feature = "keyed")]
    link: Option<ChildLink>,
    /// Itself, for the drivers it spawns.
    weak: Weak<Core>,
    /// Who is told of waits and refusals.
    observers: Observers,
}

impl fmt::Debug for Core {
    /// Without the state: nobody's writer runs under the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("rovers", &self.rovers).field("time", &self.time).finish_non_exhaustive()
    }
}

/// What a driver does next.
#[derive(Debug)]
pub(crate) enum Drive {
    /// Sleep until this instant, or until woken; `crowd` if several wait.
    Until { alarm: u64, crowd: bool },
    /// More is due, but others want to run.
    Yield,
}

/// The place of one line among many.
#[cfg(feature = "keyed")]
struct ChildLink {
    driver: Arc<dyn QueueDriver>,
    /// By what its warden finds it.
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

    /// One of many limiters, whose lines `driver` serves, of which `observers` is told together, and which may all be under
    /// one roof.
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

    /// Every claim up to the tail read here was made by the time read after it.
    #[inline]
    pub(crate) fn sample(&self) -> Sample {
        let tail = self.rovers.tail();
        Sample { tail, now: self.time.now() }
    }

    /// Acts on the state, brought up to date before and served again after; see the head of this file.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Now, CatchUp::Fully, act)
    }

    /// `with` for those who change nothing for whoever is at the front: they look, or come to the end. They serve a batch
    /// at most.
    pub(crate) fn look_at<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Held, CatchUp::Batch, act)
    }

    /// `with` for those who can also act on a queue that is behind, and serve a batch at most.
    pub(crate) fn with_batch<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Now, CatchUp::Batch, act)
    }

    /// `with_batch` for those who leave, and must, and for those in the middle of something.
    pub(crate) fn leaving<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(self.sample_or_last(), Reach::Now, CatchUp::Batch, act)
    }

    /// `with` for background tasks, which a clock that panics once must not end: it stands still then.
    #[cfg(feature = "redis")]
    fn with_anyway<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(self.sample_or_last(), Reach::Now, CatchUp::Fully, act)
    }

    /// `None` if the clock panics: for those who leave it stands still then, or the place would be dropped in the line,
    /// and the process with it.
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
        #[cfg(feature = "redis")]
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

    /// Serves one batch, or none if the queue `is_behind`, and leaves the rest to the drivers.
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

    /// Whether drivers can serve the rest of the queue. Where time is moved by hand whoever looks serves all of it.
    fn can_hand_over(&self, state: &State) -> bool {
        !self.time.is_manual() && !state.queue.is_empty() && !state.drivers.is_empty()
    }

    /// What is done without the lock: wakes, then has the other lines of joint claims look, one after the other, so
    /// that a chain of them does not grow the stack.
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

    /// Climbs to the roof of one line that knocks. False if there is none.
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

    /// Notes, before the lock is left, whether the line knocks at its roof.
    fn note_parent_poll(&self, state: &State, wakes: &mut Wakes) {
        #[cfg(feature = "keyed")]
        if state.wants_parent() {
            wakes.push_parent_poll(self.weak());
        }
        #[cfg(not(feature = "keyed"))]
        let _ = (state, wakes);
    }

    /// Somebody who held this line for a moment does not any more.
    fn let_go(self: Arc<Self>) {
        #[cfg(feature = "keyed")]
        if let Some(link) = self.rare.link.as_ref().filter(|_| self.has_parent) {
            let (driver, key_hash) = (Arc::clone(&link.driver), link.key_hash);
            drop(self);
            driver.let_go(key_hash);
        }
    }

    /// Serves this line; what it calls for in others is left in `wakes`. A clock that panics stands still: others have begun
    /// what ends here.
    pub(crate) fn serve_into(&self, wakes: &mut Wakes) {
        let sample = self.sample_or_last();
        let mut state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        state = self.finish_or_hand_over(state, sample, false, wakes);
        self.note_parent_poll(&state, wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Leaves the lock, wakes, reads the time, and takes the lock again. A clock that panics stands still: somebody is in
    /// the middle of something here.
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

/// Drops what may be the user's and may panic: no grant must be lost by that, and no place left in a line.
pub(crate) fn drop_quietly(spare: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(spare))).map_err(std::mem::forget);
}

impl Drop for Core {
    /// The last limiter is gone, and nobody can be waiting: its drivers find that out and end.
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let sleeping = state.drivers.take_wakers();
        #[cfg(feature = "redis")]
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
    fn what_clones_share_fits_ten_cache_lines() {
        let size = size_of::<Core>();
        assert!(size <= 640, "{size} bytes");
    }

    #[test]
    fn the_rovers_share_no_cache_line_with_what_is_before_and_behind() {
        let rovers = offset_of!(Core, rovers);
        assert!(rovers >= 64);
        assert!(offset_of!(Core, owed) >= rovers + size_of::<Rovers>() + 64);
    }
}
