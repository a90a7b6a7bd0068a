//! The lock protocol: an operation that acts on the state of one queue, or of several queues at once, goes through
//! [`with_locked`]. Shorter ways for common cases are in `claims.rs`, and reviews of joint claims have a way of their own.
//!
//! 1. Read the tail and the time of each queue.
//! 2. Take the locks in the order given by the caller: those with a parent first, then the others, each by address.
//! 3. Serve each queue up to its time.
//! 4. Act.
//! 5. Serve again, publish, and wake the drivers whose alarms are too late.
//! 6. Release the locks. Then wake, and serve the queues for which the batch of wakers had no space.
//!
//! No user code runs under a lock: clocks are read and wakers are cloned before it is taken, wakers are woken and
//! dropped after it is released.

use super::Core;
use crate::core::rovers::Rovers;
use crate::core::state::{CatchUp, Reach, Sample, Served, State};
use crate::core::wakes::Wakes;
use crate::sync::MutexGuard;

/// How many steps [`Core::look_ahead`] takes before it looks at the rest at once: enough for 250,000 waiters.
const MOST_STEPS_AHEAD: usize = 16;

/// A queue that is locked and served up to its sample.
pub(crate) struct Locked<'a> {
    pub(crate) core: &'a Core,
    pub(crate) sample: Sample,
    pub(crate) state: MutexGuard<'a, State>,
    /// More is due, and the drivers will serve the rest. Only set where a single queue is locked, and if the caller
    /// allows it.
    is_behind: bool,
    /// If the queue has to be served again after the action: the sample, and whether the queue is behind.
    rest: Option<(Sample, bool)>,
}

/// The limiters that are locked together: one or two, or those of a joint claim.
pub(crate) trait Cores<'a> {
    type Locked: AsMut<[Locked<'a>]>;

    fn all(&self) -> &[&'a Core];

    /// Locks them in their order. `sample` is told the place of each.
    fn lock(&self, sample: impl Fn(usize) -> Option<Sample>) -> Self::Locked;
}

impl<'a, const N: usize> Cores<'a> for [&'a Core; N] {
    type Locked = [Locked<'a>; N];

    fn all(&self) -> &[&'a Core] {
        self
    }

    #[inline]
    fn lock(&self, sample: impl Fn(usize) -> Option<Sample>) -> [Locked<'a>; N] {
        std::array::from_fn(|place| Locked::lock(self[place], sample(place)))
    }
}

impl<'a> Cores<'a> for Vec<&'a Core> {
    type Locked = Vec<Locked<'a>>;

    fn all(&self) -> &[&'a Core] {
        self
    }

    fn lock(&self, sample: impl Fn(usize) -> Option<Sample>) -> Vec<Locked<'a>> {
        self.iter().enumerate().map(|(place, core)| Locked::lock(core, sample(place))).collect()
    }
}

