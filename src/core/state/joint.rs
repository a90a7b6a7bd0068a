//! The fronts of joint sets in one limiter: what it does for them between two reviews. The rule is in `core/joint.rs`.

use super::serving::{Served, Step};
use super::{Role, State};
use crate::core::classes::ClassId;
use crate::core::forecast::Claim;
use crate::core::joint::{Front, Fronts, JointSet, Part};
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::supply::Supply;
use std::sync::Arc;

impl State {
    /// Present while a joint claim waits here.
    #[inline]
    pub(crate) fn joint(&self) -> Option<&Fronts> {
        if !self.queue.has_joint() {
            return None;
        }
        self.rare.as_ref()?.joint.as_deref()
    }

    #[inline]
    pub(crate) fn joint_mut(&mut self) -> Option<&mut Fronts> {
        if !self.queue.has_joint() {
            return None;
        }
        self.rare.as_mut()?.joint.as_deref_mut()
    }

    /// The joint claim that holds this limiter in front of all others.
    #[inline]
    pub(crate) fn held(&self) -> Option<&Front> {
        self.joint()?.held()
    }

    /// The position at which the last claim ends, with the joint claim that holds this limiter.
    pub(crate) fn claims(&self, rovers: &Rovers) -> u64 {
        rovers.tail().wrapping_add(self.held().map_or(0, |held| held.cost))
    }

    /// The joint claim that holds this limiter, with the number 0, then the waiters in the queue.
    pub(crate) fn claims_and_debts(&self) -> impl Iterator<Item = Claim> {
        let held = self.held().map(|held| (0, held.cost, self.joint().map_or(0, |fronts| fronts.debt)));
        held.into_iter().chain(self.queue.iter().map(Waiter::as_claim))
    }

