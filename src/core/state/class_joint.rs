//! Joint claims in a limiter with classes.
//!
//! # The rule
//!
//! The front of a joint set goes through the steps that `core/joint.rs` describes. Only its turn differs: it waits in the
//! queue of its class, behind the claims with smaller numbers, and in turn with the other classes. The scheduler picks it as
//! any claim. Its last installment needs no tokens yet: the classes on the path are charged for it at once, and the front
//! leaves the queue of its class. A claim above the burst gets its earlier installments set aside before, in earlier turns.
//! Then it waits beside the queue, and in time it holds the limiter in front of all classes with its last installment. While
//! it does, no class is served.
//!
//! A front waits for its turn while an older one of its class had its turn and is not granted yet, and so do the claims behind
//! it. Otherwise a class could have many turns while no other class wants the tokens, and take all these tokens at once later:
//! credit for idle time. A class whose next claim waits for this reason counts as idle. A front that comes into a class does
//! not pass the claim that the scheduler knows as the front of the class already, even if that one is younger.
//!
//! # Why it is correct
//!
//! - *The rate law.* A turn takes no tokens. What is set aside in earlier turns stays below the shadow until the grant, as
//!   that of any divided claim. So the installments keep the law. Several claims above the burst, of different classes, can be
//!   granted at one instant, when the limiter they wait for grants.
//! - *Shares.* A turn charges what an installment would. So the tokens of a class, counted at its turns, keep all bounds of
//!   the scheduler. Counted at the grants, a class is behind by one installment, and by one more for each older front that
//!   came after a younger one had its turn. Ceilings are charged at the turn too.
//! - *No circle.* A front waits for the turns of older fronts only, in all classes, and a limiter holds only fronts that had
//!   all their turns.

use super::step::{Completes, InService};
use super::{State, classes_in};
use crate::core::classes::{ClassId, Classes, Pick};
use crate::core::joint::Front;
use crate::core::rovers::Rovers;

/// The class of the claim that is served with `pick`, and what is complete then. `is_last`: `pick` is the last installment of
/// the claim.
#[inline(always)]
pub(super) fn in_service(classes: &Classes, pick: Pick, is_last: bool) -> (ClassId, Completes) {
    let owner = classes.owner(pick.leaf);
    let entry = classes.entry(owner);
    entry.read_ahead();
    let completes = if !is_last {
        Completes::Nothing
    } else if entry.offers_joint {
        Completes::Turn
    } else {
        let is_proxy = entry.queue.front().is_some_and(|front| front.child.is_some());
        if is_proxy { Completes::Proxy } else { Completes::Claim }
    };
    (owner, completes)
}

/// The cost of the next claim of a class, and the number of a joint one. `None` if there is none, or if it waits for an
/// older joint claim of the class that had its turn. In the class of a key it does not wait: it is the proxy of a claim for
/// which the joint claim may be waiting in the queue of the key.
#[inline(always)]
pub(super) fn next_front(classes: &Classes, class: ClassId) -> Option<(u64, Option<u64>)> {
    let entry = classes.entry(class);
    let front = entry.queue.front();
    let joint = if entry.has_joint { classes.first_joint(class) } else { None };
    match joint.filter(|(number, _)| front.is_none_or(|front| *number < front.number)) {
        Some((number, cost)) if !classes.is_turn_taken_before(class, number) => Some((cost, Some(number))),
        Some(_) if !classes.is_of_key(class) => None,
        _ => front.map(|front| (front.cost, None)),
    }
}

impl State {
    /// Whether no claim waits in the queue of a class.
    pub(super) fn is_class_empty(&self, class: ClassId) -> bool {
        self.classes().is_none_or(|classes| classes.entry(class).queue.front().is_none())
    }

    /// Joint claims wait in a class from now on, or none does any more.
    pub(super) fn mark_joint(&mut self, class: ClassId, waits: bool) {
        if let Some(classes) = self.classes_mut() {
            classes.entry_mut(class).has_joint = waits;
        }
    }

    /// The front of a set enters the queue of its class.
    pub(super) fn enter_front_in_class(&mut self, rovers: &Rovers, class: ClassId, number: u64, cost: u64) {
        if self.is_clear() {
            self.retract(rovers);
        }
        rovers.claim(cost);
        self.queue.count_from_aside(cost);
        if let Some(fronts) = self.joint_mut() {
            fronts.in_classes += cost;
        }
        let Some(classes) = classes_in(&mut self.rare) else { return };
        classes.add_joint(class, number, cost);
        self.fill_class_front(class);
    }

    /// If the scheduler knows no front claim of a class: tells it which one is next.
    fn fill_class_front(&mut self, class: ClassId) {
        let Some(classes) = self.classes() else { return };
        if !self.awaits_class(class) && classes.scheduler.cost(classes.entry(class).leaf) == 0 {
            self.put_next_in_front(class, 0);
        }
    }

    /// The front of a set that is in service has its turn.
    pub(super) fn take_turn(&mut self, served: InService) {
        let InService { pick: Some(pick), owner: class, .. } = served else { return };
        let now = self.supply.synced();
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let Some((number, cost)) = classes.offered_joint(class) else { return };
        let paid = classes.scheduler.paid(pick.leaf);
        classes.scheduler.tree.charge(pick.leaf, pick, now);
        classes.count_served(class, pick);
        classes.take_joint_turn(class, number);
        self.queue.count_aside();
        self.pass_in_class(cost - paid, 0);
        self.put_next_in_front(class, 0);
        self.supply.cut(None);
        let Some(fronts) = self.joint_mut() else { return };
        if let Some(front) = fronts.get_mut(number) {
            (front.cost, front.paid, front.has_turn) = (cost - paid, paid, true);
        }
        fronts.set_urgent(number);
    }

    /// `cost` tokens of a joint claim do not wait in its class any more: everything moves past their positions, of which `paid`
    /// were paid and are given back.
    fn pass_in_class(&mut self, cost: u64, paid: u64) {
        self.joint_mut().into_iter().for_each(|fronts| fronts.in_classes -= cost);
        self.queue.count_tokens_out(cost - paid);
        self.supply.shift(cost - paid);
        self.totals.skipped = self.totals.skipped.wrapping_add(cost);
    }

    /// The front of a set, which is no front any more, was granted.
    pub(super) fn charge_class_of_front(&mut self, number: u64, &Front { class, cost, paid, .. }: &Front) {
        self.joint_mut().into_iter().for_each(|fronts| fronts.in_classes -= paid);
        if let Some(classes) = classes_in(&mut self.rare) {
            classes.scheduler.grant_reserved(cost, paid, &mut self.supply);
            classes.remove_joint(class, number);
        }
        self.fill_class_front(class);
    }

    /// The front of a set, which is no front any more, leaves without a grant.
    pub(super) fn leave_class_of_front(&mut self, rovers: &Rovers, number: u64, front: &Front) {
        let &Front { class, cost, paid, has_turn, .. } = front;
        let base = self.base(rovers);
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let is_offered = classes.offered_joint(class).is_some_and(|(offered, _)| offered == number);
        let paid = if is_offered { classes.scheduler.paid(classes.entry(class).leaf) } else { paid };
        classes.scheduler.withdraw(paid, &mut self.supply, base);
        classes.remove_joint(class, number);
        if has_turn {
            self.pass_in_class(paid, paid);
        } else {
            self.queue.count_aside();
            self.pass_in_class(cost, paid);
            if is_offered {
                self.put_next_in_front(class, 0);
            }
        }
        self.fill_class_front(class);
    }
}
