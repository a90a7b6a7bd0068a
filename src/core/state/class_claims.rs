//! Claims of classes: granted, denied, or entered into the queue of their class; and their estimated waits. See
//! `state/classes.rs`.

use super::class_joint::next_front;
use super::{Role, State, classes_in};
use crate::core::classes::{Backlog, ClassId, Classes, MOST_SIMULATED, ROOT};
use crate::core::forecast::Claim;
use crate::core::queue::{Place, Waiter};
use crate::core::rovers::Rovers;
use crate::error::ConsumeError;
use crate::observe::GrantWord;
use std::pin::Pin;
use std::task::Waker;

impl State {
    /// Grants `cost` tokens to a class now, if no claim is ahead of this one and they are there. The limiter has been served up
    /// to now.
    pub(super) fn admit_class(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<GrantWord> {
        let classes = self.classes()?;
        let leaf = classes.entry(class).leaf;
        let is_idle = self.is_clear();
        if is_idle && !classes.scheduler.tree.is_under_ceiling(leaf) {
            let word = self.admit(rovers, cost)?;
            let now = self.supply.synced();
            self.classes_mut()?.scheduler.note_taken(cost, now);
            return Some(word);
        }
        let base = self.base(rovers);
        if !self.is_open(base, class, cost) {
            return None;
        }
        let limit = self.supply.limit();
        let classes = classes_in(&mut self.rare)?;
        // While no claim waits, other callers may claim what is published. While one waits, they cannot.
        let take = || {
            if is_idle {
                return rovers.try_claim_owned(cost, limit).is_some();
            }
            rovers.claim(cost);
            true
        };
        let pick = classes.scheduler.serve_at_once(leaf, cost, &mut self.supply, base, take)?;
        self.classes_mut()?.count_served(class, pick);
        Some(GrantWord::charged(self.supply.level(base.wrapping_add(cost), 0)))
    }

    /// Whether claims of a class need no more than the limiter's own tokens while no claim waits: it was not removed, and no
    /// ceiling is above it.
    pub(crate) fn is_free(&self, class: ClassId) -> bool {
        self.classes().is_some_and(|classes| {
            let entry = classes.entry(class);
            !entry.is_removed && !classes.scheduler.tree.is_under_ceiling(entry.leaf)
        })
    }

    /// Whether the tokens for a claim of `cost` in a class are there, and no claim is before it in its queue.
    pub(super) fn is_open(&self, base: u64, class: ClassId, cost: u64) -> bool {
        let Some(classes) = self.classes() else { return false };
        classes.scheduler.is_idle(classes.entry(class).leaf)
            && (!self.role.has(Role::SOURCE) || classes.scheduler.pick().is_none())
            && self.is_class_empty(class)
            && self.held().is_none()
            && !self.supply.is_paused()
            && self.supply.level(base, 0) >= cost
    }

    /// Joins the end of the queue of `class`, without serving what is due. Returns false if the caller has to take the full
    /// path instead, as [`enqueue_fast`](Self::enqueue_fast) does.
    ///
    /// The schedule stays exact, because serving first would change nothing for the claim. Either nothing is due by `now`,
    /// and the claim is behind others of its class or needs at least as many tokens as what is served next: so it is not
    /// due earlier. Or the class has claims for which the quotas do not have the tokens by `now`, even if they gave them to
    /// no other class: the class is backlogged at `now` in any case, and a claim behind others is not seen by the scheduler.
    // Apart, so that a limiter without classes pays for one check.
    #[cold]
    #[inline(never)]
    pub(crate) fn enqueue_in_class(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waker: &mut Option<Waker>,
        now: u64,
    ) -> bool {
        let now = now.max(self.supply.synced());
        let Some(classes) = self.classes() else { return false };
        let entry = classes.entry(class);
        // Waiters that are turned away are due at once, and so is what an interrupted caller or a child has left. The task of
        // a source must learn of each waiter, and a dry run of each claim.
        let is_late = !classes.closing.is_empty() || classes.scheduler.is_changing() || self.is_unfinished();
        if entry.is_removed || is_late || !self.role.has_only(Role::CLASSES) || self.queue.has_joint() {
            return false;
        }
        let has_space = entry.queue.len() < entry.max_waiting && !self.queue.is_full();
        let can_wait = has_space && !self.queue.is_empty() && cost > 0;
        if !can_wait || self.check_claim(rovers, cost).is_err() {
            return false;
        }
        let base = self.base(rovers);
        let waiting = entry.queue.tokens();
        if self.last_due > now {
            if waiting == 0 {
                // A smaller installment may be served before what is picked now, and perhaps at once.
                let tokens = cost.min(classes.scheduler.tree.most(entry.leaf));
                let pick = classes.scheduler.tree.pick().filter(|pick| pick.tokens <= tokens && self.cap.is_none());
                let Some(pick) = pick else { return false };
                self.supply.mint(now, Some(base.wrapping_add(pick.tokens)));
            }
        } else if waiting == 0 || self.supply.aside() > 0 {
            // What is set aside for a claim comes back if that claim turns out to have left.
            return false;
        } else if self.supply.scheduled(base.wrapping_add(waiting)).is_some_and(|at| at <= now) {
            return false;
        }
        let Some(waker) = waker.take() else { return false };
        let number = self.take_number();
        self.push_in_class(rovers, place, class, Waiter { waker, number, cost, debt_after: 0, child: None }, now);
        true
    }

    /// Puts a claim that arrives now at the end of the queue of its class.
    pub(super) fn enter_class(&mut self, rovers: &Rovers, place: Pin<&mut Place>, class: ClassId, waiter: Waiter) {
        if self.is_clear() {
            // Other callers must not take what is there for claims that wait, or that a ceiling holds back.
            self.retract(rovers);
        }
        let now = self.supply.synced();
        self.push_in_class(rovers, place, class, waiter, now);
    }

    /// Puts a claim that arrives at `now` at the end of the queue of its class.
    #[inline(always)]
    fn push_in_class(&mut self, rovers: &Rovers, place: Pin<&mut Place>, class: ClassId, waiter: Waiter, now: u64) {
        let cost = waiter.cost;
        rovers.claim(cost);
        let is_awaited = self.awaits_class(class);
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let entry = classes.entry_mut(class);
        let leaf = entry.leaf;
        let has_joint = entry.has_joint;
        entry.queue.push(place, waiter);
        self.queue.count_in(cost);
        let is_blocked = has_joint && next_front(classes, class).is_none();
        // With the answer that the class has been waiting for, `go_on` follows.
        if is_blocked || is_awaited {
            return;
        }
        let is_idle = self.role.has(Role::SOURCE) && classes.scheduler.is_idle(leaf);
        classes.scheduler.arrive(leaf, cost, now);
        if is_idle {
            // What was planned was planned for other classes.
            self.supply.source_mut().into_iter().for_each(|source| source.call_task());
        }
    }

    /// The instant at which a claim of `cost` made now in a class would be granted, if no caller did anything from now
    /// on. `None` if no clock can tell. Copies the classes if they are few, and takes a bounded number of steps; see
    /// [`Scheduler::granted_at`](crate::core::classes::Scheduler::granted_at).
    pub(super) fn predict_in_class(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let classes = self.classes()?;
        if self.queue.has_joint() {
            return None;
        }
        let (leaf, base) = (classes.entry(class).leaf, self.base(rovers));
        let is_whole = cost <= self.supply.least_burst();
        if self.queue.is_empty() && is_whole && !classes.scheduler.tree.is_under_ceiling(leaf) {
            return self.supply.scheduled(base.wrapping_add(cost));
        }
        let queue = |leaf: ClassId| classes.waiting_in_leaf(leaf);
        let scheduler = &classes.scheduler;
        let own = classes.entry(class).queue.tokens() + cost - scheduler.paid(leaf);
        let all = self.queue.tokens() + cost + self.supply.debts();
        let backlog = Backlog { own, all };
        if classes.len() > MOST_SIMULATED {
            return scheduler.tree.served_by_share(leaf, backlog, &self.supply, base);
        }
        scheduler.granted_at(&self.supply, base, leaf, cost, backlog, queue)
    }

    /// The claims that wait in a class itself.
    pub(crate) fn claims_of(&self, class: ClassId) -> impl Iterator<Item = Claim> {
        let queue = self.classes().map_or(&self.queue, |classes| &classes.entry(class).queue);
        queue.iter().map(Waiter::as_claim)
    }

    /// The number of the first claim that waits, in the limiter and in its classes.
    pub(crate) fn first_waiting(&self) -> Option<u64> {
        let classes = self.classes().map_or_else(|| vec![ROOT], Classes::all);
        let fronts = classes.into_iter().filter_map(|class| self.claims_of(class).next());
        fronts.map(|(number, ..)| number).min()
    }

    /// The instant at which all claims that wait, and another one of `cost` tokens in a class, could have been served.
    pub(crate) fn served_by(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let classes = self.classes()?;
        let leaf = classes.entry(class).leaf;
        let at = self.supply.scheduled(rovers.tail().wrapping_add(cost))?;
        let fits = cost <= classes.scheduler.tree.most(leaf);
        Some(if fits { at.max(classes.scheduler.tree.ceilings_have(leaf, cost)) } else { at })
    }

    /// Whether the limiter or the class takes no claims any more.
    pub(crate) fn is_closed(&self, class: ClassId) -> bool {
        self.closed || self.classes().is_some_and(|classes| classes.entry(class).is_removed)
    }

    /// Whether one more claim may wait in a class, or in a limiter without classes; see [`check_queue`](Self::check_queue).
    #[inline(always)]
    pub(crate) fn check_queue_of(&self, class: ClassId, driven: bool) -> Result<(), ConsumeError> {
        if let Some(entry) = self.classes().map(|classes| classes.entry(class)) {
            let waiting = self.waiting_in(class).0;
            if waiting >= entry.max_waiting {
                return Err(ConsumeError::QueueFull { waiting });
            }
        }
        self.check_queue(driven)
    }

    /// An instant by which a claim of `cost` made now in a class is granted, whatever the order of service is: as
    /// [`predict_in_class`](Self::predict_in_class) for most claims with a deadline, but without a look at the other classes.
    /// `None` if that is not known.
    pub(super) fn granted_by(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let is_known = self.is_free(class) && !self.queue.has_joint();
        if is_known { self.supply.passed_by(rovers.tail().wrapping_add(cost)) } else { None }
    }

    /// The instant before which a claim of `cost` made now in a class, or in a limiter without classes, cannot be
    /// granted, behind the claims before it there, if that is known.
    pub(super) fn not_before(&self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        let Some(classes) = self.classes() else { return self.supply.not_before(rovers.tail().wrapping_add(cost)) };
        let leaf = classes.entry(class).leaf;
        // What is paid can be for a joint claim, which is not in the queue.
        let own = classes.entry(class).queue.tokens().saturating_sub(classes.scheduler.paid(leaf));
        self.supply.not_before(self.base(rovers).wrapping_add(own + cost))
    }
}
