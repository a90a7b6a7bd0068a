//! Joint claims in a limiter with classes.
//!
//! # The rule
//!
//! A part of a joint claim goes through the stages that `state/joint.rs` describes. Only the first one differs:
//!
//! 1. **Turn.** The part waits in the queue of its class, behind the claims that were there before it, and in turn with the
//!    other classes. The scheduler picks it as any claim. Its last installment needs no tokens yet: the classes on the path
//!    are charged for it at once, and the part leaves the queue of its class. A claim above the burst gets its earlier
//!    installments set aside before, in earlier turns.
//! 2. **Aside** and 3. **Held**: as in a limiter without classes. A part that is held stands in front of all classes with its
//!    last installment. While one is held, no class is served.
//!
//! A class has one part at a time that had its turn and is not granted yet. A joint claim behind it in the same class waits
//! for that, and so do the claims behind that one. Otherwise a class could have many turns while no other class wants the
//! tokens, and take all these tokens at once later: credit for idle time. A class whose front claim waits for this reason
//! counts as idle.
//!
//! # Why it is correct
//!
//! - *The rate law.* A turn takes no tokens. A part that is held is the front of a queue as in a limiter without
//!   classes, with the base in the place of the queue's beginning; the proof is in `state/joint.rs`. What is set aside
//!   in earlier turns stays below the shadow until the grant, as that of any divided claim. So the installments keep
//!   the law. Several claims above the burst, of different classes, can be granted at one instant, when the limiter
//!   they wait for grants.
//! - *Shares.* A turn charges what an installment would. So the tokens of a class, counted at its turns, keep all bounds of
//!   the scheduler. Counted at the grants, a class is behind by one installment at most. Ceilings are charged at the turn too.
//! - *Order.* In the queue of a class no claim passes another before its turn. Claims pass a part only while it is aside.
//! - *No circle.* Parts enter all queues of a claim while these are locked. So of two joint claims in one class the older
//!   one has its turn first, and of two that want the front of a limiter the older one has it. A queue holds its part only
//!   after the claim had its turn in all limiters with classes. So a claim that still waits for a turn holds nothing, and
//!   each wait of one joint claim for another is of a younger one for an older one.
//! - *No starvation.* A turn comes as an installment does, since the classes are served between two parts that are held: each
//!   part needs a turn of its own before it is held. From the last turn on, the bound of `state/joint.rs` applies.

use super::front::FrontAction;
use super::serving::{PassTime, Reach, Served, Step};
use super::{State, classes_in};
use crate::core::classes::{ClassEntry, ClassId, Classes, Pick, ROOT};
use crate::core::joint::{JointPart, JointState};
use crate::core::outcome::Outcome;
use crate::core::queue::{PartStage, Place, Queue, Reservation};
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::observe::Verdict;
use std::pin::Pin;
use std::task::Waker;

/// An installment, and the class of the claim that it is for.
#[derive(Clone, Copy)]
pub(super) struct InService {
    pub(super) pick: Pick,
    pub(super) owner: ClassId,
    pub(super) completes: Completes,
}

/// What is complete with an installment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completes {
    /// No claim: the installment is a part of one, or of a debt.
    Nothing,
    /// A claim, which is granted.
    Claim,
    /// The claim of a child, which may have left the child's queue.
    Ticket,
    /// A part of a joint claim, which has its turn and goes on to wait for the other limiters.
    Turn,
}

/// What is served with `pick`. `queue` is that of the limiter.
#[inline]
pub(super) fn in_service(queue: &Queue, classes: &Classes, pick: Pick) -> InService {
    let owner = classes.owner(pick.leaf);
    classes.read_ahead(owner);
    let completes = if classes.scheduler.is_last_installment(pick) {
        let queue = if owner == ROOT { queue } else { &classes.entry(owner).queue };
        match queue.list_front().and_then(|front| front.part.as_ref()) {
            None => Completes::Claim,
            Some(part) if part.is_parent_ticket() => Completes::Ticket,
            Some(_) => Completes::Turn,
        }
    } else {
        Completes::Nothing
    };
    InService { pick, owner, completes }
}

/// The cost of the front claim of a class, which waits in `queue`. `None` if there is none, or if it waits for the joint claim
/// of its class that had its turn.
#[inline]
pub(super) fn front_cost(queue: &Queue, entry: &ClassEntry) -> Option<u64> {
    let front = queue.list_front()?;
    (!(entry.is_reserved && front.is_joint())).then_some(front.cost)
}

impl State {
    /// A part of a joint claim joins the end of the queue of its class. `place` stands for it there until its turn.
    pub(crate) fn enter_part_in_class(
        &mut self,
        rovers: &Rovers,
        class: ClassId,
        cost: u64,
        waker: Waker,
        part: Box<JointPart>,
        place: Pin<&mut Place>,
    ) {
        let for_class_queue = Box::new(part.for_class_queue());
        self.queue.add_turn(class, cost, waker, part);
        self.enter_class(rovers, place, class, cost, Waker::noop().clone(), Some(for_class_queue));
    }

