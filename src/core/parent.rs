//! A line under a roof: another limiter, which must grant whatever this one grants. Both or neither.
//!
//! Of those who wait in the line only the one at its front stands in the roof's line too, and only once its tokens are
//! there: it sends an *envoy*. So a long line has one place there, a line that is not ready has none, and whoever stands in
//! the roof's line waits for nothing else. The envoy is a strand of the [`JointClaim`] that the front holds the other strand of:
//! the roof alone decides, and whoever takes the claim away first, a cancelled future or a smaller quota, kills the knot.
//!
//! Both locks are taken, the line's first, by whoever finds the line [knocking](State::is_knocking) when it leaves the
//! line's lock; so an envoy is where its front is, as soon as the last one who changed that is done.
//!
//! What is granted without waiting in the roof's line counts there from now, and in the line from its own instant: a late
//! timer is not charged to anybody. What had to wait in the roof's line counts in both from the instant it was granted
//! there.

use super::Core;
use crate::clock::Time;
use crate::core::joint::{JointClaim, JointPart};
use crate::core::queue::{Outcome, Place};
use crate::core::state::{Reach, Sample, ServeResult, State};
use crate::core::sync::{Mutex, MutexGuard};
use crate::core::wakes::Wakes;
use crate::error::{ConsumeError, Denied, TryAcquireError};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// A keyed limiter under this limiter.
pub(crate) trait ChildLimiter: Send + Sync {
    /// The roof was closed.
    fn close(&self);
}

/// The roof of one line.
pub(super) struct ParentLink {
    pub(super) limiter: Arc<Core>,
    /// Whether the two read the same clock.
    one_clock: bool,
    /// Touched under both locks only, but for the end: this lock is for the compiler.
    parent_ticket: Mutex<Option<Pin<Box<Place>>>>,
}

impl ParentLink {
    pub(super) fn new(limiter: Arc<Core>, time: &Time) -> Self {
        let one_clock = limiter.time.is_one_with(time);
        Self { limiter, one_clock, parent_ticket: Mutex::new(None) }
    }
}

impl Drop for ParentLink {
    /// Nobody waits in the line, so the envoy was called out or has left: but its place may not have been emptied.
    fn drop(&mut self) {
        let mut parent_ticket = self.parent_ticket.lock();
        if let Some(place) = parent_ticket.as_mut().filter(|place| place.is_entered()) {
            self.limiter.leaving(|state, rovers, _| drop(state.depart(rovers, place.as_mut())));
        }
    }
}

impl Core {
    pub(super) fn parent_link(&self) -> Option<&ParentLink> {
        if self.has_parent { self.rare.link.as_ref()?.parent_link.as_ref() } else { None }
    }

    /// The limiter above this line.
    pub(crate) fn parent(&self) -> Option<&Arc<Core>> {
        self.parent_link().map(|parent_link| &parent_link.limiter)
    }

    /// [`try_acquire_unobserved`](Self::try_acquire_untold) from both, if there is a roof.
    pub(crate) fn try_acquire_with_parent(&self, cost: u64) -> Result<u64, TryAcquireError> {
        let Some(parent_link) = self.parent_link() else { return self.try_acquire_unobserved(cost) };
        let mut wakes = Wakes::default();
        let mut both = Both::enter(self, parent_link, &mut wakes);
        let answer = both.try_acquire(cost);
        both.leave(&mut wakes);
        Self::leave(&mut wakes);
        answer
    }

    /// Takes `cost` tokens from both if nobody waits, and says what remains here; `None` if the caller has to wait.
    pub(super) fn admit_with_parent(
        &self,
        parent_link: &ParentLink,
        cost: u64,
        allowed: Option<u64>,
    ) -> Result<Option<u64>, ConsumeError> {
        let mut wakes = Wakes::default();
        let mut both = Both::enter(self, parent_link, &mut wakes);
        let answer = both.arrive(cost, allowed);
        both.leave(&mut wakes);
        Self::leave(&mut wakes);
        answer
    }

    /// Has `child` closed when this limiter is. False if it is closed already.
    pub(crate) fn add_child(&self, child: Weak<dyn ChildLimiter>) -> bool {
        let mut state = self.state.lock();
        let children = &mut state.rare().children;
        children.retain(|child| child.strong_count() > 0);
        children.push(child);
        !state.closed
    }

