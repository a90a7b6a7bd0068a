//! A queue with a parent: another limiter that must grant whatever this one grants. Both grant, or neither does.
//!
//! Of the waiters in the child's queue only the front one also waits in the parent's queue, and only once the child has
//! its tokens ready. It waits there through a *parent ticket*. So a long queue has one place in the parent's queue, a
//! queue with a front that is not ready has none, and a claim in the parent's queue waits for nothing else. The parent
//! ticket is one part of a [`JointClaim`], and the front waiter holds the other part: the parent alone decides.
//! Whatever removes the claim first, a cancelled future or a quota that was lowered, kills the joint claim.
//!
//! Both locks are taken, the child's first, by every caller that finds, before it releases the child's lock, that the
//! queue [wants its parent](State::wants_parent). So the parent ticket belongs to the current front as soon as the
//! caller that changed the front last is done.
//!
//! In a parent with classes each key has a class, from its first ticket on until the key's queue is gone. The scheduler
//! orders these classes as any others. But a class here never has a second claim in line, so when a ticket leaves, the
//! scheduler would take the class for idle and serve its siblings, whatever their weights are. Therefore the parent
//! serves nothing further until the child has *answered*: entered its next claim, or said that there is none. Any caller
//! that finds the parent waiting has the child answer (see `answer_parent`), so it waits for no thread.
//!
//! A claim that the parent grants without waiting counts there from now, and in the child from the instant at which it
//! became ready: no waiter pays for a late timer. A claim that had to wait in the parent's queue counts in both from
//! the instant at which the parent granted it.

use super::Core;
use crate::clock::Time;
use crate::core::classes::{ClassFlags, ClassId, KeyName, ROOT};
use crate::core::joint::{JointClaim, JointPart};
use crate::core::locked::{Locked, lock, with_locked};
use crate::core::outcome::Outcome;
use crate::core::queue::Place;
use crate::core::rovers::Rovers;
use crate::core::state::{CatchUp, ChildLimiter, Reach, Sample, ServeResult, State};
use crate::core::wakes::Wakes;
use crate::error::{ConsumeError, Denied, TryAcquireError};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// Where the queues of children enter their parent: a limiter, or a class of it.
#[derive(Clone)]
pub(crate) struct Parent {
    pub(crate) limiter: Arc<Core>,
    /// With classes, each key has one in this class.
    pub(crate) group: ClassId,
    /// What a caller may know of `group` without the lock; `None` if it is the limiter itself.
    flags: Option<Arc<ClassFlags>>,
    _handle: Arc<dyn Any + Send + Sync>,
}

impl Parent {
    /// `handle` keeps the class alive.
    pub(crate) fn new(
        limiter: Arc<Core>,
        group: ClassId,
        flags: Option<Arc<ClassFlags>>,
        handle: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { limiter, group, flags, _handle: handle }
    }

    /// Takes `cost` tokens if they are available and no claim waits, for a caller that holds the lock of a shard. Any
    /// cost that `try_acquire` can take is allowed: the limit on a single claim is checked by the key.
    #[inline]
    pub(crate) fn admit_now(&self, cost: u64, sample: Sample) -> bool {
        match &self.flags {
            None => self.limiter.admit_now(cost, sample),
            Some(flags) => self.limiter.admit_now_in(flags, cost, sample),
        }
    }

    /// The tokens that a key could get now.
    pub(crate) fn available(&self) -> u64 {
        self.limiter.look_at(|state, rovers, _| state.available_in(rovers, self.group))
    }

    /// How long a claim of `cost` tokens that arrives in `delay` will have waited, counted from now; see
    /// [`State::estimate_later`].
    pub(crate) fn estimate_later(&self, cost: u64, delay: Duration) -> Option<Duration> {
        let group = self.group;
        self.limiter.look_at(|state, rovers, sample| state.estimate_later(rovers, group, cost, sample.now, delay))
    }

    /// The final answer of a child that has denied `cost` tokens: it accounts for the parent too.
    pub(crate) fn deny_too(&self, cost: u64, denied: Denied) -> TryAcquireError {
        let group = self.group;
        self.limiter.look_at(|state, rovers, sample| state.deny_too(rovers, group, cost, sample.now, denied))
    }

