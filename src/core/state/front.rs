//! The front waiter: what is decided about it, and how it leaves the queue.

use super::State;
use super::serving::{Reach, Served, Step};
use crate::core::classes::ROOT;
use crate::core::outcome::Outcome;
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;

/// What to do with the front waiter.
pub(super) enum FrontAction {
    /// Grant it, as of this instant.
    Grant(u64),
    TurnAway(Outcome),
    /// Ready here since this instant, but the parent has not granted it.
    Held(u64),
    /// It is a ticket, and its turn is at this instant: its child has to answer.
    Ask(u64),
    Wait,
}

impl State {
    /// Does what joint claims do next, or else decides about the front claim: one step of [`serve_as`](Self::serve_as).
    #[inline(always)]
    pub(super) fn serve_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        now: u64,
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Step {
        if !PLAIN && self.queue.has_joint() {
            let front = self.queue.front().filter(|front| end.is_none_or(|end| front.number < end));
            let next = front.and_then(|front| self.supply.due(self.base(rovers).wrapping_add(front.cost)));
            if let Some(step) = self.serve_fronts(rovers, next, now) {
                return step;
            }
        }
        let has_come = |front: &&Waiter| end.is_none_or(|end| front.number < end);
        let Some(front) = self.queue.front().filter(has_come) else {
            self.supply.mint(now, None);
            return Step::Ended(Served::All);
        };
        let ticket = self.base(rovers).wrapping_add(front.cost);
        match self.front_action::<PLAIN>(front, ticket, now) {
            action @ (FrontAction::Held(_) | FrontAction::Wait) => {
                return Step::Ended(self.stop_at_front::<PLAIN>(ticket, action, now, reach));
            }
            FrontAction::Ask(at) => return self.ask_child_of_front(ticket, at),
            _ if wakes.is_full() => return Step::Ended(Served::Again),
            FrontAction::Grant(at) => self.grant_at_front::<PLAIN>(rovers, ticket, at, now, wakes),
            FrontAction::TurnAway(outcome) => {
                self.supply.mint(now, Some(ticket));
                self.call_front(rovers, outcome, wakes);
            }
        }
        Step::Moved
    }

    /// Grants the front claim as of `at`. The queue is served up to `now`.
    #[inline(always)]
    fn grant_at_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        ticket: u64,
        at: u64,
        now: u64,
        wakes: &mut Wakes,
    ) {
        if !PLAIN && self.supply.has_external() && self.supply.falls_short(ticket, at) {
            // External tokens could not be kept any longer and are gone: the next step decides anew.
            return;
        }
        self.supply.mint(at, Some(ticket));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        self.call_front(rovers, Outcome::Granted { remaining: self.remaining_after(ticket) }, wakes);
    }

    /// The turn of the front claim, a ticket, is at `at`: the queue is served up to there, and not further until its child
    /// has answered.
    #[cold]
    fn ask_child_of_front(&mut self, ticket: u64, at: u64) -> Step {
        let is_due = !self.closed && self.cut_off(ticket).is_none();
        if is_due && self.supply.has_external() && self.supply.falls_short(ticket, at) {
            return Step::Moved;
        }
        self.supply.mint(at, Some(ticket));
        self.await_child_of_front(ROOT);
        Step::Ended(Served::Stopped)
    }

    /// The front claim, which ends at `ticket`, does not pass by `now`: mints as far as the queue is to be served.
    #[inline]
    fn stop_at_front<const PLAIN: bool>(&mut self, ticket: u64, action: FrontAction, now: u64, reach: Reach) -> Served {
        if let FrontAction::Held(since) = action
            && reach != Reach::Now
        {
            self.supply.mint(since, Some(ticket));
            return Served::Held;
        }
        if self.cap.is_some() {
            self.supply.note_hold(ticket, now);
        }
        self.supply.mint(now, Some(ticket));
        if !PLAIN && matches!(action, FrontAction::Wait) {
            // A claim that is not ready must not delay the parent's queue.
            self.recall_ticket();
            if self.supply.has_external() {
                self.supply.shed(ticket);
            }
        }
        Served::All
    }

    /// Decides about the front waiter as of `now`.
    #[inline(always)]
    fn front_action<const PLAIN: bool>(&self, front: &Waiter, ticket: u64, now: u64) -> FrontAction {
        let cut_off = if PLAIN { None } else { self.cut_off(ticket).map(Outcome::CutOff) };
        let refusal = if self.closed { Some(Outcome::Closed) } else { cut_off };
        let due = || self.supply.due(ticket).filter(|at| *at <= now);
        if let Some(child) = &front.child {
            // A child that is refused must learn it too.
            return match due().or(refusal.map(|_| now)) {
                Some(_) if child.strong_count() == 0 => FrontAction::TurnAway(Outcome::TicketEnded),
                Some(at) => FrontAction::Ask(at),
                None => FrontAction::Wait,
            };
        }
        if let Some(outcome) = refusal {
            return FrontAction::TurnAway(outcome);
        }
        // Under a parent, the parent has to grant the front claim too.
        let ready = if !PLAIN && self.role.has_parent() { FrontAction::Held } else { FrontAction::Grant };
        due().map_or(FrontAction::Wait, ready)
    }

    /// Removes the front waiter from the queue, granted or turned away.
    pub(super) fn call_front(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let outcome = if self.role.has_dry_run() { self.outcome_in_dry_run(outcome) } else { outcome };
        let waiter = self.queue.call_front(outcome).expect("the queue has a front waiter");
        if matches!(outcome, Outcome::Granted { .. }) {
            self.supply.pass(waiter.cost, waiter.debt_after);
        } else {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.supply.drop_front(waiter.cost, waiter.debt_after);
            self.recall_ticket();
        }
        if waiter.child.is_none() {
            wakes.push(waiter.waker);
        }
    }
}
