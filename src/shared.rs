//! What all clones of a limiter share: the rovers, and one lock around line and supply.
//!
//! The shape of every verb: read tail and time, take the lock, bring the line up to that time, act, serve again,
//! publish, set alarms, leave the lock, wake. [`Shared::with`] is that shape; only a joint claim (`join.rs`), which acts on
//! several limiters at once, has that shape written out again.
//!
//! No user code runs under the lock: clocks are read and wakers cloned before it, wakers are dropped and woken after.

use crate::alarm::Alarm;
use crate::clock::Time;
use crate::drivers::{Driver, Kind};
use crate::error::{ConsumeError, ReleaseError, TryAcquireError};
use crate::knot::Knot;
use crate::queue::{Outcome, Place};
use crate::replenisher::{Registration, Replenisher};
use crate::rovers::Rovers;
use crate::state::{Arrival, MOST_COST, Progress, Reach, Sample, State};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::wakes::{Wakes, wake_each};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use tokio::runtime::Handle;

/// How many batches a driver delivers before it yields: about a thousand grants. A poll that served 28,000 waiters
/// starved the timers and made the next batch larger still.
const BATCHES_PER_TURN: usize = 32;

/// Drives the lines of many limiters at once.
pub(crate) trait Warden: fmt::Debug + Send + Sync {
    /// Has `host` serve this line from now on. False if it is shutting down.
    fn hire(&self, host: &Handle, shared: &Shared) -> bool;
}

pub(crate) struct Shared {
    pub(crate) rovers: Rovers,
    pub(crate) state: Mutex<State>,
    pub(crate) time: Time,
    /// With an in-flight cap, grants release on drop. Fixed when built.
    pub(crate) capped: bool,
    /// Tokens of forgotten grants: what may be released by hand.
    owed: AtomicU64,
    /// Who serves this line, where it is one of many; else it hires drivers of its own.
    warden: Option<Arc<dyn Warden>>,
    /// By what its warden finds it.
    #[cfg(feature = "keyed")]
    mark: u64,
    /// Itself, for the drivers it spawns.
    weak: Weak<Shared>,
}

impl fmt::Debug for Shared {
    /// Without the state: nobody's writer runs under the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("rovers", &self.rovers).field("time", &self.time).finish_non_exhaustive()
    }
}

/// What a driver does next.
#[derive(Debug)]
pub(crate) enum Drive {
    /// Sleep until this instant, or until woken.
    Until(u64),
    /// More is due, but others want to run.
    Yield,
}

enum Hired {
    Now,
    Before,
    /// The runtime is shutting down, and dropped the driver at once.
    InVain,
}

impl Shared {
    pub(crate) fn new(rovers: Rovers, state: State, time: Time, weak: Weak<Shared>) -> Self {
        let capped = state.cap.is_some();
        Self {
            rovers,
            state: Mutex::new(state),
            time,
            capped,
            owed: AtomicU64::new(0),
            warden: None,
            #[cfg(feature = "keyed")]
            mark: 0,
            weak,
        }
    }

    /// One of many limiters, whose lines `warden` serves.
    #[cfg(feature = "keyed")]
    pub(crate) fn one_of_many(mut self, warden: Arc<dyn Warden>, mark: u64) -> Self {
        self.warden = Some(warden);
        self.mark = mark;
        self
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn is_waited_on(&self) -> bool {
        !self.state.lock().line.is_empty()
    }

    /// Tokens of forgotten grants that were not released by hand yet.
    #[cfg(feature = "keyed")]
    pub(crate) fn owed(&self) -> u64 {
        self.owed.load(Ordering::Acquire)
    }

    /// Every claim up to the tail read here was made by the time read after it.
    pub(crate) fn sample(&self) -> Sample {
        let tail = self.rovers.tail();
        Sample { tail, now: self.time.now() }
    }

    /// Acts on the state, brought up to date before and served again after; see the head of this file.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Now, act)
    }