    /// The final answer of a child that has refused to wait for `cost` tokens: it accounts for the parent too.
    pub(crate) fn refuse_too(&self, cost: u64, error: ConsumeError) -> ConsumeError {
        let ConsumeError::TooLate { estimate, allowed, .. } = error else { return error };
        let group = self.group;
        self.limiter.look_at(|state, rovers, sample| {
            match state.estimate_later(rovers, group, cost, sample.now, estimate) {
                Some(later) if later > estimate => state.too_late(rovers, cost, later, allowed).as_parent(),
                _ => error,
            }
        })
    }

    /// Why a parent without classes does not grant now the `cost` tokens that a child with `remaining` tokens could
    /// grant. `None` if it does.
    pub(crate) fn refusal(&self, cost: u64, remaining: u64) -> Option<TryAcquireError> {
        self.limiter.look_at(|state, rovers, sample| {
            if state.can_admit(rovers, cost) {
                return None;
            }
            state.try_acquire(rovers, cost, sample.now).err().map(|error| State::as_parent(error, remaining))
        })
    }

    /// Changes the cost of a grant of a key from `cost` to `actual`, as a step of something that has begun: if the clock
    /// panics, the last sample is used. Returns the new cost. `key` is the key, and its weight.
    pub(crate) fn resettle(&self, key: impl FnOnce() -> (KeyName, u64), cost: u64, actual: u64) -> u64 {
        if actual <= cost || !self.limiter.has_classes {
            return self.limiter.resettle_anyway_in(self.group, cost, actual, 0);
        }
        let key = key();
        let charge = |state: &mut State, rovers: &Rovers, _| state.charge_key(rovers, self.group, key, actual - cost);
        cost + self.limiter.with_anyway(charge)
    }
}

impl Deref for Parent {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.limiter
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parent").field("group", &self.group).finish_non_exhaustive()
    }
}

/// Links one queue to its parent.
pub(super) struct ParentLink {
    pub(super) parent: Parent,
    /// Whether both limiters read the same clock.
    one_clock: bool,
    key: KeyName,
    /// The weight of the key's class; 0 until it is set, which is the same as 1.
    weight: AtomicU64,
    /// Accessed only while both limiters' locks are held, except in `drop`. The mutex is there because the compiler
    /// cannot know that.
    ticket: Mutex<Ticket>,
}

/// The parent ticket of the front claim.
#[derive(Default)]
struct Ticket {
    place: Option<Pin<Box<Place>>>,
    /// The class of the key in a parent with classes. It exists from the first ticket on.
    class: Option<ClassId>,
}

impl ParentLink {
    pub(super) fn new(parent: Parent, time: &Time, key: KeyName) -> Self {
        let one_clock = parent.limiter.time.is_one_with(time);
        Self { parent, one_clock, key, weight: AtomicU64::new(0), ticket: Mutex::new(Ticket::default()) }
    }
}

impl Drop for ParentLink {
    /// No claim waits in the child's queue, so the parent ticket was called out or has left. But its place may still
    /// hold an outcome, which is taken here.
    fn drop(&mut self) {
        let mut ticket = self.ticket.lock();
        let Ticket { place, class } = &mut *ticket;
        let place = place.as_mut().filter(|place| place.is_entered());
        if place.is_none() && class.is_none() {
            return;
        }
        self.parent.limiter.leaving(|state, rovers, _| {
            if let Some(place) = place {
                drop(state.depart(rovers, place.as_mut(), class.unwrap_or(ROOT)));
            }
            if let Some(class) = class.take() {
                state.leave_key(class);
            }
        });
    }
}

impl Core {
    pub(super) fn parent_link(&self) -> Option<&ParentLink> {
        if self.has_parent { self.link.as_ref()?.parent_link.as_ref() } else { None }
    }

    /// The parent of this limiter.
    pub(crate) fn parent(&self) -> Option<&Arc<Core>> {
        self.parent_link().map(|parent_link| &parent_link.parent.limiter)
    }

    /// Like [`try_acquire_unobserved`](Self::try_acquire_unobserved), but from both this limiter and its parent, if
    /// there is one.
    pub(crate) fn try_acquire_with_parent(&self, cost: u64) -> Result<u64, TryAcquireError> {
        let Some(parent_link) = self.parent_link() else { return self.try_acquire_unobserved(cost) };
        let mut wakes = Wakes::default();
        let answer = self.with_parent(parent_link, &mut wakes, |both, _| both.try_acquire(cost));
        wakes.run();
        answer
    }

