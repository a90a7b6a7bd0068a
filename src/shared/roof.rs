//! A line under a roof: another limiter, which must grant whatever this one grants. Both or neither.
//!
//! Of those who wait in the line only the one at its front stands in the roof's line too, and only once its tokens are
//! there: it sends an *envoy*. So a long line has one place there, a line that is not ready has none, and whoever stands in
//! the roof's line waits for nothing else. The envoy is a strand of the [`Knot`] that the front holds the other strand of:
//! the roof alone decides, and whoever takes the claim away first, a cancelled future or a smaller quota, kills the knot.
//!
//! Both locks are taken, the line's first, by whoever finds the line [knocking](State::is_knocking) when it leaves the
//! line's lock; so an envoy is where its front is, as soon as the last one who changed that is done.
//!
//! What is granted without waiting in the roof's line counts there from now, and in the line from its own instant: a late
//! timer is not charged to anybody. What had to wait in the roof's line counts in both from the instant it was granted
//! there.

use super::Shared;
use crate::clock::Time;
use crate::error::{ConsumeError, Denied, TryAcquireError};
use crate::knot::{Knot, Strand};
use crate::queue::{Outcome, Place};
use crate::state::{MOST_COST, Progress, Reach, Sample, State};
use crate::sync::{Mutex, MutexGuard};
use crate::wakes::Wakes;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// A keyed limiter under this limiter.
pub(crate) trait Tenant: Send + Sync {
    /// The roof was closed.
    fn close(&self);
}

/// The roof of one line.
pub(super) struct Roof {
    pub(super) limiter: Arc<Shared>,
    /// Whether the two read the same clock.
    one_clock: bool,
    /// Touched under both locks only, but for the end: this lock is for the compiler.
    envoy: Mutex<Option<Pin<Box<Place>>>>,
}

impl Roof {
    pub(super) fn new(limiter: Arc<Shared>, time: &Time) -> Self {
        let one_clock = limiter.time.is_one_with(time);
        Self { limiter, one_clock, envoy: Mutex::new(None) }
    }
}

impl Drop for Roof {
    /// Nobody waits in the line, so the envoy was called out or has left: but its place may not have been emptied.
    fn drop(&mut self) {
        let mut envoy = self.envoy.lock();
        if let Some(place) = envoy.as_mut().filter(|place| place.is_entered()) {
            self.limiter.leaving(|state, rovers, _| drop(state.depart(rovers, place.as_mut())));
        }
    }
}

impl Shared {
    pub(super) fn roof(&self) -> Option<&Roof> {
        if self.roofed { self.aside.ward.as_ref()?.roof.as_ref() } else { None }
    }

    /// The limiter above this line.
    pub(crate) fn above(&self) -> Option<&Arc<Shared>> {
        self.roof().map(|roof| &roof.limiter)
    }

    /// [`try_acquire_untold`](Self::try_acquire_untold) from both, if there is a roof.
    pub(crate) fn try_acquire_under_roof(&self, cost: u64) -> Result<u64, TryAcquireError> {
        let Some(roof) = self.roof() else { return self.try_acquire_untold(cost) };
        let mut wakes = Wakes::default();
        let mut both = Both::enter(self, roof, &mut wakes);
        let answer = both.try_acquire(cost);
        both.leave(&mut wakes);
        Self::leave(&mut wakes);
        answer
    }

    /// Takes `cost` tokens from both if nobody waits, and says what remains here; `None` if the caller has to wait.
    pub(super) fn admit_under(
        &self,
        roof: &Roof,
        cost: u64,
        allowed: Option<u64>,
    ) -> Result<Option<u64>, ConsumeError> {
        let mut wakes = Wakes::default();
        let mut both = Both::enter(self, roof, &mut wakes);
        let answer = both.arrive(cost, allowed);
        both.leave(&mut wakes);
        Self::leave(&mut wakes);
        answer
    }

    /// Has `tenant` closed when this limiter is. False if it is closed already.
    pub(crate) fn take_in(&self, tenant: Weak<dyn Tenant>) -> bool {
        let mut state = self.state.lock();
        let tenants = &mut state.rare().tenants;
        tenants.retain(|tenant| tenant.strong_count() > 0);
        tenants.push(tenant);
        !state.closed
    }

    pub(crate) fn close_tenants(&self) {
        let tenants = std::mem::take(&mut self.state.lock().rare().tenants);
        tenants.iter().filter_map(Weak::upgrade).for_each(|tenant| tenant.close());
    }

    /// How long a claim of `cost` that comes in `delay` will have waited by then; see [`State::estimate_later`].
    pub(crate) fn estimate_later(&self, cost: u64, delay: Duration) -> Option<Duration> {
        self.look_at(|state, rovers, sample| state.estimate_later(rovers, cost, sample.now, delay))
    }

