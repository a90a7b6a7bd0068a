//! Operations on a child and its parent, both locked: the front of the child's queue acts in the parent's queue. See
//! `core/parent.rs`.

use super::Core;
use crate::core::classes::ROOT;
use crate::core::locked::{Locked, with_locked};
use crate::core::outcome::Outcome;
use crate::core::parent::{ParentLink, Proxy};
use crate::core::queue::Place;
use crate::core::state::{CatchUp, Reach, Served, State};
use crate::core::wakes::Wakes;
use crate::error::{ConsumeError, TryAcquireError};
use crate::observe::GrantWord;
use std::task::Waker;
use std::time::Duration;

impl Core {
    /// [`try_acquire_unobserved`](Self::try_acquire_unobserved) from both this limiter and its parent.
    #[cold]
    #[inline(never)]
    pub(super) fn try_acquire_with_parent(
        &self,
        parent_link: &ParentLink,
        cost: u64,
    ) -> Result<GrantWord, TryAcquireError> {
        let mut wakes = Wakes::default();
        let (answer, source_task_is_gone) = self.with_parent(parent_link, &mut wakes, |both| {
            (both.try_acquire(cost), both.parent.state.source_task_is_gone())
        });
        wakes.run();
        if source_task_is_gone {
            parent_link.parent.limiter.replace_source_task();
        }
        answer
    }

    /// Takes `cost` tokens from both limiters if no claim waits. Returns `None` if the caller has to wait.
    pub(super) fn admit_with_parent(
        &self,
        parent_link: &ParentLink,
        cost: u64,
        allowed: Option<u64>,
    ) -> Result<Option<GrantWord>, ConsumeError> {
        let mut wakes = Wakes::default();
        let answer = self.with_parent(parent_link, &mut wakes, |both| both.arrive(cost, allowed));
        wakes.run();
        answer
    }

    /// Acts in the parent's queue for the front of this queue: takes its tokens, enters a proxy, or withdraws a
    /// proxy that belongs to no waiter any more.
    pub(super) fn poll_parent(&self, wakes: &mut Wakes) {
        let Some(parent_link) = self.parent_link() else { return };
        self.with_parent(parent_link, wakes, |_| ());
    }

    /// The parent waits for the answer of this queue: both grant the front claim, or its proxy leaves; and the next ready
    /// claim enters. The parent is not served further here: its next claim is served as of the same instant.
    pub(super) fn answer_parent(&self, wakes: &mut Wakes) {
        let Some(parent_link) = self.parent_link() else { return };
        let mut before = None;
        loop {
            if wakes.is_full() {
                wakes.wake_all();
            }
            let own = self.sample_or_last();
            let mut queues = [Locked::lock(self, own), Locked::lock(&parent_link.parent.limiter, None)];
            let [child, parent] = &mut queues;
            if !parent.state.awaits(self) {
                return;
            }
            before = before.or(Some(child.state.supply.synced()));
            let mut both = Both { child, parent, parent_link };
            if both.settle_child(wakes) {
                both.serve_front(before, wakes);
            }
            let is_answered = !parent.state.awaits(self);
            queues.iter_mut().for_each(Locked::interrupt);
            if is_answered {
                break;
            }
        }
        if let Some(own) = self.weak().upgrade() {
            wakes.push_unserved(own);
        }
    }