    /// `with` for those who change nothing for whoever is at the front: they look, or come to the end.
    pub(crate) fn look_at<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(Some(self.sample()), Reach::Held, act)
    }

    /// `with` for those who leave, and must: a clock that panics is one that stands still, or the place would be
    /// dropped in the line, and the process with it.
    fn leaving<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(catch_unwind(AssertUnwindSafe(|| self.sample())).ok(), Reach::Now, act)
    }

    fn sampled<R>(
        &self,
        sample: Option<Sample>,
        reach: Reach,
        act: impl FnOnce(&mut State, &Rovers, Sample) -> R,
    ) -> R {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let mut sample = sample.unwrap_or(state.stride.seen);
        while state.settle(&self.rovers, sample.now, reach, &mut wakes) == Progress::Again {
            (state, sample) = self.again(state, sample, &mut wakes);
        }
        state.observe(&self.rovers, sample);
        let result = act(&mut state, &self.rovers, sample);
        while state.finish(&self.rovers, sample.now, &mut wakes) == Progress::Again {
            (state, sample) = self.again(state, sample, &mut wakes);
        }
        drop(state);
        Self::leave(&mut wakes);
        result
    }

    /// What is done without the lock: wakes, then has the other lines of joint claims look, one after the other, so
    /// that a chain of them does not grow the stack.
    pub(crate) fn leave(wakes: &mut Wakes) {
        wakes.wake_all();
        while let Some(knot) = wakes.pop_knot() {
            for shared in knot.members() {
                shared.serve_into(wakes);
            }
        }
    }

    /// Serves this line; what it calls for in others is left in `wakes`.
    pub(crate) fn serve_into(&self, wakes: &mut Wakes) {
        let mut sample = self.sample();
        let mut state = self.state.lock();
        while state.finish(&self.rovers, sample.now, wakes) == Progress::Again {
            (state, sample) = self.again(state, sample, wakes);
        }
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

    // ---- coming and going -------------------------------------------------------------------------------------

    /// Grants, saying what remains.
    #[inline]
    pub(crate) fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        match self.rovers.try_claim(cost) {
            Some(ticket) => Ok(self.rovers.left_behind(ticket)),
            None => self.look_at(|state, rovers, sample| state.try_acquire(rovers, cost, sample.now)),
        }
    }

    /// The fast path of those who may wait: says what remains.
    #[inline]
    pub(crate) fn try_claim(&self, cost: u64) -> Option<u64> {
        // Of no price where the cost is known: and else a claim could be larger while the fast path is open.
        if cost > MOST_COST { None } else { self.rovers.try_claim(cost).map(|ticket| self.rovers.left_behind(ticket)) }
    }

    /// The first poll of a claim; ready with what remains.
    #[inline]
    pub(crate) fn arrive(
        &self,
        place: Pin<&mut Place>,
        cost: u64,
        allowed: Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<u64, ConsumeError>> {
        match self.try_claim(cost) {
            Some(remaining) => Poll::Ready(Ok(remaining)),
            None => self.arrive_slowly(place, cost, allowed, waker),
        }
    }

    #[cold]
    fn arrive_slowly(
        &self,
        mut place: Pin<&mut Place>,
        cost: u64,
        allowed: Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<u64, ConsumeError>> {
        let mut waker = Some(waker.clone());
        let host = self.host();
        let (result, unserved) = self.look_at(|state, rovers, sample| {
            // `within` needs a timer of its own.
            let timed = allowed.is_none() || host.is_some() || self.time.is_manual();
            let driven = timed && self.is_driven(state, &host);
            let arrival = Arrival { place: place.as_mut(), cost, waker: &mut waker, allowed, driven };
            (state.arrive(rovers, arrival, sample.now), self.is_unserved(state, &host))
        });
        drop_quietly(waker);
        match result {
            Ok(Some(remaining)) => Poll::Ready(Ok(remaining)),
            Ok(None) => self.wait_here(place, cost, unserved, &host),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// A later poll of a claim that waits.
    pub(crate) fn look(&self, mut place: Pin<&mut Place>, cost: u64, waker: &Waker) -> Poll<Result<u64, ConsumeError>> {
        match self.check(place.as_mut(), waker) {
            (Poll::Ready(Outcome::Granted { remaining }), _, _) => Poll::Ready(Ok(remaining)),
            (Poll::Ready(Outcome::Closed | Outcome::Untied), _, _) => Poll::Ready(Err(ConsumeError::Closed)),
            (Poll::Pending, unserved, host) => self.wait_here(place, cost, unserved, &host),
        }
    }

    /// Whether `place` was called out, else leaves `waker` there; and whether its runtime has no driver.
    pub(crate) fn check(&self, place: Pin<&mut Place>, waker: &Waker) -> (Poll<Outcome>, bool, Option<Handle>) {
        // Cloned before the lock, and whichever of the two is not kept is dropped after it.
        let waker = waker.clone();
        let host = self.host();
        let mut state = self.state.lock();
        let looked = state.line.look(place, waker);
        let unserved = self.is_unserved(&state, &host);
        drop(state);
        let (outcome, spare) = looked;
        drop_quietly(spare);
        (outcome.map_or(Poll::Pending, Poll::Ready), unserved, host)
    }

    /// `place` waits, on a runtime that may have no driver yet: because it is the first here, or was polled on another
    /// runtime before.
    fn wait_here(
        &self,
        place: Pin<&mut Place>,
        cost: u64,
        unserved: bool,
        host: &Option<Handle>,
    ) -> Poll<Result<u64, ConsumeError>> {
        if !unserved {
            return Poll::Pending;
        }
        match catch_unwind(AssertUnwindSafe(|| host.as_ref().is_some_and(|host| self.serve_here(host)))) {
            Ok(true) => Poll::Pending,
            Ok(false) => {
                self.cancel(place, cost);
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            Err(no_timers) => {
                // Whoever catches this holds a future that does not stand in the line.
                self.cancel(place, cost);
                resume_unwind(no_timers)
            }
        }
    }

    /// The claim in `place` is dropped: it leaves the line, or gives back what it was granted and did not see.
    pub(crate) fn cancel(&self, place: Pin<&mut Place>, cost: u64) {
        let _waker = self.leaving(|state, rovers, _| {
            let (outcome, waker) = state.depart(rovers, place);
            if let Some(Outcome::Granted { .. }) = outcome {
                state.give_back(rovers, cost);
            }
            waker
        });
    }

    /// A grant of `cost` that nobody saw.
    pub(crate) fn give_back(&self, cost: u64) {
        self.leaving(|state, rovers, _| state.give_back(rovers, cost));
    }

    /// The claim in `place` ran out of time: it leaves the line, unless it was called out in this very moment.
    pub(crate) fn give_up(&self, place: Pin<&mut Place>) -> Option<Outcome> {
        let (outcome, _waker) = self.leaving(|state, rovers, _| state.depart(rovers, place));
        outcome
    }

    // ---- afterwards -------------------------------------------------------------------------------------------

    /// Tokens in flight have landed.
    #[inline]
    pub(crate) fn release(&self, cost: u64) {
        if self.rovers.release(cost) {
            self.tick();
        }
    }

    pub(crate) fn forget(&self, cost: u64) {
        self.owed.fetch_add(cost, Ordering::AcqRel);
    }

    pub(crate) fn release_owed(&self, asked: u64) -> Result<(), ReleaseError> {
        if !self.capped {
            return Err(ReleaseError::NotCapped);
        }
        let mut owed = self.owed.load(Ordering::Acquire);
        loop {
            let left = owed.checked_sub(asked).ok_or(ReleaseError::TooMuch { asked, owed })?;
            match self.owed.compare_exchange_weak(owed, left, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => owed = now,
            }
        }
        self.release(asked);
        Ok(())
    }

    /// Changes what a grant cost, and says what it costs now.
    pub(crate) fn resettle(&self, cost: u64, actual: u64) -> u64 {
        if actual > cost {
            return cost + self.with(|state, rovers, _| state.charge(rovers, actual - cost));
        }
        if actual < cost {
            self.with(|state, rovers, _| state.give_back(rovers, cost - actual));
        }
        actual
    }

    /// Mints what is due and serves the line.
    pub(crate) fn tick(&self) {
        self.look_at(|_, _, _| ());
    }

    // ---- drivers ----------------------------------------------------------------------------------------------

    /// The runtime that would serve a caller who has to wait; `None` where no timer can, or need.
    pub(crate) fn host(&self) -> Option<Handle> {
        if self.time.is_manual() { None } else { Handle::try_current().ok() }
    }

    /// Whether somebody will serve the line for a caller hosted here, or can be hired to.
    pub(crate) fn is_driven(&self, state: &State, host: &Option<Handle>) -> bool {
        self.time.is_manual() || host.is_some() || state.drivers.serve_outside()
    }

    /// Whether nobody serves the line for a caller hosted here, yet or any more.
    fn is_unserved(&self, state: &State, host: &Option<Handle>) -> bool {
        match host {
            Some(host) => !state.drivers.serve(host),
            None => !self.is_driven(state, host),
        }
    }

    /// Has the runtime we are on serve this line. False if it is shutting down.
    ///
    /// # Panics
    /// If it has no timers: in the caller's hands, where it can be seen, rather than in a background task.
    pub(crate) fn serve_here(&self, host: &Handle) -> bool {
        if self.state.lock().drivers.serve(host) {
            return true;
        }
        drop(Alarm::new());
        self.serve_from(host)
    }

    /// Has runtime `host` serve this line and all that its joint claims stand in: whoever waits on `host` behind one of
    /// them is not to depend on other runtimes. (So every line tied to one that `host` serves is served by it too.)
    /// False if it is shutting down.
    pub(crate) fn serve_from(&self, host: &Handle) -> bool {
        match self.hire(host) {
            Hired::Now => {}
            Hired::Before => return true,
            Hired::InVain => return false,
        }
        let mut tied = self.tied_to();
        while let Some(shared) = tied.pop() {
            if let Hired::Now = shared.hire(host) {
                tied.extend(shared.tied_to());
            }
        }
        true
    }

    /// Spawns a driver on `host`, unless it has one here.
    fn hire(&self, host: &Handle) -> Hired {
        let mut state = self.state.lock();
        if state.drivers.serve(host) {
            return Hired::Before;
        }
        if let Some(warden) = &self.warden {
            drop(state);
            return if warden.hire(host, self) { Hired::Now } else { Hired::InVain };
        }
        // Registered at once, so that the next waiter does not do it again.
        let id = state.drivers.add(Kind::Hired(host.clone()));
        drop(state);
        host.spawn(Replenisher::registered(Registration::adopt(self.weak(), id)));
        if self.state.lock().drivers.contains(id) { Hired::Now } else { Hired::InVain }
    }

    /// The lines that joint claims in this one also stand in.
    fn tied_to(&self) -> Vec<Arc<Shared>> {
        let state = self.state.lock();
        if !state.line.is_tied() {
            return Vec::new();
        }
        let strands = state.line.iter().filter_map(|waiter| waiter.strand.as_ref());
        let knots: Vec<Arc<Knot>> = strands.map(|strand| Arc::clone(&strand.knot)).collect();
        drop(state);
        knots.iter().flat_map(|knot| knot.members()).filter(|shared| !std::ptr::eq(&**shared, self)).collect()
    }

    /// Has the lines that joint claims in this one also stand in look, and those beyond. True if there are any.
    pub(crate) fn tick_tied(&self) -> bool {
        let mut seen: Vec<Arc<Shared>> = Vec::new();
        let mut tied = self.tied_to();
        while let Some(shared) = tied.pop() {
            if std::ptr::eq(&*shared, self) || seen.iter().any(|known| Arc::ptr_eq(known, &shared)) {
                continue;
            }
            shared.tick();
            tied.extend(shared.tied_to());
            seen.push(shared);
        }
        !seen.is_empty()
    }

    /// The runtimes that serve this line.
    pub(crate) fn hosts(&self) -> Vec<Handle> {
        self.state.lock().drivers.hosts().cloned().collect()
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.weak.clone()
    }

    pub(crate) fn add_driver(&self, kind: Kind) -> u64 {
        self.state.lock().drivers.add(kind)
    }

    /// Driver `id` ends. Whoever waits looks again, so that the runtimes of the others find it gone.
    pub(crate) fn remove_driver(&self, id: u64) {
        let mut state = self.state.lock();
        let own = state.drivers.remove(id);
        let is_missed = own.as_ref().is_some_and(Driver::serves_others);
        let waiting = if is_missed { state.line.take_wakers() } else { Vec::new() };
        drop(state);
        drop(own);
        wake_each(waiting);
    }

    /// One turn of a driver: serves what is due, then says until when to sleep; `waker` cuts the sleep short.
    pub(crate) fn drive(&self, id: u64, waker: &Waker) -> Drive {
        let waker = waker.clone();
        let mut sample = self.sample();
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        for _ in 0..BATCHES_PER_TURN {
            if state.finish(&self.rovers, sample.now, &mut wakes) == Progress::Done {
                let due = state.due();
                let _old = state.drivers.sleep(id, due, waker);
                drop(state);
                Self::leave(&mut wakes);
                return Drive::Until(due);
            }
            (state, sample) = self.again(state, sample, &mut wakes);
        }
        drop(state);
        Self::leave(&mut wakes);
        Drive::Yield
    }
}

/// Drops what may be the user's and may panic: no grant must be lost by that.
fn drop_quietly(spare: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(spare))).map_err(std::mem::forget);
}

impl Drop for Shared {
    /// The last limiter is gone, and nobody can be waiting: its drivers find that out and end.
    fn drop(&mut self) {
        let drivers = self.state.lock().drivers.take_wakers();
        wake_each(drivers);
    }
}