    /// Takes `cost` tokens from both limiters if no claim waits, and returns how many remain in this one. Returns
    /// `None` if the caller has to wait.
    pub(super) fn admit_with_parent(
        &self,
        parent_link: &ParentLink,
        cost: u64,
        allowed: Option<u64>,
    ) -> Result<Option<u64>, ConsumeError> {
        let mut wakes = Wakes::default();
        let answer = self.with_parent(parent_link, &mut wakes, |both, _| both.arrive(cost, allowed));
        wakes.run();
        answer
    }

    /// Closes `child` when this limiter is closed, or `group` removed. Returns false if that has happened already.
    pub(crate) fn add_child(&self, group: ClassId, child: Weak<dyn ChildLimiter>) -> bool {
        let mut state = self.state.lock();
        let is_closed = state.is_closed(group);
        let children = &mut state.rare().children;
        children.retain(|(_, child)| child.strong_count() > 0);
        children.push((group, child));
        !is_closed
    }

    pub(crate) fn close_children(&self) {
        self.close_children_in(|_, _| true);
    }

    /// Closes the children in groups that are `gone`.
    pub(super) fn close_children_in(&self, gone: impl Fn(&State, ClassId) -> bool) {
        let mut state = self.state.lock();
        let children = std::mem::take(&mut state.rare().children);
        let (closing, kept): (Vec<_>, Vec<_>) = children.into_iter().partition(|(group, _)| gone(&state, *group));
        state.rare().children = kept;
        drop(state);
        closing.iter().filter_map(|(_, child)| child.upgrade()).for_each(|child| child.close());
    }

    /// Sets the weight of the key's class, before the key waits for the first time.
    pub(crate) fn weigh(&self, weight: impl FnOnce() -> u64) {
        if let Some(link) = self.parent_link()
            && link.weight.load(Ordering::Relaxed) == 0
        {
            link.weight.store(weight(), Ordering::Relaxed);
        }
    }

    /// See [`Parent::admit_now`].
    fn admit_now(&self, cost: u64, sample: Sample) -> bool {
        self.rovers.try_claim(cost).is_some() || self.fast_admit(cost, sample).is_some()
    }

    /// The same in a class. The flags are written under the lock, so they hold until the tokens are taken.
    fn admit_now_in(&self, flags: &ClassFlags, cost: u64, sample: Sample) -> bool {
        if !flags.is_fast() {
            return false;
        }
        let mut state = self.state.lock();
        flags.is_fast() && state.fast_admit(&self.rovers, cost, sample).is_some()
    }

    /// Acts in the parent's queue for the front of this queue: takes its tokens, enters a parent ticket, or withdraws a
    /// ticket that belongs to no waiter any more.
    pub(super) fn poll_parent(&self, wakes: &mut Wakes) {
        let Some(parent_link) = self.parent_link() else { return };
        self.with_parent(parent_link, wakes, |both, wakes| both.serve_front(wakes));
    }

    /// The parent has granted the front claim of this queue, and waits to learn which claim is next. The parent is not
    /// served here: its next claim is served as of the instant of that grant.
    pub(super) fn answer_parent(&self, wakes: &mut Wakes) {
        let Some(parent_link) = self.parent_link() else { return };
        loop {
            wakes.wake_all();
            let mut queues = lock([self, &*parent_link.parent.limiter], [self.sample_or_last(), None]);
            let [child, parent] = &mut queues;
            if !parent.state.awaits(self) {
                return;
            }
            if child.settle(Reach::Held, wakes) {
                Both { child, parent, parent_link }.serve_front(wakes);
            }
            let is_answered = !parent.state.awaits(self);
            queues.iter_mut().for_each(|queue| _ = queue.interrupt());
            drop(queues);
            if is_answered {
                break;
            }
        }
        if let Some(own) = self.weak().upgrade() {
            wakes.push_unserved(own);
        }
    }