    /// Whether no claim waits in the queue of a class.
    pub(super) fn is_class_empty(&self, class: ClassId) -> bool {
        let queue = match self.classes() {
            Some(classes) if class != ROOT => &classes.entry(class).queue,
            _ => &self.queue,
        };
        queue.list_front().is_none()
    }

    /// Serves the parts of joint claims, as of the instant up to which the limiter is served. Returns `None` if no part is
    /// held and none can move: the classes are next.
    pub(super) fn serve_parts(
        &mut self,
        rovers: &Rovers,
        time: PassTime,
        reach: Reach,
        wakes: &mut Wakes,
    ) -> Option<Step> {
        if let Some(step) = self.move_next_part(rovers, wakes) {
            return Some(step);
        }
        let now = time.now;
        let held = self.queue.held()?;
        let (cost, ticket) = (held.waiter.cost, self.base(rovers).wrapping_add(held.waiter.cost));
        if wakes.is_full() {
            // A decision needs space for a waker; see `serve_front`.
            return Some(Step::Ended(Served::Again));
        }
        if self.next_alarm().is_some_and(|alarm| self.alarm_comes_first(alarm, cost, ticket, now)) {
            return Some(self.review_alarm(rovers, Some(ticket), wakes));
        }
        let action = self.front_action::<false>(&held.waiter, ticket, time, &mut wakes.last_decision);
        let waits = matches!(action, FrontAction::Held(_) | FrontAction::Wait);
        if waits && self.next_alarm().is_some_and(|alarm| alarm <= now) {
            return Some(self.review_alarm(rovers, Some(ticket), wakes));
        }
        match action {
            FrontAction::Held(since) if reach != Reach::Now => {
                self.supply.mint(since, Some(ticket));
                self.announce_held_due(rovers, wakes);
                return Some(Step::Ended(Served::Held));
            }
            FrontAction::Held(_) | FrontAction::Wait => {
                self.supply.mint(now, Some(ticket));
                self.announce_held_due(rovers, wakes);
                return Some(Step::Ended(Served::All));
            }
            FrontAction::Again | FrontAction::TicketRecalled => return Some(Step::Ended(Served::Again)),
            FrontAction::Grant(at) => {
                self.supply.mint(at, Some(ticket));
                self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
                let remaining = Verdict::charged(self.classes().map_or(0, |classes| self.level(classes, ticket)));
                self.call_held(rovers, Outcome::Granted { remaining }, wakes);
            }
            FrontAction::TurnAway(outcome) => {
                self.supply.mint(now, Some(ticket));
                self.call_held(rovers, outcome, wakes);
            }
        }
        Some(Step::Left)
    }

    /// The part at the front of the class in service has its turn. The batch of wakers must have space.
    pub(super) fn take_turn(&mut self, rovers: &Rovers, turn: InService, base: u64, wakes: &mut Wakes) {
        let InService { pick, owner: class, .. } = turn;
        self.forget_denial(rovers);
        let Some(part) = self.queue_of(class).list_front().and_then(|front| front.part.as_deref()) else { return };
        let (number, is_dead) = (part.number(), part.is_dead());
        let waiter = self.queue_of(class).call_list_front(Outcome::JointEnded).expect("the part is at the front");
        if is_dead {
            self.withdraw_front(class, &waiter, base);
            self.advance(class, &waiter);
            if self.queue.parts().is_some_and(|parts| parts.joint_part(number).is_some()) {
                self.turn_part_away(rovers, number, Outcome::JointEnded, wakes);
            }
            return;
        }
        let now = self.supply.synced();
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let paid = classes.scheduler.take_turn(pick, now);
        classes.count_served(class, pick);
        classes.reserve(class, Some(number));
        self.supply.shift(waiter.cost - paid);
        self.supply.raise_ceiling(paid);
        self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
        self.advance(class, &waiter);
        self.supply.cut(None);
        self.queue.take_turn(number, paid);
        self.arrive_part(rovers, number, wakes);
    }

    /// Calls the held part out.
    fn call_held(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let Some(number) = self.queue.held().map(|held| held.number) else { return };
        let Some(Reservation { class, paid }) = self.reservation(number) else { return };
        let waiter = self.queue.call_front(outcome).expect("a part is held");
        let Some(part) = &waiter.part else { return };
        if matches!(outcome, Outcome::Granted { .. }) {
            self.supply.pass(waiter.cost, waiter.debt_after);
            self.supply.raise_ceiling(paid.wrapping_neg());
            self.totals.skipped = self.totals.skipped.wrapping_sub(paid);
            if let Some(classes) = classes_in(&mut self.rare) {
                classes.scheduler.grant_reserved(waiter.cost, paid, &self.supply);
            }
            self.let_next_part_in(class);
        } else {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.supply.drop_front(waiter.cost, waiter.debt_after);
            self.end_reservation(rovers, Some(Reservation { class, paid }));
        }
        self.charge_debts_if_idle();
        part.claim.kill_as(outcome);
        wakes.push_update(part.claim.clone(), part.since_entered(self.supply.synced()));
        wakes.push(waiter.waker);
    }