    /// Runs `act` on this limiter and its parent, both locked and brought up to date, once the claims that are ready here have
    /// asked the parent.
    fn with_parent<R>(
        &self,
        parent_link: &ParentLink,
        wakes: &mut Wakes,
        act: impl FnOnce(&mut Both<'_, '_>) -> R,
    ) -> R {
        let cores = [self, &*parent_link.parent.limiter];
        // If a clock panics, use the last sample: the callers rely on this function to run to its end.
        let samples = cores.map(Self::sample_or_last);
        let align = |queues: &mut [Locked<'_>]| {
            let [child, parent] = queues else { return };
            if parent_link.one_clock {
                // Another caller, with a later reading of the time, may have served the child up to the instant at
                // which its front became ready. The request to the parent then counts from that instant, not from an
                // earlier one at which the parent had more tokens.
                let seen = parent.core.time.translate(&child.core.time, child.state.supply.synced());
                parent.sample.now = parent.sample.now.max(u64::try_from(seen).unwrap_or(0));
            }
        };
        with_locked(wakes, cores, &samples, Reach::Held, CatchUp::Fully, align, |queues, wakes| {
            let [child, parent] = queues else { unreachable!("two are locked") };
            let mut both = Both { child, parent, parent_link };
            both.serve_front(None, wakes);
            act(&mut both)
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
    /// Takes `cost` tokens from both limiters if no claim waits.
    fn admit(&mut self, cost: u64) -> Option<GrantWord> {
        if !self.child.state.can_admit(&self.child.core.rovers, ROOT, cost) || !self.admit_in_parent(cost) {
            return None;
        }
        let word = self.child.state.admit(&self.child.core.rovers, cost).expect(FITS);
        Some(self.child.state.with_instant(word))
    }

    /// Takes `cost` tokens from the parent if no claim waits there. Never under a ceiling: claims under a ceiling must
    /// go through the queue, which charges the ceiling.
    fn admit_in_parent(&mut self, cost: u64) -> bool {
        let group = self.parent_link.parent.group;
        cost <= self.parent.state.max_cost()
            && !self.parent.state.is_closed(group)
            && self.parent.state.supply.aside() == 0
            && (group == ROOT || self.parent.state.is_free(group))
            && self.parent.state.admit(&self.parent.core.rovers, cost).is_some()
    }

    fn try_acquire(&mut self, cost: u64) -> Result<GrantWord, TryAcquireError> {
        let (rovers, parent) = (&self.child.core.rovers, &self.parent.core.rovers);
        let group = self.parent_link.parent.group;
        if cost == 0 {
            return self.child.state.try_acquire(rovers, ROOT, cost, self.child.sample.now);
        }
        let now = self.parent.sample.now;
        if !self.child.state.can_admit(rovers, ROOT, cost) {
            let refused = self.child.state.try_acquire(rovers, ROOT, cost, self.child.sample.now);
            return refused.map_err(|error| match error {
                TryAcquireError::Denied(denied) => self.parent.state.deny_too(parent, group, cost, now, denied),
                error => error,
            });
        }
        let remaining = self.child.state.available(rovers);
        if self.parent.state.is_closed(group) {
            return Err(TryAcquireError::Closed);
        }
        let state = &mut self.parent.state;
        let granted = if state.queue.is_empty() {
            state.try_acquire(parent, group, cost, now)
        } else {
            // The key has a turn of its own among the claims that wait.
            let class = self.child.core.join_parent(state);
            let granted = state.try_acquire(parent, class, cost, now);
            state.remove_user(class);
            granted
        };
        match granted {
            Ok(_) => {
                let word = self.child.state.admit(rovers, cost).expect(FITS);
                Ok(self.child.state.with_instant(word))
            }
            Err(error) => Err(State::as_parent(error, remaining)),
        }
    }

    fn arrive(&mut self, cost: u64, allowed: Option<u64>) -> Result<Option<GrantWord>, ConsumeError> {
        let parent = &self.parent.core.rovers;
        if cost == 0 {
            return Ok(None);
        }
        if let Some(word) = self.admit(cost) {
            return Ok(Some(word));
        }
        self.parent.state.check_claim(parent, cost).map_err(ConsumeError::as_parent)?;
        let Some(allowed) = allowed.map(Duration::from_nanos) else { return Ok(None) };
        let delay = self.child.state.estimate(&self.child.core.rovers, ROOT, cost, self.child.sample.now);
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

    /// Serves the child. Returns false if the locks must be released before that is done. A joint claim of the child that has to
    /// be reviewed is not waited for: the parent is one of its members, and may be waiting for the child.
    fn settle_child(&mut self, wakes: &mut Wakes) -> bool {
        let Locked { core, state, sample, .. } = &mut *self.child;
        state.settle(&core.rovers, sample.now, Reach::Held, wakes) != Served::Again
    }

    /// If the parent waits for the answer of the child, `before` is the instant up to which the child had been served before
    /// it was asked.
    fn serve_front(&mut self, before: Option<u64>, wakes: &mut Wakes) {
        let is_awaited = before.is_some();
        if is_awaited && !self.serve_proxy(wakes) {
            return;
        }
        while let Some(cost) = self.child.state.ready_without_proxy(&self.child.core.rovers) {
            if before.is_some_and(|before| self.is_ahead(before)) {
                // The claim is not ready yet at the instant up to which the parent has been served. It enters once the
                // parent has been served further.
                break;
            }
            let refusal = self.refusal(cost);
            // A claim that only enters wakes nothing. So an answer fills the batch, and the caller sees that it is full.
            if wakes.is_full() && (!is_awaited || refusal.is_some()) {
                return;
            }
            if !is_awaited && self.admit_in_parent(cost) {
                // As of the instant at which it was ready here: a late timer costs the key nothing.
                let at = self.child.state.supply.synced();
                self.child.state.grant_ready_front(&self.child.core.rovers, at, self.child.sample.now, wakes);
            } else if let Some(outcome) = refusal {
                self.child.state.call_front(&self.child.core.rovers, outcome, wakes);
            } else {
                self.enter_parent_queue(cost);
            }
            if !self.settle_child(wakes) {
                return;
            }
        }
        if self.child.state.take_proxy_recall() {
            self.withdraw_proxy();
        }
        self.parent.state.go_on();
    }

    fn parent_is_closed(&self) -> bool {
        self.parent.state.is_closed(self.parent_link.parent.group)
    }

    /// Why the parent does not let a claim of `cost` enter its queue. Only that claim is turned away here: the other claims of
    /// a closed child may have to wait for a review.
    fn refusal(&self, cost: u64) -> Option<Outcome> {
        if self.parent_is_closed() {
            return Some(Outcome::Closed);
        }
        // There was enough space in the parent's queue when the claim arrived, but other claims have taken it since: the claims
        // of all keys enter the parent's queue concurrently.
        let most = self.parent.state.overruns(&self.parent.core.rovers, cost)?;
        Some(Outcome::TooLarge { cost, most })
    }

    /// The parent has stopped at the proxy of this child. If it stands for a claim that is still ready, both grant it, or
    /// turn it away; else the proxy is recalled. Returns false if that could not be done yet.
    fn serve_proxy(&mut self, wakes: &mut Wakes) -> bool {
        let (rovers, parent) = (&self.child.core.rovers, &self.parent.core.rovers);
        if !self.child.state.front_has_proxy() || self.child.state.ready_front(rovers).is_none() {
            self.child.state.recall_proxy();
            return true;
        }
        if wakes.is_full() {
            return false;
        }
        let closed = self.parent_is_closed().then_some(Outcome::Closed);
        if let Some(outcome) = closed.or_else(|| self.parent.state.cut_off_in_service(parent)) {
            self.child.state.call_front(rovers, outcome, wakes);
        } else if self.parent.state.grant_proxy(parent, wakes) {
            let at = self.instant_of_parent();
            self.child.state.grant_ready_front(rovers, at, self.child.sample.now, wakes);
        }
        self.settle_child(wakes)
    }

    /// The instant up to which the parent has been served, in the child's time; on different clocks, the child's own.
    fn instant_of_parent(&self) -> u64 {
        let (child, parent) = (&self.child.core.time, &self.parent.core.time);
        let at = match self.parent_link.one_clock {
            true => u64::try_from(child.translate(parent, self.parent.state.supply.synced())).unwrap_or(0),
            false => self.child.sample.now,
        };
        at.max(self.child.state.supply.synced())
    }

    /// Whether the front of the child became ready later than the instant up to which the parent has been served. False
    /// if the child had been served up to that later instant already, `before` the parent asked it: other callers
    /// served it while the parent was behind, as `settle` does, and its next claim has waited since.
    fn is_ahead(&self, before: u64) -> bool {
        let synced = self.child.state.supply.synced();
        let seen = self.parent.core.time.translate(&self.child.core.time, synced);
        self.parent_link.one_clock && synced > before && seen > i128::from(self.parent.state.supply.synced())
    }

    /// Enters a proxy for the front claim, in the place of the last one.
    fn enter_parent_queue(&mut self, cost: u64) {
        let child = self.child.core.weak();
        let (rovers, state) = (&self.parent.core.rovers, &mut self.parent.state);
        let mut proxy = self.parent_link.proxy.lock();
        let Proxy { place, class } = &mut *proxy;
        let mut place = place.get_or_insert_with(|| Box::pin(Place::new())).as_mut();
        let class = match self.parent.core.has_classes {
            true => *class.get_or_insert_with(|| self.child.core.join_parent(state)),
            false => ROOT,
        };
        drop(state.depart(rovers, place.as_mut(), class));
        state.enter(rovers, place, class, cost, Waker::noop().clone(), Some(child));
        state.go_on();
        self.child.state.note_proxy_entered();
    }

    /// Empties the place of the proxy, which stands for no claim any more.
    fn withdraw_proxy(&mut self) {
        let mut proxy = self.parent_link.proxy.lock();
        let class = proxy.class.unwrap_or(ROOT);
        let Some(place) = proxy.place.as_mut() else { return };
        drop(self.parent.state.depart(&self.parent.core.rovers, place.as_mut(), class));
        self.parent.state.go_on();
    }
}
