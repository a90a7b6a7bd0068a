//! One step of serving: what the next tokens are for, and what becomes of it. With or without classes.

use super::serving::{Reach, Served, Step, Until};
use super::{Role, State, classes_in};
use crate::core::classes::{ClassId, Pick, ROOT};
use crate::core::outcome::Outcome;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::observe::GrantWord;

/// What the next tokens are for.
#[derive(Clone, Copy)]
pub(super) struct InService {
    /// The instant at which it is served; `None` if no clock can tell.
    pub(super) at: Option<u64>,
    /// The position at which its tokens end; `None` if nothing waits.
    pub(super) ticket: Option<u64>,
    /// The class in whose queue it waits.
    pub(super) owner: ClassId,
    /// The installment that the scheduler has picked, in a limiter with classes.
    pub(super) pick: Option<Pick>,
    pub(super) completes: Completes,
}

impl InService {
    pub(super) const NOTHING: Self =
        Self { at: None, ticket: None, owner: ROOT, pick: None, completes: Completes::Nothing };
}

/// What is complete when it is served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completes {
    /// Nothing is served: a floor falls due or a ceiling lets a class go, and the scheduler picks again.
    Recheck,
    /// No claim: the tokens are for a part of one, or for a debt.
    Nothing,
    /// A claim, which is granted.
    Claim,
    /// The proxy of a child, which has to answer first.
    Proxy,
    /// A joint claim, which has its turn and goes on to wait for the other limiters.
    Turn,
}

impl State {
    /// Does what joint claims do next, or else serves what is in service, if it is due by now. With `PLAIN`, no joint
    /// claim waits here, and the limiter has neither classes nor a parent nor external tokens; it may be a parent
    /// itself, with proxies in its queue.
    #[inline(always)]
    pub(super) fn step<const PLAIN: bool>(&mut self, rovers: &Rovers, until: Until, wakes: &mut Wakes) -> Step {
        let Until { now, reach, end } = until;
        let next = if PLAIN { self.next_in_queue(rovers, end) } else { self.next_in_service(rovers, end) };
        let is_turn = !PLAIN && next.completes == Completes::Turn;
        if !PLAIN && self.queue.has_joint() {
            // A turn needs no tokens.
            let at = if is_turn { self.supply.synced() } else { next.at.unwrap_or(u64::MAX) };
            if let Some(step) = self.serve_fronts(rovers, at, now) {
                return step;
            }
        }
        if let Some(outcome) = self.refusal::<PLAIN>(next) {
            return self.turn_away(rovers, next, outcome, now, wakes);
        }
        let due = next.at.filter(|at| *at <= now);
        let Some(at) = due.or_else(|| is_turn.then(|| self.supply.synced())) else {
            return Step::Ended(self.rest::<PLAIN>(next, now));
        };
        if !PLAIN && self.role.has(Role::CHILD) {
            self.hold_for_parent(next, at, now, reach);
            return Step::Ended(Served::All);
        }
        // With classes most steps wake no waiter: they serve a part of a large claim.
        if wakes.must_pause() {
            return Step::Ended(Served::Again);
        }
        if PLAIN && next.completes == Completes::Claim {
            self.supply.mint(at, next.ticket);
            self.grant_front(rovers, next.ticket, at, now, wakes);
            return Step::Moved;
        }
        wakes.steps += 1;
        self.serve_next(rovers, next, at, now, wakes)
    }

    /// Serves what is in service and due at `at`.
    #[inline(always)]
    fn serve_next(&mut self, rovers: &Rovers, next: InService, at: u64, now: u64, wakes: &mut Wakes) -> Step {
        if next.completes == Completes::Turn {
            self.take_turn(next);
            return Step::Moved;
        }
        if self.role.has(Role::SOURCE)
            && next.completes != Completes::Recheck
            && next.ticket.is_some_and(|ticket| self.supply.falls_short(ticket, at))
        {
            // External tokens could not be kept any longer and are gone: the next step decides anew.
            return Step::Moved;
        }
        self.supply.mint(at, next.ticket);
        match next.completes {
            Completes::Recheck => Step::Moved,
            Completes::Proxy => {
                // Asks the child. Only if the child is gone, and its claim with it, the proxy is turned away.
                self.ask_or_turn_away(rovers, next.owner, Outcome::Closed, wakes);
                self.go_on_unless_asked()
            }
            _ if self.role.has(Role::CLASSES) => {
                self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
                self.pay_installment(rovers, next, wakes);
                Step::Moved
            }
            _ => {
                self.grant_front(rovers, next.ticket, at, now, wakes);
                Step::Moved
            }
        }
    }

    /// What the next tokens are for.
    #[inline(always)]
    fn next_in_service(&mut self, rovers: &Rovers, end: Option<u64>) -> InService {
        if self.role.has(Role::CLASSES) { self.next_in_classes(rovers) } else { self.next_in_queue(rovers, end) }
    }

    #[inline(always)]
    fn next_in_queue(&self, rovers: &Rovers, end: Option<u64>) -> InService {
        let front = self.queue.front().filter(|front| end.is_none_or(|end| front.number < end));
        let Some(front) = front else { return InService::NOTHING };
        let ticket = self.base(rovers).wrapping_add(front.cost);
        let at = self.supply.due(ticket);
        let completes = if front.child.is_some() { Completes::Proxy } else { Completes::Claim };
        InService { at, ticket: Some(ticket), completes, ..InService::NOTHING }
    }