    pub(crate) fn close_children(&self) {
        let children = std::mem::take(&mut self.state.lock().rare().children);
        children.iter().filter_map(Weak::upgrade).for_each(|child| child.close());
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
            state.try_acquire(rovers, cost, sample.now).err().map(|error| State::as_parent(error, remaining))
        })
    }

    /// Takes `cost` tokens if they are there and nobody waits; for those who hold the lock of a room. As many as a try can take:
    /// what one claim may ask for is checked by the key.
    pub(crate) fn admit_now(&self, cost: u64, sample: Sample) -> bool {
        self.rovers.try_claim(cost).is_some() || self.fast_admit(cost, sample).is_some()
    }

    /// Does for the front of this line what is to be done in the roof's: takes its tokens, sends its envoy, or calls back
    /// one that is nobody's.
    pub(super) fn poll_parent(&self, wakes: &mut Wakes) {
        let Some(parent_link) = self.parent_link() else { return };
        let mut both = Both::enter(self, parent_link, wakes);
        both.serve_front(wakes);
        both.leave(wakes);
    }
}

const FITS: &str = "it fits, and the fast path of a line under a roof is closed";

/// A line and its roof, locked and brought up to date.
struct Both<'a> {
    child: &'a Core,
    parent_link: &'a ParentLink,
    now: Sample,
    parent_now: Sample,
    state: MutexGuard<'a, State>,
    parent: MutexGuard<'a, State>,
}

impl<'a> Both<'a> {
    fn enter(child: &'a Core, parent_link: &'a ParentLink, wakes: &mut Wakes) -> Self {
        loop {
            // A clock that panics stands still: what is done here must be done.
            let (now, parent_now) = (child.sample_or_last(), parent_link.limiter.sample_or_last());
            let state = child.state.lock();
            let parent = parent_link.limiter.state.lock();
            let now = now.unwrap_or_else(|| state.last_sample());
            let mut parent_now = parent_now.unwrap_or_else(|| parent.last_sample());
            if parent_link.one_clock {
                // Somebody with a later reading may have brought the line to where its front is ready: what is asked for it
                // above is asked as of then, not of a past in which the roof was fuller.
                let seen = parent_link.limiter.time.translate(&child.time, state.supply.synced());
                parent_now.now = parent_now.now.max(u64::try_from(seen).unwrap_or(0));
            }
            let mut both = Self { child, parent_link, now, parent_now, state, parent };
            if both.settle(wakes) {
                return both;
            }
            drop(both);
            wakes.wake_all();
        }
    }

    /// False if `wakes` was too small for that.
    fn settle(&mut self, wakes: &mut Wakes) -> bool {
        let parent = &self.parent_link.limiter.rovers;
        if self.parent.settle(parent, self.parent_now.now, Reach::Held, wakes) == ServeResult::Again
            || self.state.settle(&self.child.rovers, self.now.now, Reach::Held, wakes) == ServeResult::Again
        {
            return false;
        }
        self.parent.observe(parent, self.parent_now);
        self.state.observe(&self.child.rovers, self.now);
        true
    }

    /// Takes `cost` tokens from both if nobody waits, and says what remains in the line.
    fn admit(&mut self, cost: u64) -> Option<u64> {
        if !self.state.can_admit(&self.child.rovers, cost) || !self.admit_in_parent(cost) {
            return None;
        }
        Some(self.state.admit(&self.child.rovers, cost).expect(FITS))
    }

    fn admit_in_parent(&mut self, cost: u64) -> bool {
        !self.parent.closed && self.parent.admit(&self.parent_link.limiter.rovers, cost).is_some()
    }

    fn try_acquire(&mut self, cost: u64) -> Result<u64, TryAcquireError> {
        let (rovers, parent) = (&self.child.rovers, &self.parent_link.limiter.rovers);
        if cost == 0 {
            return self.state.try_acquire(rovers, cost, self.now.now);
        }
        let now = self.parent_now.now;
        if !self.state.can_admit(rovers, cost) {
            let refused = self.state.try_acquire(rovers, cost, self.now.now);
            return refused.map_err(|error| match error {
                TryAcquireError::Denied(denied) => self.parent.deny_too(parent, cost, now, denied),
                error => error,
            });
        }
        let remaining = self.state.available(rovers);
        match self.parent.try_acquire(parent, cost, now) {
            Ok(_) => Ok(self.state.admit(rovers, cost).expect(FITS)),
            Err(error) => Err(State::as_parent(error, remaining)),
        }
    }

