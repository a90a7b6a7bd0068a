//! The state of a limiter with classes: how claims arrive, are served and leave.
//!
//! Waiters stand in the queues of their classes, and none has a position of its own. The tail moves by the cost of a
//! claim when it arrives. From the tail and the counts of what waits follows the *base*: the position at which all
//! tokens taken so far end, of grants and of installments. While a claim waits, nothing beyond the base is published.
//!
//! ```text
//! base = tail - (costs of all waiting claims - what is set aside for them) - debts of classes
//! ```
//!
//! The scheduler decides for which claim the tokens behind the base are. A claim that leaves takes its unpaid positions
//! with it: everything else moves past them.

use super::shares::conflict_error;
use super::{Arrival, Cap, MAX_COST, Role, Served, State};
use crate::Quota;
use crate::core::Core;
use crate::core::classes::{
    AwaitedChild, Backlog, ClassId, Classes, KeyName, Paid, ROOT, Simulation, Step, Waiting, steps,
};
use crate::core::denial::Denial;
use crate::core::joint::{JointPart, JointState};
use crate::core::outcome::Outcome;
use crate::core::queue::{Place, Queue, Waiter, Withdrawn};
use crate::core::rovers::{Rovers, ahead, earlier};
use crate::core::state::changes::Departed;
use crate::core::wakes::{Peer, Wakes};
use crate::error::{Bound, ConfigError, ConsumeError, TryAcquireError};
use std::pin::Pin;
use std::sync::Weak;
use std::task::Waker;
use std::time::Duration;

impl State {
    /// The classes of a limiter that was built with them.
    #[inline(always)]
    pub(crate) fn classes(&self) -> Option<&Classes> {
        if !self.role.has_classes() {
            return None;
        }
        self.rare.as_ref()?.classes.as_deref()
    }

    pub(crate) fn classes_mut(&mut self) -> Option<&mut Classes> {
        self.rare.as_mut()?.classes.as_deref_mut()
    }