    /// What a line under this one says in the end that has denied `cost` tokens.
    pub(crate) fn deny_too(&self, cost: u64, denied: Denied) -> TryAcquireError {
        self.look_at(|state, rovers, sample| state.deny_too(rovers, cost, sample.now, denied))
    }

    /// Why this limiter does not grant now what a line under it could have granted, with `remaining` tokens; `None` if it
    /// does.
    pub(crate) fn refusal(&self, cost: u64, remaining: u64) -> Option<TryAcquireError> {
        self.look_at(|state, rovers, sample| {
            if state.can_admit(rovers, cost) {
                return None;
            }
            state.try_acquire(rovers, cost, sample.now).err().map(|error| State::as_roof(error, remaining))
        })
    }

    /// Takes `cost` tokens if they are there and nobody waits; for those who hold the lock of a room.
    pub(crate) fn admit_now(&self, cost: u64, sample: Sample) -> bool {
        self.try_claim(cost).is_some() || cost <= MOST_COST && self.admit_idle(cost, sample).is_some()
    }

    /// Does for the front of this line what is to be done in the roof's: takes its tokens, sends its envoy, or calls back
    /// one that is nobody's.
    pub(super) fn climb(&self, wakes: &mut Wakes) {
        let Some(roof) = self.roof() else { return };
        let mut both = Both::enter(self, roof, wakes);
        both.serve_front(wakes);
        both.leave(wakes);
    }
}

const FITS: &str = "it fits, and the fast path of a line under a roof is closed";

/// A line and its roof, locked and brought up to date.
struct Both<'a> {
    line: &'a Shared,
    roof: &'a Roof,
    now: Sample,
    now_above: Sample,
    state: MutexGuard<'a, State>,
    above: MutexGuard<'a, State>,
}

impl<'a> Both<'a> {
    fn enter(line: &'a Shared, roof: &'a Roof, wakes: &mut Wakes) -> Self {
        loop {
            // A clock that panics stands still: what is done here must be done.
            let (now, now_above) = (line.sample_anyway(), roof.limiter.sample_anyway());
            let state = line.state.lock();
            let above = roof.limiter.state.lock();
            let now = now.unwrap_or_else(|| state.last_sample());
            let mut now_above = now_above.unwrap_or_else(|| above.last_sample());
            if roof.one_clock {
                // Somebody with a later reading may have brought the line to where its front is ready: what is asked for it
                // above is asked as of then, not of a past in which the roof was fuller.
                let seen = roof.limiter.time.translate(&line.time, state.supply.synced());
                now_above.now = now_above.now.max(u64::try_from(seen).unwrap_or(0));
            }
            let mut both = Self { line, roof, now, now_above, state, above };
            if both.settle(wakes) {
                return both;
            }
            drop(both);
            wakes.wake_all();
        }
    }

    /// False if `wakes` was too small for that.
    fn settle(&mut self, wakes: &mut Wakes) -> bool {
        let above = &self.roof.limiter.rovers;
        if self.above.settle(above, self.now_above.now, Reach::Held, wakes) == Progress::Again
            || self.state.settle(&self.line.rovers, self.now.now, Reach::Held, wakes) == Progress::Again
        {
            return false;
        }
        self.above.observe(above, self.now_above);
        self.state.observe(&self.line.rovers, self.now);
        true
    }

    /// Takes `cost` tokens from both if nobody waits, and says what remains in the line.
    fn admit(&mut self, cost: u64) -> Option<u64> {
        if !self.state.can_admit(&self.line.rovers, cost) || !self.admit_above(cost) {
            return None;
        }
        Some(self.state.admit(&self.line.rovers, cost).expect(FITS))
    }

    fn admit_above(&mut self, cost: u64) -> bool {
        !self.above.closed && self.above.admit(&self.roof.limiter.rovers, cost).is_some()
    }

    fn try_acquire(&mut self, cost: u64) -> Result<u64, TryAcquireError> {
        let (rovers, above) = (&self.line.rovers, &self.roof.limiter.rovers);
        if cost == 0 {
            return self.state.try_acquire(rovers, cost, self.now.now);
        }
        let now = self.now_above.now;
        if !self.state.can_admit(rovers, cost) {
            let refused = self.state.try_acquire(rovers, cost, self.now.now);
            return refused.map_err(|error| match error {
                TryAcquireError::Denied(denied) => self.above.deny_too(above, cost, now, denied),
                error => error,
            });
        }
        let remaining = self.state.available(rovers);
        match self.above.try_acquire(above, cost, now) {
            Ok(_) => Ok(self.state.admit(rovers, cost).expect(FITS)),
            Err(error) => Err(State::as_roof(error, remaining)),
        }
    }