    fn arrive(&mut self, cost: u64, allowed: Option<u64>) -> Result<Option<u64>, ConsumeError> {
        let parent = &self.parent_link.limiter.rovers;
        if cost == 0 {
            return Ok(None);
        }
        if let Some(remaining) = self.admit(cost) {
            return Ok(Some(remaining));
        }
        self.parent.check_claim(parent, cost)?;
        let Some(allowed) = allowed.map(Duration::from_nanos) else { return Ok(None) };
        let delay = self.state.estimate(&self.child.rovers, cost, self.now.now);
        match delay.and_then(|delay| self.parent.estimate_later(parent, cost, self.parent_now.now, delay)) {
            Some(estimate) if estimate > allowed => Err(ConsumeError::TooLate { estimate, allowed }),
            _ => Ok(None),
        }
    }

    fn serve_front(&mut self, wakes: &mut Wakes) {
        while let Some(cost) = self.state.ready_front() {
            if wakes.is_full() {
                return;
            }
            if self.parent.closed {
                self.state.close(&self.child.rovers);
            } else if self.admit_in_parent(cost) {
                self.state.grant_front(&self.child.rovers, self.now.now, wakes);
            } else if let Some(most) = self.parent.overruns(&self.parent_link.limiter.rovers, cost) {
                // It had its place there when it came, which others have taken since: those of all keys enter at once.
                self.state.turn_front_away(&self.child.rovers, Outcome::TooLarge { cost, most }, wakes);
            } else {
                self.enter_parent_queue(cost);
            }
            if self.state.settle(&self.child.rovers, self.now.now, Reach::Held, wakes) == ServeResult::Again {
                // Whatever was learned: the time is not read anew here.
                (wakes.last_decision, wakes.release_mark) = Default::default();
                return;
            }
        }
        if self.state.take_ticket_recall() {
            self.withdraw_parent_ticket();
        }
    }

    fn enter_parent_queue(&mut self, cost: u64) {
        self.withdraw_parent_ticket();
        let (own, parent) = (&self.child.time, &self.parent_link.limiter.time);
        let entered = self.now.now;
        let entered_parent =
            if self.parent_link.one_clock { parent.translate(own, entered) } else { self.parent_now.now as i128 };
        let joint = JointClaim::of_parent_ticket(self.child.weak(), self.parent_link.one_clock);
        let (part, parent_ticket) = JointPart::pair(joint, entered as i128, entered_parent);
        let mut place = self.parent_link.parent_ticket.lock();
        let place = place.get_or_insert_with(|| Box::pin(Place::new()));
        let rovers = &self.parent_link.limiter.rovers;
        self.parent.enter(rovers, place.as_mut(), cost, Waker::noop().clone(), Some(Box::new(parent_ticket)));
        self.state.queue.join_front(Box::new(part));
    }

    /// Empties the envoy's place: it is nobody's, or its tokens have been granted to whoever sent it.
    fn withdraw_parent_ticket(&mut self) {
        if let Some(place) = self.parent_link.parent_ticket.lock().as_mut() {
            drop(self.parent.depart(&self.parent_link.limiter.rovers, place.as_mut()));
        }
    }

    fn leave(mut self, wakes: &mut Wakes) {
        let parent = self.parent.finish(&self.parent_link.limiter.rovers, self.parent_now.now, wakes);
        let own = self.state.finish(&self.child.rovers, self.now.now, wakes);
        let parent_polls = self.state.wants_parent();
        let (child, parent_link) = (self.child, &self.parent_link.limiter);
        drop(self);
        wakes.wake_all();
        if parent == ServeResult::Again {
            parent_link.serve_into(wakes);
        }
        if own == ServeResult::Again {
            child.serve_into(wakes);
        } else if parent_polls {
            wakes.push_parent_poll(child.weak());
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

    impl ChildLimiter for Keys {
        fn close(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn add_child(limiter: &Limiter, child: &Arc<Keys>) -> bool {
        let child: Weak<Keys> = Arc::downgrade(child);
        limiter.core().add_child(child)
    }

    #[test]
    fn all_tenants_are_closed_and_those_that_are_gone_take_no_memory() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        let children = [(); 3].map(|()| Arc::new(Keys::default()));
        assert!(children.iter().all(|child| add_child(&limiter, child)));
        assert!((0..100).all(|_| add_child(&limiter, &Arc::default())));
        // The last one is found to be gone when the next one comes.
        assert_eq!(limiter.core().state.lock().rare().children.len(), 4);
        limiter.close();
        assert!(children.iter().all(|child| child.0.load(Ordering::Relaxed)));
        assert!(!add_child(&limiter, &children[0]), "it is closed");
    }
}