    /// Runs `act` on this limiter and its parent, both locked and brought up to date.
    fn with_parent<R>(
        &self,
        parent_link: &ParentLink,
        wakes: &mut Wakes,
        act: impl FnOnce(&mut Both<'_, '_>, &mut Wakes) -> R,
    ) -> R {
        let cores = [self, &*parent_link.parent.limiter];
        // If a clock panics, use the last sample: callers rely on this being completed.
        let samples = cores.map(Self::sample_or_last);
        let align = |[child, parent]: &mut [Locked<'_>; 2]| {
            if parent_link.one_clock {
                // Another caller, with a later reading of the time, may have served the child up to the instant at
                // which its front became ready. The request to the parent then counts from that instant, not from an
                // earlier one at which the parent had more tokens.
                let seen = parent.core.time.translate(&child.core.time, child.state.supply.synced());
                parent.sample.now = parent.sample.now.max(u64::try_from(seen).unwrap_or(0));
            }
        };
        with_locked(wakes, cores, samples, (Reach::Held, CatchUp::Fully), align, |[child, parent], wakes| {
            act(&mut Both { child, parent, parent_link }, wakes)
        })
    }
}

const FITS: &str = "it fits, and the fast path of a limiter with a parent is closed";

/// A child and its parent, both locked and brought up to date.
struct Both<'l, 'a> {
    child: &'l mut Locked<'a>,
    parent: &'l mut Locked<'a>,
    parent_link: &'l ParentLink,
}

impl Both<'_, '_> {
    /// Takes `cost` tokens from both limiters if no claim waits, and returns how many remain in the child.
    fn admit(&mut self, cost: u64) -> Option<u64> {
        if !self.child.state.can_admit(&self.child.core.rovers, cost) || !self.admit_in_parent(cost) {
            return None;
        }
        Some(self.child.state.admit(&self.child.core.rovers, cost).expect(FITS))
    }

    /// Under a ceiling a claim is granted in turn only, which charges the ceiling.
    fn admit_in_parent(&mut self, cost: u64) -> bool {
        let Parent { group, flags, .. } = &self.parent_link.parent;
        !self.parent.state.is_closed(*group)
            && flags.as_ref().is_none_or(|flags| flags.is_fast())
            && self.parent.state.admit(&self.parent.core.rovers, cost).is_some()
    }

    fn try_acquire(&mut self, cost: u64) -> Result<u64, TryAcquireError> {
        let (rovers, parent) = (&self.child.core.rovers, &self.parent.core.rovers);
        let group = self.parent_link.parent.group;
        if cost == 0 {
            return self.child.state.try_acquire(rovers, cost, self.child.sample.now);
        }
        let now = self.parent.sample.now;
        if !self.child.state.can_admit(rovers, cost) {
            let refused = self.child.state.try_acquire(rovers, cost, self.child.sample.now);
            return refused.map_err(|error| match error {
                TryAcquireError::Denied(denied) => self.parent.state.deny_too(parent, group, cost, now, denied),
                error => error,
            });
        }
        let remaining = self.child.state.available(rovers);
        let class = self.parent_link.ticket.lock().class.unwrap_or(group);
        let granted = match class {
            ROOT => self.parent.state.try_acquire(parent, cost, now),
            class => self.parent.state.try_acquire_in_class(parent, class, cost, now),
        };
        match granted {
            Ok(_) => Ok(self.child.state.admit(rovers, cost).expect(FITS)),
            Err(error) => Err(State::as_parent(error, remaining)),
        }
    }

    fn arrive(&mut self, cost: u64, allowed: Option<u64>) -> Result<Option<u64>, ConsumeError> {
        let parent = &self.parent.core.rovers;
        if cost == 0 {
            return Ok(None);
        }
        if let Some(remaining) = self.admit(cost) {
            return Ok(Some(remaining));
        }
        self.parent.state.check_claim(parent, cost)?;
        let Some(allowed) = allowed.map(Duration::from_nanos) else { return Ok(None) };
        let delay = self.child.state.estimate(&self.child.core.rovers, cost, self.child.sample.now);
        let (now, group) = (self.parent.sample.now, self.parent_link.parent.group);
        match delay.and_then(|delay| self.parent.state.estimate_later(parent, group, cost, now, delay)) {
            Some(estimate) if estimate > allowed && Some(estimate) == delay => {
                Err(self.child.state.too_late(&self.child.core.rovers, cost, estimate, allowed))
            }
            Some(estimate) if estimate > allowed => {
                Err(self.parent.state.too_late(parent, cost, estimate, allowed).as_parent())
            }
            _ => Ok(None),
        }
    }

