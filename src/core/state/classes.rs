//! The state of a limiter with classes: how claims arrive, are served and leave.
//!
//! Waiters stand in the queues of their classes, also those of the limiter itself, and none has a position of its own.
//! The tail moves by the cost of a claim when it arrives. While a claim waits, nothing beyond the [base](State::base) is
//! published: it is the position at which all tokens taken so far end, of grants and of installments.
//!
//! The scheduler decides for which claim the tokens behind the base are. A claim that leaves takes its unpaid positions
//! with it: everything else moves past them.

use super::class_joint::{in_service, next_front};
use super::step::{Completes, InService};
use super::{Role, State, classes_in};
use crate::Quota;
use crate::core::classes::{ClassId, Classes, NextStep};
use crate::core::joint::Fronts;
use crate::core::outcome::Outcome;
use crate::core::queue::Queue;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::error::ConfigError;
use crate::observe::GrantWord;
use std::task::Waker;

impl State {
    #[inline]
    pub(crate) fn has_classes(&self) -> bool {
        self.role.has(Role::CLASSES)
    }

    /// The classes of a limiter that was built with them.
    #[inline(always)]
    pub(crate) fn classes(&self) -> Option<&Classes> {
        if !self.role.has(Role::CLASSES) {
            return None;
        }
        self.rare.as_ref()?.classes.as_deref()
    }

    pub(crate) fn classes_mut(&mut self) -> Option<&mut Classes> {
        classes_in(&mut self.rare)
    }

    /// Takes the wakers of all waiters; see [`Queue::take_wakers`].
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = self.queue.take_wakers();
        for class in 0..self.classes().map_or(0, Classes::len) {
            wakers.extend(self.queue_of(class).take_wakers());
        }
        wakers.extend(self.joint().into_iter().flat_map(Fronts::sets).flat_map(|set| set.take_wakers()));
        wakers
    }

    /// Divides the limiter into classes, before it is used.
    pub(crate) fn enable_classes(&mut self) {
        let classes = Classes::new(&self.supply);
        self.rare().classes = Some(Box::new(classes));
        self.role.add(Role::CLASSES);
    }

    /// The queue in which the claims of a class wait.
    #[inline]
    pub(crate) fn queue_of(&mut self, class: ClassId) -> &mut Queue {
        if !self.role.has(Role::CLASSES) {
            return &mut self.queue;
        }
        match classes_in(&mut self.rare) {
            Some(classes) => &mut classes.entry_mut(class).queue,
            None => &mut self.queue,
        }
    }

    /// What the scheduler serves next.
    #[inline(always)]
    pub(super) fn next_in_classes(&mut self, rovers: &Rovers) -> InService {
        let base = self.base(rovers);
        let Some(classes) = classes_in(&mut self.rare) else { return InService::NOTHING };
        let NextStep { at, pick, is_last, serves } = classes.scheduler.next_step(&self.supply, base);
        let at = Some(at).filter(|at| *at < u64::MAX);
        let Some(pick) = pick else { return InService { at, completes: Completes::Recheck, ..InService::NOTHING } };
        let (owner, completes) = in_service(classes, pick, is_last);
        let completes = if serves || completes == Completes::Turn { completes } else { Completes::Recheck };
        InService { at, ticket: Some(base.wrapping_add(pick.tokens)), owner, pick: Some(pick), completes }
    }

    #[inline]
    pub(super) fn pay_installment(&mut self, rovers: &Rovers, served: InService, wakes: &mut Wakes) {
        let InService { ticket: Some(ticket), pick: Some(pick), owner, completes, .. } = served else { return };
        let base = ticket.wrapping_sub(pick.tokens);
        let Some(classes) = classes_in(&mut self.rare) else { return };
        classes.count_served(owner, pick);
        classes.scheduler.saves_for = None;
        if completes == Completes::Nothing {
            let aside = self.supply.aside();
            classes.scheduler.pay(pick, &mut self.supply, base);
            return self.queue.count_tokens_out(self.supply.aside() - aside);
        }
        let level = self.supply.level(ticket, classes.scheduler.paid(pick.leaf));
        let word = self.with_instant(GrantWord::charged(level));
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let waiter = classes.entry_mut(owner).queue.call_front(Outcome::Granted(word));
        let waiter = waiter.expect("the claim in service is at the front of its queue");
        self.queue.count_out(pick.tokens);
        let next = next_cost(classes, owner);
        classes.scheduler.pay_claim(pick, next, waiter.debt_after, &mut self.supply, base);
        self.charge_debts_if_empty();
        self.forget_denial(rovers);
        self.forget_wait(waiter.number);
        wakes.push(waiter.waker);
    }

    /// Tells the scheduler which claim of a class is in front now. `debt` was noted behind the one before it.
    pub(super) fn put_next_in_front(&mut self, class: ClassId, debt: u64) {
        if let Some(classes) = classes_in(&mut self.rare) {
            let (leaf, next) = (classes.entry(class).leaf, next_cost(classes, class));
            classes.scheduler.advance(leaf, next, debt, &self.supply);
        }
        self.charge_debts_if_empty();
    }

    /// If no claim waits, what classes still owe is a debt of the limiter, which newcomers wait for.
    #[inline(always)]
    pub(super) fn charge_debts_if_empty(&mut self) {
        if self.queue.is_empty() {
            if let Some(classes) = classes_in(&mut self.rare) {
                classes.scheduler.charge_debts(&mut self.supply);
            }
        }
    }

    /// Checks that all floors can be kept below the ceilings if quota number `index` becomes `quota`.
    pub(super) fn check_ceilings(&self, index: usize, quota: Quota) -> Result<(), ConfigError> {
        let Some(classes) = self.classes() else { return Ok(()) };
        match classes.scheduler.conflict_with(&self.supply, index, quota) {
            Some((burst, least, id)) => Err(ConfigError::CeilingBelowBurst { class: classes.name(id), burst, least }),
            None => Ok(()),
        }
    }

    /// Whether changes of the classes have left something to do.
    #[inline]
    pub(super) fn is_changing(&self) -> bool {
        self.classes().is_some_and(|classes| classes.scheduler.is_changing())
    }

    /// Does what changes of the classes have left, a bounded part of it for one hold of the lock. Returns whether nothing is
    /// left.
    #[inline]
    pub(super) fn finish_changes(&mut self) -> bool {
        let now = self.supply.synced();
        !self.is_changing() || self.classes_mut().is_none_or(|classes| classes.scheduler.finish_changes(now))
    }
}

/// The cost of the claim that is in front of a class now, or 0. The caller tells the scheduler.
#[inline(always)]
fn next_cost(classes: &mut Classes, class: ClassId) -> u64 {
    let entry = classes.entry(class);
    if !entry.has_joint {
        return entry.queue.front().map_or(0, |front| front.cost);
    }
    let next = next_front(classes, class);
    classes.offer_joint(class, next.and_then(|(_, joint)| joint));
    next.map_or(0, |(cost, _)| cost)
}