    fn arrive(&mut self, cost: u64, allowed: Option<u64>) -> Result<Option<u64>, ConsumeError> {
        let above = &self.roof.limiter.rovers;
        if cost == 0 {
            return Ok(None);
        }
        if let Some(remaining) = self.admit(cost) {
            return Ok(Some(remaining));
        }
        self.above.check_claim(above, cost)?;
        let Some(allowed) = allowed.map(Duration::from_nanos) else { return Ok(None) };
        let delay = self.state.estimate(&self.line.rovers, cost, self.now.now);
        match delay.and_then(|delay| self.above.estimate_later(above, cost, self.now_above.now, delay)) {
            Some(estimate) if estimate > allowed => Err(ConsumeError::TooLate { estimate, allowed }),
            _ => Ok(None),
        }
    }

    fn serve_front(&mut self, wakes: &mut Wakes) {
        while let Some(cost) = self.state.ready_front() {
            if wakes.is_full() {
                return;
            }
            if self.above.closed {
                self.state.close(&self.line.rovers);
            } else if self.admit_above(cost) {
                self.state.grant_front(&self.line.rovers, self.now.now, wakes);
            } else if let Some(most) = self.above.overruns(&self.roof.limiter.rovers, cost) {
                // It had its place there when it came, which others have taken since: those of all keys enter at once.
                self.state.turn_front_away(&self.line.rovers, Outcome::TooLarge { cost, most }, wakes);
            } else {
                self.send_envoy(cost);
            }
            if self.state.settle(&self.line.rovers, self.now.now, Reach::Held, wakes) == Progress::Again {
                // Whatever was learned: the time is not read anew here.
                (wakes.heard, wakes.landed) = Default::default();
                return;
            }
        }
        if self.state.take_recall() {
            self.call_envoy_back();
        }
    }

    fn send_envoy(&mut self, cost: u64) {
        self.call_envoy_back();
        let (own, above) = (&self.line.time, &self.roof.limiter.time);
        let entered = self.now.now;
        let entered_above =
            if self.roof.one_clock { above.translate(own, entered) } else { self.now_above.now as i128 };
        let knot = Knot::of_envoy(self.line.weak(), self.roof.one_clock);
        let (strand, envoy) = Strand::pair(knot, entered as i128, entered_above);
        let mut place = self.roof.envoy.lock();
        let place = place.get_or_insert_with(|| Box::pin(Place::new()));
        let rovers = &self.roof.limiter.rovers;
        self.above.catch_up(rovers, self.now_above.now);
        self.above.enter(rovers, place.as_mut(), cost, Waker::noop().clone(), Some(Box::new(envoy)));
        self.state.line.tie_front(Box::new(strand));
    }

    /// Empties the envoy's place: it is nobody's, or its tokens have been granted to whoever sent it.
    fn call_envoy_back(&mut self) {
        if let Some(place) = self.roof.envoy.lock().as_mut() {
            drop(self.above.depart(&self.roof.limiter.rovers, place.as_mut()));
        }
    }

    fn leave(mut self, wakes: &mut Wakes) {
        let above = self.above.finish(&self.roof.limiter.rovers, self.now_above.now, wakes);
        let own = self.state.finish(&self.line.rovers, self.now.now, wakes);
        let knocks = self.state.is_knocking();
        let (line, roof) = (self.line, &self.roof.limiter);
        drop(self);
        wakes.wake_all();
        if above == Progress::Again {
            roof.serve_into(wakes);
        }
        if own == Progress::Again {
            line.serve_into(wakes);
        } else if knocks {
            wakes.push_knock(line.weak());
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{Limiter, Quota};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    struct Keys(AtomicBool);

    impl Tenant for Keys {
        fn close(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn take_in(limiter: &Limiter, tenant: &Arc<Keys>) -> bool {
        let tenant: Weak<Keys> = Arc::downgrade(tenant);
        limiter.shared().take_in(tenant)
    }

    #[test]
    fn all_tenants_are_closed_and_those_that_are_gone_take_no_memory() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        let tenants = [(); 3].map(|()| Arc::new(Keys::default()));
        assert!(tenants.iter().all(|tenant| take_in(&limiter, tenant)));
        assert!((0..100).all(|_| take_in(&limiter, &Arc::default())));
        // The last one is found to be gone when the next one comes.
        assert_eq!(limiter.shared().state.lock().rare().tenants.len(), 4);
        limiter.close();
        assert!(tenants.iter().all(|tenant| tenant.0.load(Ordering::Relaxed)));
        assert!(!take_in(&limiter, &tenants[0]), "it is closed");
    }
}