    fn serve_front(&mut self, wakes: &mut Wakes) {
        let is_awaited = self.parent.state.awaits(self.child.core);
        while let Some(cost) = self.child.state.ready_front() {
            if wakes.is_full() {
                return;
            }
            if self.parent.state.is_closed(self.parent_link.parent.group) {
                self.child.state.close(&self.child.core.rovers);
            } else if !is_awaited && self.admit_in_parent(cost) {
                self.child.state.grant_front(&self.child.core.rovers, self.child.sample.now, wakes);
            } else if let Some(most) = self.parent.state.overruns(&self.parent.core.rovers, cost) {
                // There was enough space in the parent's queue when the claim arrived, but other claims have taken it
                // since: the claims of all keys enter the parent's queue concurrently.
                self.child.state.turn_front_away(&self.child.core.rovers, Outcome::TooLarge { cost, most }, wakes);
            } else {
                self.enter_parent_queue(cost);
            }
            if self.child.state.settle(&self.child.core.rovers, self.child.sample.now, Reach::Held, wakes)
                == ServeResult::Again
            {
                // Forget the decision and the release mark: the time is not read again here, so later calls must read
                // it.
                (wakes.last_decision, wakes.release_mark) = Default::default();
                return;
            }
        }
        if is_awaited {
            self.parent.state.go_on();
        }
        if self.child.state.take_ticket_recall() {
            self.withdraw_parent_ticket();
        }
    }

    /// Enters a ticket for the front claim, in the place of the last one.
    fn enter_parent_queue(&mut self, cost: u64) {
        let (own, parent) = (&self.child.core.time, &self.parent.core.time);
        let entered = self.child.sample.now;
        let entered_parent =
            if self.parent_link.one_clock { parent.translate(own, entered) } else { self.parent.sample.now as i128 };
        let joint = JointClaim::of_parent_ticket(self.child.core.weak(), self.parent_link.one_clock);
        let (part, ticket_part) = JointPart::pair(joint, entered as i128, entered_parent);
        let (rovers, state) = (&self.parent.core.rovers, &mut self.parent.state);
        let mut ticket = self.parent_link.ticket.lock();
        let Ticket { place, class } = &mut *ticket;
        let mut place = place.get_or_insert_with(|| Box::pin(Place::new())).as_mut();
        let waker = Waker::noop().clone();
        if self.parent.core.has_classes {
            let (group, key) = (self.parent_link.parent.group, self.parent_link.key);
            let weight = self.parent_link.weight.load(Ordering::Relaxed).max(1);
            let class = *class.get_or_insert_with(|| state.join_key(group, key, weight));
            // If the parent awaits this child, the caller says when all is said.
            let is_awaited = state.awaits(self.child.core);
            state.withdraw_ticket(rovers, place.as_mut(), class, self.child.core.weak());
            state.enter_class(rovers, place, class, cost, waker, Some(Box::new(ticket_part)));
            if !is_awaited {
                state.go_on();
            }
        } else {
            drop(state.depart(rovers, place.as_mut(), ROOT));
            state.enter(rovers, place, cost, waker, Some(Box::new(ticket_part)));
        }
        self.child.state.queue.join_front(Box::new(part));
    }

    /// Empties the place of the parent ticket. The ticket belongs to no waiter any more, or its tokens have been
    /// granted to the front waiter.
    fn withdraw_parent_ticket(&mut self) {
        let mut ticket = self.parent_link.ticket.lock();
        let class = ticket.class.unwrap_or(ROOT);
        if let Some(place) = ticket.place.as_mut() {
            drop(self.parent.state.depart(&self.parent.core.rovers, place.as_mut(), class));
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
        limiter.core().add_child(ROOT, child)
    }

    #[test]
    fn all_children_are_closed_and_dropped_ones_take_no_memory() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        let children = [(); 3].map(|()| Arc::new(Keys::default()));
        assert!(children.iter().all(|child| add_child(&limiter, child)));
        assert!((0..100).all(|_| add_child(&limiter, &Arc::default())));
        // The last one was dropped, which is found when the next child is added.
        assert_eq!(limiter.core().state.lock().rare().children.len(), 4);
        limiter.close();
        assert!(children.iter().all(|child| child.0.load(Ordering::Relaxed)));
        assert!(!add_child(&limiter, &children[0]), "it is closed");
    }
}