    /// What the class of a part has reserved for it. `None` in a limiter without classes.
    pub(super) fn reservation(&self, number: u64) -> Option<Reservation> {
        self.classes()?;
        self.queue.parts()?.reservation(number)
    }

    /// A part that had its turn has left without a grant.
    pub(super) fn end_reservation(&mut self, rovers: &Rovers, reservation: Option<Reservation>) {
        let Some(Reservation { class, paid }) = reservation else { return };
        let base = self.base(rovers);
        self.adding_tokens(|state| {
            if let Some(classes) = classes_in(&mut state.rare) {
                classes.scheduler.withdraw_reserved(paid, &mut state.supply, base);
            }
        });
        self.let_next_part_in(class);
    }

    /// The joint claim of a class that had its turn is gone: the next one may be in front.
    fn let_next_part_in(&mut self, class: ClassId) {
        let Some(classes) = self.classes_mut() else { return };
        classes.reserve(class, None);
        let leaf = classes.entry(class).leaf;
        if classes.scheduler.has_no_front(leaf) {
            self.put_next_in_front(class, 0);
        }
    }

    /// No claim is in the queue any more: what classes still owe is a debt of the limiter.
    pub(super) fn charge_debts_if_idle(&mut self) {
        if !self.role.has_classes() || !self.queue.is_empty() {
            return;
        }
        if let Some(classes) = classes_in(&mut self.rare) {
            classes.scheduler.charge_debts(&mut self.supply);
        }
    }

    /// Whether every grant must be made under the lock, in turn; see
    /// [`has_parked`](crate::core::classes::Scheduler::has_parked).
    pub(crate) fn has_parked(&self) -> bool {
        self.classes().is_some_and(|classes| classes.scheduler.has_parked())
    }

    /// The instant, not before `synced`, at which the front waiter of `cost` passes, which ends at `ticket`; `None` if no clock can tell.
    pub(super) fn front_due(&self, cost: u64, ticket: u64) -> Option<u64> {
        let Some(classes) = self.classes() else { return self.supply.due(ticket) };
        let number = self.queue.held().map(|held| held.number);
        let paid = number.and_then(|number| self.reservation(number)).map_or(0, |reservation| reservation.paid);
        let fits = classes.scheduler.fits(&self.supply, ticket.wrapping_sub(cost), cost + paid);
        if fits { self.supply.scheduled(ticket) } else { None }
    }

    /// The same for the held part.
    pub(super) fn held_due(&self, rovers: &Rovers) -> Option<u64> {
        let cost = self.queue.held()?.waiter.cost;
        self.front_due(cost, self.base(rovers).wrapping_add(cost))
    }

    /// The same for a part that would come to the front now.
    pub(super) fn due_in_front_of_classes(&self, number: u64, base: u64, cost: u64) -> Option<u64> {
        // A younger part that is held would go aside.
        let lacks = self.reservation(number).map_or(0, |reservation| reservation.paid);
        let fits = self.classes()?.scheduler.fits(&self.supply, base, cost + lacks);
        if fits { self.supply.scheduled(base.wrapping_add(cost)) } else { None }
    }

    /// The parts of classes that were removed are turned away when the limiter is served next.
    pub(super) fn close_parts_in(&mut self, removed: &[ClassId]) {
        let Some(classes) = self.classes_mut() else { return };
        for class in removed {
            classes.closing_parts.extend(classes.reserved(*class));
        }
    }

    /// Whether [`admit_class`](Self::admit_class) would grant `cost` tokens to a class, provided that the fast path is
    /// closed.
    pub(crate) fn can_admit_class(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> bool {
        if self.is_closed(class) || cost == 0 {
            return !self.is_closed(class);
        }
        let Some(classes) = self.classes() else { return false };
        let is_under_ceiling = classes.scheduler.tree.is_under_ceiling(classes.entry(class).leaf);
        let most = if is_under_ceiling { classes.most_at_once(class) } else { u64::MAX };
        // Claims may wait that ceilings hold back, which are not above this class.
        let is_open = self.queue.is_empty() || self.is_open(self.base(rovers), class, cost);
        is_open && cost <= most.min(self.max_cost()) && cost <= self.available_to_class(rovers, class)
    }

    /// Turns the parts of removed classes away. Returns false if the batch of wakers is full.
    pub(super) fn turn_removed_parts_away(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        while let Some(number) = self.classes().and_then(|classes| classes.closing_parts.last().copied()) {
            if wakes.must_pause() {
                return false;
            }
            wakes.steps += 1;
            if let Some(classes) = self.classes_mut() {
                classes.closing_parts.pop();
            }
            let part = self.queue.parts().and_then(|parts| parts.joint_part(number));
            // A claim that is granted already stays so.
            if part.is_none_or(|part| part.claim.kill() == JointState::Committed) {
                continue;
            }
            if self.is_held(number) {
                self.set_held_aside(PartStage::Aside);
            }
            self.turn_part_away(rovers, number, Outcome::Closed, wakes);
        }
        true
    }
}