/// Runs `act` on the locked states of `cores`; see the head of this file. `samples` are the readings of tail and time,
/// `None` where the clock panicked: the last sample is used then. `align` can change the samples once the locks are
/// held. Afterwards the caller runs [`Wakes::run`].
#[inline]
pub(crate) fn with_locked<'a, C: Cores<'a>, R>(
    wakes: &mut Wakes,
    cores: C,
    samples: &[Option<Sample>],
    reach: Reach,
    catch_up: CatchUp,
    align: impl Fn(&mut [Locked<'a>]),
    act: impl FnOnce(&mut [Locked<'a>], &mut Wakes) -> R,
) -> R {
    let mut locked = cores.lock(|place| samples[place]);
    align(locked.as_mut());
    // A parent is served before its child.
    while !locked.as_mut().iter_mut().rev().all(|queue| queue.settle(reach, wakes)) {
        let queues = locked.as_mut();
        let is_full = wakes.is_full();
        let awaited = queues.iter_mut().find_map(|queue| queue.state.awaited_child());
        let reviews: Vec<_> = queues.iter().filter_map(|queue| queue.state.due_review()).collect();
        queues.iter_mut().for_each(Locked::interrupt);
        drop(locked);
        wakes.wake_or_ask(awaited);
        reviews.into_iter().for_each(|set| set.review(wakes));
        locked = cores.lock(|place| cores.all()[place].sample_or_last());
        align(locked.as_mut());
        let queues = locked.as_mut();
        if is_full && catch_up == CatchUp::Batch && queues.iter().all(|queue| queue.core.can_hand_over(&queue.state)) {
            queues.iter_mut().for_each(|queue| queue.is_behind = true);
            break;
        }
    }
    let queues = locked.as_mut();
    queues
        .iter_mut()
        .filter(|queue| !queue.is_behind)
        .for_each(|queue| queue.state.note_sample(&queue.core.rovers, queue.sample));
    let result = act(queues, wakes);
    let mut is_done = true;
    for queue in queues.iter_mut().rev() {
        is_done &= queue.finish(wakes);
    }
    if is_done {
        drop(locked);
        wakes.wake_all();
    } else {
        serve_rest(locked, wakes);
    }
    result
}

/// Releases the locks, and serves what an operation left.
#[cold]
#[inline(never)]
fn serve_rest<'a>(mut locked: impl AsMut<[Locked<'a>]>, wakes: &mut Wakes) {
    let rest = |queue: &Locked<'a>| Some((queue.core, queue.rest?));
    let rest: Vec<_> = locked.as_mut().iter().filter_map(rest).collect();
    drop(locked);
    wakes.wake_all();
    for (core, (before, is_behind)) in rest {
        let sample = core.sample_or_last().unwrap_or(before);
        core.serve_locked(core.state.lock(), sample, is_behind, wakes);
    }
}

impl<'a> Locked<'a> {
    /// Locks a queue. Without a sample the last one is used.
    #[inline]
    pub(super) fn lock(core: &'a Core, sample: Option<Sample>) -> Self {
        let state = core.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        Self::new(core, sample, state)
    }

    #[inline]
    pub(super) fn new(core: &'a Core, sample: Sample, state: MutexGuard<'a, State>) -> Self {
        state.assert_kept(&core.rovers);
        Self { core, sample, state, is_behind: false, rest: None }
    }

    /// Serves the queue up to the sample. Returns false if the locks must be released before that.
    #[inline]
    pub(super) fn settle(&mut self, reach: Reach, wakes: &mut Wakes) -> bool {
        self.state.settle(&self.core.rovers, self.sample.now, reach, wakes) == Served::All
    }

    /// Call before the locks are released although the action has not run, or the queue is not served up to its sample.
    pub(super) fn interrupt(&mut self) {
        self.state.leave_unfinished(&self.core.rovers);
    }

    /// Completes the action. Returns false, and sets `rest`, if the queue has to be served again.
    #[inline(always)]
    fn finish(&mut self, wakes: &mut Wakes) -> bool {
        let (rovers, now) = (&self.core.rovers, self.sample.now);
        let is_behind = self.is_behind && self.core.can_hand_over(&self.state);
        let progress =
            if is_behind { self.state.hand_over(rovers, now, wakes) } else { self.state.finish(rovers, now, wakes) };
        if progress == Served::Again {
            self.rest = Some((self.sample, wakes.is_full()));
            return false;
        }
        self.core.note_parent_poll(&self.state, wakes);
        true
    }

    #[inline]
    fn act<R>(&mut self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        let (rovers, sample) = (&self.core.rovers, self.sample);
        if self.is_behind {
            self.state.act_behind(sample.now, |state| act(state, rovers, sample))
        } else {
            act(&mut self.state, rovers, sample)
        }
    }
}

impl Core {
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

    /// Like [`look_at`](Self::look_at), for acts that may tell how long a claim of `cost` would wait. Behind a long queue this
    /// looks ahead in steps first, and releases the lock between them.
    // Never inlined, so that most waits pay for one check.
    #[inline(never)]
    pub(crate) fn look_ahead<R>(
        &self,
        mut sample: Sample,
        cost: u64,
        mut act: impl FnMut(&mut State, &Rovers, Sample) -> R,
    ) -> R {
        for steps_left in (0..MOST_STEPS_AHEAD).rev() {
            let result = self.sampled(Some(sample), Reach::Held, CatchUp::Batch, |state, rovers, sample| {
                // Other callers may void the steps again and again.
                (steps_left == 0 || state.prepare_to_predict(rovers, cost)).then(|| act(state, rovers, sample))
            });
            match result {
                Some(result) => return result,
                None => sample = self.sample(),
            }
        }
        unreachable!("the last step acts")
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
    pub(crate) fn with_anyway<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> R {
        self.sampled(self.sample_or_last(), Reach::Now, CatchUp::Fully, act)
    }

    /// Like [`with_anyway`](Self::with_anyway), for acts that need the present time: if the clock panics, nothing is done, and
    /// the result is `None`.
    pub(crate) fn with_present<R>(&self, act: impl FnOnce(&mut State, &Rovers, Sample) -> R) -> Option<R> {
        let sample = self.sample_or_last()?;
        Some(self.sampled(Some(sample), Reach::Now, CatchUp::Fully, act))
    }

    #[inline]
    pub(super) fn sampled<R>(
        &self,
        sample: Option<Sample>,
        reach: Reach,
        catch_up: CatchUp,
        act: impl FnOnce(&mut State, &Rovers, Sample) -> R,
    ) -> R {
        let mut wakes = Wakes::default();
        if self.has_parent && sample.is_none_or(|sample| self.state.lock().last_due() <= sample.now) {
            // Claims that are ready get the parent's answers first, each as of its own instant.
            self.serve_into(&mut wakes);
            wakes.run();
        }
        let result =
            with_locked(&mut wakes, [self], &[sample], reach, catch_up, |_| (), |queues, _| queues[0].act(act));
        wakes.run();
        result
    }

    /// Mints what is due and serves the queue.
    pub(crate) fn tick(&self) {
        let sample = self.sample();
        let mut wakes = Wakes::default();
        with_locked(&mut wakes, [self], &[Some(sample)], Reach::Held, CatchUp::Batch, |_| (), |_, _| ());
        wakes.run();
    }

    /// Serves this queue, and collects in `wakes` the work for other queues. If the clock panics, the last sample is
    /// used: the operation that calls this has begun and must be completed.
    pub(super) fn serve_into(&self, wakes: &mut Wakes) {
        let sample = self.sample_or_last();
        let state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        self.serve_locked(state, sample, false, wakes);
    }

    /// Serves one batch, or nothing if the queue `is_behind`, and leaves the rest to the drivers.
    pub(super) fn serve_locked<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut sample: Sample,
        mut is_behind: bool,
        wakes: &mut Wakes,
    ) {
        loop {
            is_behind = is_behind && self.can_hand_over(&state);
            let progress = if is_behind {
                state.hand_over(&self.rovers, sample.now, wakes)
            } else {
                state.finish(&self.rovers, sample.now, wakes)
            };
            if progress == Served::All {
                break;
            }
            is_behind |= wakes.is_full();
            (state, sample) = self.again(state, sample, wakes);
        }
        self.note_parent_poll(&state, wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Whether drivers can serve the rest of the queue. With a manual clock, classes or joint claims, every caller serves all of
    /// it: the scheduler, and the fronts of joint sets, know no claims that have not arrived yet.
    fn can_hand_over(&self, state: &State) -> bool {
        let is_plain = state.classes().is_none() && !state.queue.has_joint();
        !self.time.is_manual() && !state.queue.is_empty() && !state.drivers.is_empty() && is_plain
    }

    /// Releases the lock, wakes or has the awaited child answer, reads the time, and takes the lock again. If the clock
    /// panics, `before` is used: the caller is in the middle of an operation.
    pub(super) fn again<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        before: Sample,
        wakes: &mut Wakes,
    ) -> (MutexGuard<'a, State>, Sample) {
        let awaited = state.awaited_child();
        drop(state);
        wakes.wake_or_ask(awaited);
        let sample = self.sample_or_last().unwrap_or(before);
        (self.state.lock(), sample)
    }

    /// Records, before the lock is released, whether the front of this queue needs something from the parent.
    #[inline]
    pub(crate) fn note_parent_poll(&self, state: &State, wakes: &mut Wakes) {
        if state.wants_parent(&self.rovers) {
            wakes.push_parent_poll(self.weak());
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