    /// Whether no claim stands in the way of a new one: none waits in the queue, and no joint claim holds this limiter.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.held().is_none()
    }

    /// A joint claim begins to wait in `class`. Returns what the claim wants from this limiter.
    pub(crate) fn count_joint(&mut self, class: ClassId, cost: u64) -> Part {
        self.queue.count_joint_in();
        let number = self.take_number();
        let fronts = self.rare().joint.get_or_insert_default();
        fronts.count(class, cost, true);
        let charged = fronts.charged;
        self.mark_joint(class, true);
        self.classes_mut().into_iter().for_each(|classes| classes.add_user(class));
        Part { cost, number, charged }
    }

    /// A joint claim does not wait any more.
    pub(crate) fn count_joint_out(&mut self, class: ClassId, cost: u64) {
        let Some(fronts) = self.joint_mut() else { return };
        let are_left = fronts.count(class, cost, false);
        let is_empty = fronts.is_empty();
        self.queue.count_joint_out();
        if !are_left {
            self.mark_joint(class, false);
        }
        if is_empty {
            self.rare().joint = None;
        }
        self.remove_user(class);
    }

    /// Saves tokens for the oldest front that wants to hold this limiter, and for no other.
    pub(crate) fn update_held(&mut self, rovers: &Rovers) {
        let Some(fronts) = self.joint_mut() else { return };
        let (first, held) = (fronts.first_ready(), fronts.held);
        if first == held {
            return;
        }
        let (lent, debt) = (std::mem::take(&mut fronts.lent).0, std::mem::take(&mut fronts.debt));
        fronts.held = first;
        // Both have other instants now.
        let reviewed = fronts.reviewed.map(|(number, ..)| number);
        for number in [held, first].into_iter().flatten() {
            if Some(number) != reviewed && fronts.get(number).is_some() {
                fronts.set_urgent(number);
            }
        }
        if held.is_some() {
            self.supply.take_back(&lent);
            self.supply.pass(0, debt);
            self.supply.cut(None);
        }
        self.supply.note_change();
        let Some(first) = first else {
            return self.charge_debts_if_empty();
        };
        self.recall_proxy();
        // Published tokens could still be claimed without the lock.
        self.retract(rovers);
        let (base, younger) = (self.base(rovers), self.younger_debts(first));
        if younger > 0 {
            let lent = self.supply.lend(base, younger);
            if let Some(fronts) = self.joint_mut() {
                fronts.lent = (lent, younger);
            }
        }
        // What a plain claim in the queue has saved above the burst must not be granted to this front or to the next.
        self.supply.cut(self.front_ticket(rovers));
        let due = self.front_due(rovers, first);
        if let Some(front) = self.joint_mut().and_then(|fronts| fronts.get_mut(first)) {
            // Another instant than planned, but not too late: claims have passed since.
            let is_in_time = due.is_some_and(|due| front.joint_due.is_some_and(|joint_due| due <= joint_due));
            if is_in_time {
                front.due = due;
            }
        }
    }

    /// Runs `change`, which replaces quotas. It sees no tokens that are lent to the held front: they are taken back
    /// before it, and lent again after it.
    pub(super) fn replacing_quotas(&mut self, rovers: &Rovers, change: impl FnOnce(&mut Supply, Option<u64>)) {
        let front = self.front_ticket(rovers);
        let mut lent = self.joint_mut().map(|fronts| std::mem::take(&mut fronts.lent.0)).unwrap_or_default();
        self.supply.take_back(&lent);
        change(&mut self.supply, front);
        self.supply.lend_again(&mut lent);
        self.supply.cut(front);
        self.joint_mut().into_iter().for_each(|fronts| fronts.lent.0 = std::mem::take(&mut lent));
    }

    /// The debts charged after front `number` had arrived that are in the level already. All debts that are still behind
    /// waiters are younger than those.
    pub(super) fn younger_debts(&self, number: u64) -> u64 {
        let Some(fronts) = self.joint().filter(|_| !self.role.has(Role::CLASSES)) else { return 0 };
        let Some(front) = fronts.get(number) else { return 0 };
        fronts.charged.wrapping_sub(front.charged).saturating_sub(self.supply.debts())
    }

    /// The instant, not before `synced`, at which front `number` could be granted here if it held this limiter from now on;
    /// `None` if no clock can tell.
    pub(crate) fn front_due(&self, rovers: &Rovers, number: u64) -> Option<u64> {
        let fronts = self.joint()?;
        let front = fronts.get(number)?;
        let base = self.base(rovers);
        if self.supply.is_capped_below(base.wrapping_add(front.cost + front.paid)) {
            return None;
        }
        // What is lent to the held front is in the heads already.
        let debt = self.younger_debts(number).saturating_sub(fronts.lent.1);
        self.supply.scheduled_with_credit(base, front.cost, debt)
    }

    /// Gives the fronts their turns that have no plain claim before them any more.
    fn give_turns(&mut self) {
        let limit = self.queue.front().map_or(self.next_number, |first| first.number);
        let Some(fronts) = self.joint_mut() else { return };
        while let Some(number) = fronts.next_turn(limit) {
            if let Some(front) = fronts.get_mut(number) {
                front.has_turn = true;
            }
            fronts.set_urgent(number);
        }
    }

    /// Whether the held front has to be reviewed: the instant at which this limiter can grant it is another one than at the
    /// last review, and that changes the joint instant; or it has to be turned away.
    fn is_held_changed(&mut self, rovers: &Rovers) -> bool {
        let Some(number) = self.joint().and_then(|fronts| fronts.held) else { return false };
        let (due, synced) = (self.front_due(rovers, number), self.supply.synced());
        let Some(cost) = self.held().map(|front| front.cost) else { return false };
        if self.closed || self.source_refusal(0, cost, self.base(rovers).wrapping_add(cost)).is_some() {
            return true;
        }
        let Some(front) = self.joint_mut().and_then(|fronts| fronts.get_mut(number)) else { return false };
        let (old, joint_due) = (front.due, front.joint_due);
        let one_clock = front.set.one_clock;
        let is_past = |at: Option<u64>| at.is_some_and(|at| at <= synced);
        if due == old || is_past(due) && is_past(old) {
            return false;
        }
        front.due = due;
        match (old, due) {
            (Some(old), Some(due)) => joint_due.map_or(!one_clock, |joint_due| due > joint_due || old >= joint_due),
            _ => true,
        }
    }

    /// What joint claims do here by `now` and before the next other claim, which is due at `next`: begins to hold the
    /// limiter for one, or stops for a review. `None` if the other claims are next.
    pub(super) fn serve_fronts(&mut self, rovers: &Rovers, next: u64, now: u64) -> Option<Step> {
        if !self.role.has(Role::CLASSES) {
            self.give_turns();
        }
        if self.must_review_at_once() {
            return Some(Step::Ended(Served::Stopped));
        }
        let is_held = self.held().is_some();
        if is_held && self.is_held_changed(rovers) {
            let fronts = self.joint_mut()?;
            let held = fronts.held?;
            if !fronts.is_urgent(held) && fronts.reviewed.is_none_or(|(number, ..)| number != held) {
                fronts.set_urgent(held);
                return Some(Step::Moved);
            }
        }
        // A claim that is ready here and waits for the parent, or is about to, holds nothing back that is due meanwhile.
        let waits_until = if self.front_has_proxy() { now } else { self.supply.synced() };
        let next = if self.role.has(Role::CHILD) { next.max(waits_until.saturating_add(1)) } else { next };
        let alarm = self.joint()?.next_alarm();
        if let Some((at, number)) = alarm.filter(|(at, _)| *at <= now && (is_held || *at < next)) {
            self.supply.mint(at, self.front_ticket(rovers));
            let fronts = self.joint_mut()?;
            let front = fronts.get(number)?;
            if front.joint_due.is_none() {
                fronts.set_alarm(number, None);
                fronts.set_urgent(number);
                return Some(Step::Moved);
            }
            if fronts.begins_at(at, number) {
                // From now on this limiter mints the tokens of the claim.
                let (joint_due, was_urgent) = (front.joint_due, fronts.is_urgent(number));
                fronts.set_alarm(number, joint_due);
                fronts.set_ready(number, true);
                self.update_held(rovers);
                if !was_urgent && !self.is_late(rovers, number) {
                    // As was planned.
                    self.joint_mut()?.clear_urgent(number);
                }
                return Some(Step::Moved);
            }
            let is_later = fronts.reviewed.is_some_and(|(own, review_at)| (at, number) > (review_at, own));
            if !is_later {
                return Some(Step::Ended(Served::Stopped));
            }
        }
        if !is_held {
            return None;
        }
        let ticket = self.front_ticket(rovers)?;
        if self.cap.is_some() {
            self.supply.note_hold(ticket, now);
        }
        self.supply.mint(now, Some(ticket));
        Some(Step::Ended(Served::All))
    }

    /// Whether front `number` is held, and cannot be granted here by its joint instant.
    fn is_late(&self, rovers: &Rovers, number: u64) -> bool {
        let Some(front) = self.joint().filter(|fronts| fronts.held == Some(number)).and_then(|it| it.get(number))
        else {
            return false;
        };
        let joint_due = front.joint_due.unwrap_or(0);
        self.front_due(rovers, number).is_none_or(|due| due > joint_due)
    }

    /// Whether a front has to be reviewed before this limiter is served further. During the review of another one it waits.
    fn must_review_at_once(&self) -> bool {
        self.joint().is_some_and(|fronts| fronts.reviewed.is_none() && fronts.first_urgent().is_some())
    }

    /// The set that has to be reviewed before this limiter is served further.
    pub(crate) fn due_review(&self) -> Option<Arc<JointSet>> {
        let fronts = self.joint()?;
        let by_alarm = || fronts.next_alarm().filter(|(at, _)| *at <= self.supply.synced()).map(|(_, number)| number);
        let first = fronts.first_urgent().filter(|_| fronts.reviewed.is_none()).or_else(by_alarm)?;
        Some(Arc::clone(&fronts.get(first)?.set))
    }

    /// Whether a joint claim has to be looked at by `now`.
    pub(super) fn has_due_front(&self, now: u64) -> bool {
        self.joint().is_some_and(|fronts| {
            fronts.held.is_some() || fronts.first_urgent().is_some() || fronts.first_alarm().is_some_and(|at| at <= now)
        })
    }

    /// The quotas, the pause or the cap are others now, or the limiter was closed, or a class removed.
    pub(super) fn review_all_fronts(&mut self) {
        if let Some(fronts) = self.joint_mut() {
            fronts.make_all_urgent();
        }
    }
}