    /// The reason for which what is in service gets no tokens.
    #[inline(always)]
    fn refusal<const PLAIN: bool>(&self, next: InService) -> Option<Outcome> {
        // With classes the waiters of a closed limiter are turned away before.
        if self.closed && (PLAIN || !self.role.has(Role::CLASSES)) {
            return next.ticket.map(|_| Outcome::Closed);
        }
        if PLAIN || !self.role.has(Role::SOURCE) {
            return None;
        }
        let queue = self.classes().map_or(&self.queue, |classes| &classes.entry(ROOT).queue);
        // The source refuses by what the front claim of the limiter itself wants: no reason to refuse a claim of a class.
        let front = queue.front().filter(|_| next.owner == ROOT);
        let (number, cost) = front.map_or((0, 0), |front| (front.number, front.cost));
        self.source_refusal(number, cost, next.ticket?)
    }

    /// Turns what is in service away.
    #[cold]
    fn turn_away(&mut self, rovers: &Rovers, next: InService, outcome: Outcome, now: u64, wakes: &mut Wakes) -> Step {
        if wakes.is_full() {
            return Step::Ended(Served::Again);
        }
        let class = if let Some(classes) = self.classes() {
            // A debt in service is not turned away; the first class with a waiter loses its front claim instead.
            let mut classes = [next.owner].into_iter().chain(0..classes.len());
            classes.find(|class| !self.is_class_empty(*class)).expect("debts are charged at once when no claim waits")
        } else {
            self.supply.mint(now, next.ticket);
            ROOT
        };
        self.ask_or_turn_away(rovers, class, outcome, wakes);
        self.go_on_unless_asked()
    }

    fn go_on_unless_asked(&self) -> Step {
        if self.role.has(Role::AWAITS) { Step::Ended(Served::Stopped) } else { Step::Moved }
    }

    /// Nothing is due by `now`: mints up to there.
    #[inline(always)]
    fn rest<const PLAIN: bool>(&mut self, next: InService, now: u64) -> Served {
        let classes = if PLAIN { None } else { classes_in(&mut self.rare) };
        if let Some(classes) = classes {
            classes.due = next.at.unwrap_or(u64::MAX);
        } else if let Some(ticket) = next.ticket.filter(|_| self.cap.is_some()) {
            self.supply.note_hold(ticket, now);
        }
        self.supply.mint(now, next.ticket);
        if !PLAIN {
            // A claim that is not ready must not delay the parent's queue.
            self.recall_proxy();
            if self.role.has(Role::SOURCE) {
                self.save_for(next);
            }
        }
        Served::All
    }

    /// Keeps external tokens for what is in service as long as they may be kept.
    #[cold]
    fn save_for(&mut self, next: InService) {
        if let Some(classes) = self.classes_mut() {
            classes.scheduler.saves_for = next.pick.map(|pick| pick.leaf);
        }
        next.ticket.into_iter().for_each(|ticket| self.supply.shed(ticket));
    }

    /// The front claim of a child is ready, and the parent has to grant it too.
    fn hold_for_parent(&mut self, next: InService, at: u64, now: u64, reach: Reach) {
        if reach != Reach::Now {
            return self.supply.mint(at, next.ticket);
        }
        if let Some(ticket) = next.ticket.filter(|_| self.cap.is_some()) {
            self.supply.note_hold(ticket, now);
        }
        self.supply.mint(now, next.ticket);
    }

    /// Grants the front claim of a limiter without classes, which was due at `at`. The caller has minted up to there.
    #[inline(always)]
    pub(super) fn grant_front(&mut self, rovers: &Rovers, ticket: Option<u64>, at: u64, now: u64, wakes: &mut Wakes) {
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        let remaining = ticket.map_or(0, |ticket| self.remaining_after(ticket));
        self.call_front(rovers, Outcome::Granted(GrantWord::plain(remaining)), wakes);
    }

    /// Grants the proxy for which the parent has stopped. Returns false if its turn is not now: something has changed.
    pub(crate) fn grant_proxy(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        let next = self.look_in_service(rovers);
        let at = self.supply.synced();
        let is_due = next.completes == Completes::Proxy && next.at.is_some_and(|due| due <= at);
        if is_due && self.role.has(Role::CLASSES) {
            self.pay_proxy(rovers, next);
        } else if is_due {
            self.grant_front(rovers, next.ticket, at, at, wakes);
        }
        is_due
    }

    /// What the next tokens are for, if the parent of a child has stopped there.
    #[inline(never)]
    fn look_in_service(&mut self, rovers: &Rovers) -> InService {
        self.next_in_service(rovers, None)
    }

    /// The reason for which nothing is granted to what is in service, if its source is cut off.
    pub(crate) fn cut_off_in_service(&mut self, rovers: &Rovers) -> Option<Outcome> {
        let ticket = self.look_in_service(rovers).ticket?;
        self.cut_off(ticket).map(Outcome::CutOff)
    }

    /// Removes the front waiter from the queue of a limiter without classes, granted or turned away.
    pub(crate) fn call_front(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let outcome = if self.role.has(Role::SPECIAL_WORDS) { self.special_outcome(outcome) } else { outcome };
        let waiter = self.queue.call_front(outcome).expect("the queue has a front waiter");
        self.forget_wait(waiter.number);
        if matches!(outcome, Outcome::Granted(_)) {
            self.supply.pass(waiter.cost, waiter.debt_after);
        } else {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.supply.drop_front(waiter.cost, waiter.debt_after);
            self.recall_proxy();
        }
        if waiter.child.is_none() {
            wakes.push(waiter.waker);
        }
    }
}