    /// Takes the wakers of all waiters; see [`Queue::take_wakers`].
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = self.queue.take_wakers();
        for class in 1..self.classes().map_or(0, Classes::len) {
            wakers.extend(self.queue_of(class).take_wakers());
        }
        wakers
    }

    /// Divides the limiter into classes, before it is used.
    pub(crate) fn enable_classes(&mut self) {
        let classes = Classes::new(&self.supply);
        self.rare().classes = Some(Box::new(classes));
        self.role.add(Role::CLASSES);
    }

    /// What [`next_start`](Self::next_start) is with classes. Apart, and never inlined, so that a limiter without
    /// classes pays for one check.
    #[cold]
    #[inline(never)]
    pub(super) fn class_start(&self, rovers: &Rovers) -> u64 {
        self.classes().map_or_else(|| rovers.tail(), |classes| self.base(classes, rovers))
    }

    /// What [`due`](Self::due) is with classes.
    #[cold]
    #[inline(never)]
    pub(super) fn class_due(&self) -> u64 {
        self.classes().filter(|_| !self.queue.is_empty()).map_or(u64::MAX, |classes| classes.due)
    }

    /// The position at which everything taken so far ends; see the head of this file.
    pub(super) fn base(&self, classes: &Classes, rovers: &Rovers) -> u64 {
        let unpaid = self.queue.tokens() - classes.scheduler.set_aside();
        rovers.tail().wrapping_sub(unpaid).wrapping_sub(classes.scheduler.owed())
    }

    /// The queue in which the claims of a class wait.
    #[inline]
    pub(crate) fn queue_of(&mut self, class: ClassId) -> &mut Queue {
        if class == ROOT {
            return &mut self.queue;
        }
        match self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) {
            Some(classes) => &mut classes.entry_mut(class).queue,
            None => &mut self.queue,
        }
    }

    /// Serves the classes in virtual time: each installment at the exact instant that the schedule gives it.
    pub(super) fn serve_classes(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Served {
        if self.awaited_child().is_some() {
            return Served::Stopped;
        }
        let now = now.max(self.supply.synced());
        if !self.turn_closed_away(rovers, wakes) {
            return Served::Again;
        }
        loop {
            let Some(classes) = self.classes() else { return Served::All };
            let base = self.base(classes, rovers);
            let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return Served::All };
            let step = classes.scheduler.next_step(&self.supply, base);
            let (due, ticket) = match step {
                Step::Pay { at, ticket } => (at, Some(ticket)),
                Step::Wait { ticket } => (u64::MAX, Some(ticket)),
                Step::Recheck { at } => (at, None),
            };
            if due > now || due == u64::MAX {
                classes.due = due;
                self.supply.mint(now, ticket);
                return Served::All;
            }
            // Most steps wake no waiter: they serve a part of a large claim.
            if wakes.must_pause() {
                return Served::Again;
            }
            wakes.looks += 1;
            self.supply.mint(due, ticket);
            if ticket.is_some() {
                self.totals.lateness = self.totals.lateness.max(now.saturating_sub(due));
                self.pay_installment(rovers, base, wakes);
                if self.role.awaits() {
                    return Served::Stopped;
                }
            }
        }
    }

    fn pay_installment(&mut self, rovers: &Rovers, base: u64, wakes: &mut Wakes) {
        let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return };
        let Some(pick) = classes.scheduler.tree.picked() else { return };
        let (owner, is_last) = (classes.owner(pick.leaf), classes.scheduler.is_last_installment(pick));
        if is_last && !self.commit_ticket(owner) {
            return self.turn_ticket_away(rovers, owner, base);
        }
        let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return };
        let paid = classes.scheduler.pay(&mut self.supply, base);
        let now = self.supply.synced();
        classes.entry_mut(owner).count(pick.tokens, pick.by_floor);
        classes.stats.count_served(classes.counted(owner), pick.tokens, now);
        let Paid::Claim(_) = paid else { return };
        self.forget_denial(rovers);
        let Some(classes) = self.classes() else { return };
        let outcome = Outcome::Granted { remaining: self.level(classes, base.wrapping_add(pick.tokens)) };
        let waiter =
            self.queue_of(owner).call_front(outcome).expect("the claim in service is at the front of its queue");
        if let Some(classes) = self.classes_mut().filter(|_| owner != ROOT) {
            classes.stats.count_wait(owner, now - waiter.ticket);
        }
        if let Some(part) = &waiter.part {
            self.await_child(owner, part.joint.child(), &waiter);
        } else {
            self.advance(owner, &waiter);
        }
        wakes.push(waiter.waker);
    }

    /// The front claim of a class is about to be granted. Returns false if it is a parent ticket whose claim has left the
    /// child's queue.
    fn commit_ticket(&mut self, class: ClassId) -> bool {
        let at = self.supply.synced();
        let front = self.queue_of(class).front();
        let part = front.and_then(|front| front.part.as_ref());
        part.is_none_or(|part| part.ready(at) == JointState::Committed)
    }

    /// A parent ticket has left the queue of `class`: nothing is served until the child says which claim is next.
    fn await_child(&mut self, class: ClassId, child: Weak<dyn Peer>, gone: &Waiter) {
        if class != ROOT {
            self.count_out(gone.cost);
        }
        self.role.add(Role::AWAITS);
        if let Some(classes) = self.classes_mut() {
            classes.awaited = Some(AwaitedChild { child, class, skip: gone.skip });
        }
    }

    /// The child that has to say which of its claims is next. If it is gone, none is.
    pub(crate) fn awaited_child(&mut self) -> Option<Weak<dyn Peer>> {
        if !self.role.awaits() {
            return None;
        }
        let child = self.classes().and_then(|classes| Some(classes.awaited.as_ref()?.child.clone()))?;
        if child.strong_count() > 0 {
            return Some(child);
        }
        self.go_on();
        None
    }

    /// Whether `child` has to say which of its claims is next.
    pub(crate) fn awaits(&self, child: &Core) -> bool {
        self.role.awaits()
            && self
                .classes()
                .and_then(|classes| classes.awaited.as_ref())
                .is_some_and(|awaited| std::ptr::addr_eq(awaited.child.as_ptr(), child))
    }

    /// The awaited child has entered its next claim, or has none.
    pub(crate) fn go_on(&mut self) {
        self.role.remove(Role::AWAITS);
        let awaited = self.classes_mut().and_then(|classes| classes.awaited.take());
        if let Some(AwaitedChild { class, skip, .. }) = awaited {
            self.put_next_in_front(class, skip);
        }
    }

    /// Counts a claim that waits in a class among those of the limiter.
    fn count_in(&mut self, cost: u64) {
        self.queue.count_in(cost);
        if let Some(classes) = self.classes_mut() {
            classes.waiting += cost;
        }
    }

    /// The claim does not wait any more.
    fn count_out(&mut self, cost: u64) {
        self.queue.count_out(cost);
        if let Some(classes) = self.classes_mut() {
            classes.waiting -= cost;
        }
    }

    /// The front claim of a class, `gone`, is out of its queue: tells the scheduler which claim is in front now.
    fn advance(&mut self, class: ClassId, gone: &Waiter) {
        if class != ROOT {
            self.count_out(gone.cost);
        }
        self.put_next_in_front(class, gone.skip);
    }

    /// Tells the scheduler which claim of a class is in front now. `skip` is the debt noted behind the one before it.
    fn put_next_in_front(&mut self, class: ClassId, skip: u64) {
        let next = self.queue_of(class).front().map(|front| front.cost);
        let now = self.supply.synced();
        let is_last = self.queue.is_empty();
        let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return };
        let leaf = classes.entry(class).leaf;
        classes.scheduler.advance(leaf, next, skip, now);
        if is_last {
            // No claim waits: what classes still owe is a debt of the limiter, which newcomers wait for.
            classes.scheduler.charge_debts(&mut self.supply);
        }
    }

    /// The tokens that are there behind `base`, as far as the in-flight cap lets them go.
    pub(super) fn level(&self, classes: &Classes, base: u64) -> u64 {
        let (set_aside, owed) = (classes.scheduler.set_aside(), classes.scheduler.owed());
        let cap_end = self.supply.ceiling().map(|cap_end| cap_end.wrapping_add(set_aside).wrapping_sub(owed));
        let end = self.supply.least_head().into_iter().chain(cap_end).reduce(earlier);
        end.map_or(0, |end| ahead(end, base).max(0) as u64)
    }

    /// Turns away the waiters of a limiter that was closed, and of removed classes. Returns false if the batch of wakers is
    /// full.
    fn turn_closed_away(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        while let Some(class) = self.next_closed() {
            if wakes.is_full() {
                return false;
            }
            self.turn_front_of_class_away(rovers, class, wakes);
        }
        true
    }

    /// A class with a waiter that has to be turned away.
    fn next_closed(&mut self) -> Option<ClassId> {
        let is_closed = self.closed && !self.queue.is_empty();
        let classes = self.rare.as_mut().and_then(|rare| rare.classes.as_mut())?;
        while is_closed && classes.closed_before < classes.len() {
            steps::count();
            let class = classes.closed_before;
            let queue = if class == ROOT { &self.queue } else { &classes.entry(class).queue };
            if queue.front().is_some() {
                return Some(class);
            }
            classes.closed_before += 1;
        }
        while let Some(class) = classes.closing.last().copied() {
            let entry = classes.entry(class);
            // A class that was made since can have the number of a removed one.
            if entry.is_removed && entry.queue.front().is_some() {
                return Some(class);
            }
            classes.closing.pop();
        }
        None
    }

    /// Turns away a parent ticket whose claim has left the child's queue.
    fn turn_ticket_away(&mut self, rovers: &Rovers, class: ClassId, base: u64) {
        self.forget_denial(rovers);
        let ticket = self.queue_of(class).call_front(Outcome::JointEnded).expect("the ticket is at the front");
        self.withdraw_front(class, &ticket, base);
        if let Some(part) = &ticket.part {
            self.await_child(class, part.joint.child(), &ticket);
        }
    }

    /// Turns the front claim of a class away: the limiter or the class was closed.
    fn turn_front_of_class_away(&mut self, rovers: &Rovers, class: ClassId, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let Some(classes) = self.classes() else { unreachable!("only called with classes") };
        let base = self.base(classes, rovers);
        let waiter = self.queue_of(class).call_front(Outcome::Closed).expect("a claim waits in the class");
        self.withdraw_front(class, &waiter, base);
        self.advance(class, &waiter);
        if let Some(part) = waiter.part {
            part.joint.kill_as(Outcome::Closed);
            wakes.push_update(part.joint.clone(), part.since_entered(self.supply.synced()));
        }
        wakes.push(waiter.waker);
    }

    /// The front claim of a class is out of its queue without a grant. What was set aside for it goes back to the
    /// quotas, and everything moves past its unpaid positions. [`advance`](Self::advance) follows.
    fn withdraw_front(&mut self, class: ClassId, gone: &Waiter, base: u64) {
        let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return };
        let leaf = classes.entry(class).leaf;
        let was_in_service = classes.scheduler.tree.picked();
        let paid = classes.scheduler.withdraw(leaf, &mut self.supply, base);
        self.supply.shift(gone.cost - paid);
        self.supply.raise_ceiling(paid);
        self.totals.skipped = self.totals.skipped.wrapping_add(gone.cost);
        if was_in_service.is_some() && classes.scheduler.tree.picked().is_none() {
            self.supply.cut(None);
        }
    }

    /// Empties the place of a future that is done with it, in any state.
    pub(crate) fn depart_class(&mut self, rovers: &Rovers, place: Pin<&mut Place>, class: ClassId) -> Departed {
        self.depart_from_class(rovers, place, class, None)
    }

    /// Empties the place of a parent ticket of `child`, which says next which claim is in front, or that none is: if the
    /// class counted as idle meanwhile, its siblings would be even with it.
    pub(crate) fn withdraw_ticket(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        child: Weak<dyn Peer>,
    ) {
        drop(self.depart_from_class(rovers, place, class, Some(child)));
    }

    fn depart_from_class(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        child: Option<Weak<dyn Peer>>,
    ) -> Departed {
        let Some(classes) = self.classes() else { return Departed::default() };
        let base = self.base(classes, rovers);
        let waiter = match self.queue_of(class).withdraw(place) {
            Withdrawn::Nothing => return Departed::default(),
            Withdrawn::Called(outcome) => return Departed { outcome: Some(outcome), ..Departed::default() },
            Withdrawn::Front(waiter) => {
                self.withdraw_front(class, &waiter, base);
                match child {
                    Some(child) => self.await_child(class, child, &waiter),
                    None => self.advance(class, &waiter),
                }
                waiter
            }
            Withdrawn::Behind(waiter) => {
                if class != ROOT {
                    self.count_out(waiter.cost);
                }
                self.supply.shift(waiter.cost);
                self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
                waiter
            }
        };
        Departed { outcome: None, waker: Some(waiter.waker), parent: 0 }
    }

    /// Grants `cost` tokens to a class now, if no claim is ahead of this one and they are there. Returns how many tokens
    /// remain. The limiter has been served up to now.
    pub(crate) fn admit_class(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let classes = self.classes()?;
        let leaf = classes.entry(class).leaf;
        let is_idle = self.queue.is_empty();
        if is_idle && !classes.scheduler.tree.is_under_ceiling(leaf) {
            return self.admit(rovers, cost);
        }
        let base = self.base(classes, rovers);
        let is_open = classes.scheduler.tree.picked().is_none()
            && classes.scheduler.is_idle(leaf)
            && !self.supply.is_paused()
            && self.supply.least_head().is_none_or(|head| ahead(head, base.wrapping_add(cost)) >= 0)
            && classes.scheduler.fits(&self.supply, base, cost);
        if !is_open {
            return None;
        }
        let limit = self.supply.limit();
        let classes = self.rare.as_mut().and_then(|rare| rare.classes.as_mut())?;
        // While no claim waits, other callers may claim what is published. While one waits, they cannot.
        let take = || {
            if is_idle {
                return rovers.try_claim_owned(cost, limit).is_some();
            }
            rovers.claim(cost);
            true
        };
        let pick = classes.scheduler.serve_at_once(leaf, cost, &mut self.supply, base, take)?;
        let now = self.supply.synced();
        let classes = self.classes_mut()?;
        classes.entry_mut(class).count(cost, pick.by_floor);
        classes.stats.count_served(class, cost, now);
        Some(self.level(self.classes()?, base.wrapping_add(cost)))
    }

    /// Joins the end of the queue of a class.
    pub(crate) fn enter_class(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waker: Waker,
        part: Option<Box<JointPart>>,
    ) {
        if self.queue.is_empty() {
            // Other callers must not take what is there for claims that wait, or that a ceiling holds back.
            self.retract(rovers);
        }
        let position = rovers.claim(cost);
        let ticket = if class == ROOT { position } else { self.supply.synced() };
        self.queue_of(class).push(place, Waiter { waker, ticket, cost, skip: 0, part });
        if class != ROOT {
            self.count_in(cost);
        }
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            if classes.awaited.as_ref().is_some_and(|awaited| awaited.class == class) {
                // The answer that the class has been waiting for: `go_on` follows.
                return;
            }
            let leaf = classes.entry(class).leaf;
            classes.scheduler.arrive(leaf, cost, now);
        }
    }

    /// Charges `tokens` on top of a grant of a key; see [`charge_class`](Self::charge_class). While no claim waits, no class
    /// is charged, and the key needs none.
    pub(crate) fn charge_key(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        (key, weight): (KeyName, u64),
        tokens: u64,
    ) -> u64 {
        if self.queue.is_empty() {
            return self.charge_class(rovers, group, tokens);
        }
        let class = self.join_key(group, key, weight);
        let charged = self.charge_class(rovers, class, tokens);
        self.leave_key(class);
        charged
    }

    /// The class of a key in `group`, for one more user of it.
    pub(crate) fn join_key(&mut self, group: ClassId, key: KeyName, weight: u64) -> ClassId {
        let now = self.supply.synced();
        self.classes_mut().map_or(ROOT, |classes| classes.join_key(group, key, weight, now))
    }

    pub(crate) fn leave_key(&mut self, class: ClassId) {
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.leave_key(class, now);
        }
    }

    /// Charges `tokens` on top of a grant of a class: as a debt at the end of its queue, or at once if no claim waits.
    /// Returns how many of them were charged: a debt is cut to what fits between the rovers.
    pub(crate) fn charge_class(&mut self, rovers: &Rovers, class: ClassId, tokens: u64) -> u64 {
        let tokens = tokens.min(MAX_COST).min(self.space_left(rovers));
        rovers.claim(tokens);
        let (is_idle, now) = (self.queue.is_empty(), self.supply.synced());
        let noted = !is_idle && self.queue_of(class).note_debt(tokens);
        let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) else { return tokens };
        let leaf = classes.entry(class).leaf;
        if is_idle {
            self.supply.claim(tokens);
            classes.scheduler.tree.charge_ceilings(leaf, tokens, now);
        } else if noted {
            classes.scheduler.note_debt(tokens);
        } else {
            classes.scheduler.add_debt(leaf, tokens, now);
        }
        tokens
    }

    /// The instant at which a claim of `cost` made now in a class would be granted, if no caller did anything from now
    /// on. `None` if no clock can tell. Copies the classes, and takes a bounded number of steps; see [`Simulation`].
    pub(crate) fn predict_in_class(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let classes = self.classes()?;
        let (leaf, base) = (classes.entry(class).leaf, self.base(classes, rovers));
        let is_whole = cost <= self.supply.least_burst();
        if self.queue.is_empty() && is_whole && !classes.scheduler.tree.is_under_ceiling(leaf) {
            return self.supply.scheduled(base.wrapping_add(cost));
        }
        let queue = |leaf: ClassId| {
            let owner = classes.owner(leaf);
            let queue = if owner == ROOT { &self.queue } else { &classes.entry(owner).queue };
            queue.iter().map(|waiter| -> Waiting { (waiter.cost, waiter.skip) })
        };
        let scheduler = &classes.scheduler;
        let waiting =
            if class == ROOT { self.queue.tokens() - classes.waiting } else { classes.entry(class).queue.tokens() };
        let own = waiting + cost - scheduler.paid(leaf);
        let all = self.queue.tokens() + cost - scheduler.set_aside() + scheduler.owed();
        Simulation::new(scheduler, &self.supply, base).grants((leaf, cost), Backlog { own, all }, queue)
    }

    /// The number of tokens that `try_acquire` could get now, in a class or in a limiter without classes.
    pub(crate) fn available_in(&mut self, rovers: &Rovers, class: ClassId) -> u64 {
        if self.role.has_classes() { self.available_to_class(rovers, class) } else { self.available(rovers) }
    }

    /// The instant at which all claims that wait, and another one of `cost` tokens in a class, could have been served.
    pub(crate) fn served_by(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let classes = self.classes()?;
        let leaf = classes.entry(class).leaf;
        let at = self.supply.scheduled(rovers.tail().wrapping_add(cost))?;
        let fits = cost <= classes.scheduler.tree.most(leaf);
        Some(if fits { at.max(classes.scheduler.tree.ceilings_have(leaf, cost)) } else { at })
    }

    pub(crate) fn try_acquire_in_class(
        &mut self,
        rovers: &Rovers,
        class: ClassId,
        cost: u64,
        now: u64,
    ) -> Result<u64, TryAcquireError> {
        if self.is_closed(class) {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(self.available_to_class(rovers, class));
        }
        let below_ceilings = self.classes().map_or(u64::MAX, |classes| classes.most_at_once(class));
        let most = self.most_at_once().min(below_ceilings);
        if cost > most {
            return Err(TryAcquireError::TooLarge { cost, most });
        }
        let admitted = self.admit_class(rovers, class, cost);
        admitted.ok_or_else(|| TryAcquireError::Denied(self.deny_class(rovers, class, cost).as_of(now)))
    }

    /// The time that a claim of `cost` made now in a class would wait.
    pub(crate) fn estimate_in_class(&self, rovers: &Rovers, class: ClassId, cost: u64, now: u64) -> Option<Duration> {
        if self.is_closed(class) || cost > self.most_claimable(rovers) {
            return None;
        }
        if cost == 0 {
            return Some(Duration::ZERO);
        }
        self.predict_in_class(rovers, class, cost).map(|at| self.wait(at, now))
    }

    /// Whether the limiter or the class takes no claims any more.
    pub(crate) fn is_closed(&self, class: ClassId) -> bool {
        self.closed || self.classes().is_some_and(|classes| classes.entry(class).is_removed)
    }

    /// [`arrive`](Self::arrive) for a claim that is neither too large nor empty.
    pub(super) fn arrive_in_class(
        &mut self,
        rovers: &Rovers,
        arrival: Arrival<'_>,
        now: u64,
    ) -> Result<Option<u64>, ConsumeError> {
        let (cost, class) = (arrival.cost, arrival.class);
        if self.is_closed(class) {
            return Err(ConsumeError::Closed);
        }
        if let Some(remaining) = self.admit_class(rovers, class, cost) {
            return Ok(Some(remaining));
        }
        let most = self.classes().map_or(usize::MAX, |classes| classes.entry(class).max_waiting);
        let waiting = if class == ROOT { 0 } else { self.queue_of(class).len() };
        if waiting >= most {
            return Err(ConsumeError::QueueFull { waiting });
        }
        self.check_queue(arrival.driven)?;
        if let Some(allowed) = arrival.allowed {
            self.check_in_time_in_class(rovers, (class, cost), now, Duration::from_nanos(allowed))?;
        }
        let waker = arrival.waker.take().expect("an arrival has a waker");
        self.enter_class(rovers, arrival.place, class, cost, waker, None);
        Ok(None)
    }

    /// Whether a claim of `cost` tokens made now in a class waits for at most `allowed`.
    fn check_in_time_in_class(
        &self,
        rovers: &Rovers,
        (class, cost): (ClassId, u64),
        now: u64,
        allowed: Duration,
    ) -> Result<(), ConsumeError> {
        let Some(at) = self.predict_in_class(rovers, class, cost) else { return Ok(()) };
        let estimate = self.wait(at, now);
        if estimate <= allowed {
            return Ok(());
        }
        // Later than the quotas need for all that waits: a ceiling makes it later.
        let all = self.supply.scheduled(rovers.tail().wrapping_add(cost));
        let is_capped = self.classes().is_some_and(|classes| {
            all.is_some_and(|all| all < at) && classes.scheduler.tree.is_under_ceiling(classes.entry(class).leaf)
        });
        if is_capped {
            return Err(ConsumeError::TooLate { estimate, allowed, by: Bound::Ceiling, quota_name: None });
        }
        Err(self.too_late(rovers, cost, estimate, allowed))
    }

    /// The denial of a claim that [`admit_class`](Self::admit_class) did not grant. While a claim is in service, no class
    /// is granted anything at once: the time to come back is when all that waits now could have been served.
    ///
    /// Kept if it applies to every class without a ceiling.
    fn deny_class(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> Denial {
        let Some(classes) = self.classes() else { unreachable!("only called with classes") };
        let (leaf, base) = (classes.entry(class).leaf, self.base(classes, rovers));
        let is_busy = classes.scheduler.tree.picked().is_some();
        let is_common = !classes.scheduler.tree.is_under_ceiling(leaf) && (is_busy || self.queue.is_empty());
        let end = if is_busy { rovers.tail() } else { base }.wrapping_add(cost);
        let below_ceilings = classes.scheduler.tree.ceilings_have(leaf, cost);
        let at = self.supply.scheduled(end).filter(|_| self.fits_in_flight(rovers, cost));
        let at = at.map(|at| at.max(below_ceilings)).filter(|at| *at < u64::MAX);
        let at = at.map(|at| if at <= self.supply.synced() { 0 } else { at });
        let by = self.obstacle_of_class(class, cost, end);
        // The denial is about the claims known here, not about claims made without the lock since the sample.
        let (tail, until) = match is_busy {
            true => (rovers.tail(), if self.supply.claimed() == base { self.due() } else { 0 }),
            false => (self.supply.claimed(), self.supply.next_mint()),
        };
        let until = if self.supply.is_paused() { until.min(self.supply.gate()) } else { until };
        let (remaining, name) = (self.available_to_class(rovers, class), self.quota_name(by));
        let released = self.cap.as_ref().map_or(0, Cap::word);
        let denial = Denial { cost, tail, released, until, at, remaining, by, name };
        if is_common {
            rovers.last_denial().keep(&denial);
            self.denied = true;
        }
        denial
    }

    /// What keeps a class from `cost` tokens that end at `end`.
    fn obstacle_of_class(&mut self, class: ClassId, cost: u64, end: u64) -> Bound {
        let now = self.supply.synced();
        let Some(classes) = self.classes_mut() else { return Bound::Queue };
        let leaf = classes.entry(class).leaf;
        if classes.scheduler.tree.picked().is_some() || !classes.scheduler.is_idle(leaf) {
            return Bound::Queue;
        }
        let below_ceilings = classes.scheduler.tree.space_below_ceilings(leaf, now);
        let is_held = below_ceilings < cost && !self.supply.is_paused() && ahead(self.supply.limit(), end) >= 0;
        if is_held { Bound::Ceiling } else { self.supply.obstacle(end) }
    }

    /// Tokens of a grant came back.
    pub(super) fn note_refund(&mut self, tokens: u64) {
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.scheduler.refund(tokens, now);
        }
    }

    /// Tokens were added by hand.
    pub(super) fn note_replenish(&mut self, tokens: u64) {
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.scheduler.replenish(tokens, now);
        }
    }

    /// Checks that all floors can be kept below the ceilings if quota number `index` becomes `quota`.
    pub(super) fn check_ceilings(&self, index: usize, quota: Quota) -> Result<(), ConfigError> {
        let Some(classes) = self.classes() else { return Ok(()) };
        let conflict = classes.scheduler.conflict_with(&self.supply, index, quota);
        conflict.map_or(Ok(()), |(class, conflict)| Err(conflict_error(conflict, &classes.name(class))))
    }

    /// Quota number `index` was replaced.
    pub(super) fn requote_classes(&mut self, index: usize) {
        let now = self.supply.synced();
        if let Some(classes) = self.rare.as_mut().and_then(|rare| rare.classes.as_mut()) {
            classes.scheduler.requote(&self.supply, index, now);
        }
    }
}
