//! The front waiter: what is decided about it, and how it leaves the queue.

use super::State;
use super::serving::{PassTime, Reach, Served, Step};
use crate::core::outcome::Outcome;
use crate::core::parent_claim::PairState;
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::wakes::{LastDecision, Wakes};

/// What to do with the front waiter.
pub(super) enum FrontAction {
    /// Grant it, as of this instant.
    Grant(u64),
    TurnAway(Outcome),
    /// Ready here since this instant, but the parent has not granted it.
    Held(u64),
    /// The other queue has just decided about the claim.
    Again,
    Wait,
    /// Not ready any more: the parent ticket has been recalled.
    TicketRecalled,
}

impl State {
    /// Does what joint claims do next, or else decides about the front claim: one step of [`serve_as`](Self::serve_as).
    #[inline(always)]
    pub(super) fn serve_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        time: PassTime,
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Step {
        if !PLAIN && self.queue.has_joint() {
            let front = self.queue.front().filter(|front| end.is_none_or(|end| front.number < end));
            let next = front.and_then(|front| self.supply.due(self.base(rovers).wrapping_add(front.cost)));
            if let Some(step) = self.serve_fronts(rovers, next, time.now) {
                return step;
            }
        }
        let has_come = |front: &&Waiter| end.is_none_or(|end| front.number < end);
        let Some(front) = self.queue.front().filter(has_come) else {
            self.supply.mint(time.now, None);
            return Step::Ended(Served::All);
        };
        let ticket = self.base(rovers).wrapping_add(front.cost);
        if front.part.is_some() && wakes.is_full() {
            // What follows decides about a claim in two queues, and then needs space for a waker. If the lock were
            // released between the two, a waker could cancel a claim that counts as granted already.
            return Step::Ended(Served::Again);
        }
        let action = self.front_action::<PLAIN>(front, ticket, time, &mut wakes.last_decision);
        self.act_on_front::<PLAIN>(rovers, ticket, action, time.now, reach, wakes)
    }

    /// Does what was decided about the front claim.
    #[inline(always)]
    fn act_on_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        ticket: u64,
        action: FrontAction,
        now: u64,
        reach: Reach,
        wakes: &mut Wakes,
    ) -> Step {
        match action {
            FrontAction::Held(_) | FrontAction::Wait => {
                return Step::Ended(self.stop_at_front::<PLAIN>(ticket, action, now, reach));
            }
            FrontAction::Again => return Step::Ended(Served::Again),
            FrontAction::TicketRecalled => {
                self.queue.clear_front_part();
                self.recall_parent_ticket();
            }
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
        let is_alone = || self.queue.front().is_some_and(|front| front.part.is_none());
        if !PLAIN && self.supply.has_external() && is_alone() && self.supply.falls_short(ticket, at) {
            // External tokens could not be kept any longer and are gone: the next step decides anew.
            return;
        }
        self.supply.mint(at, Some(ticket));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        self.call_front(rovers, Outcome::Granted { remaining: self.remaining_after(ticket) }, wakes);
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
        if !PLAIN && matches!(action, FrontAction::Wait) && self.supply.has_external() {
            self.supply.shed(ticket);
        }
        Served::All
    }

    /// Decides about the front waiter as of `now`.
    #[inline(always)]
    pub(super) fn front_action<const PLAIN: bool>(
        &self,
        front: &Waiter,
        ticket: u64,
        PassTime { now, read }: PassTime,
        last_decision: &mut LastDecision,
    ) -> FrontAction {
        let cut_off = if PLAIN { None } else { self.cut_off(ticket).map(Outcome::CutOff) };
        if let Some(outcome) = if self.closed { Some(Outcome::Closed) } else { cut_off }
            && !is_granted_elsewhere(front, outcome)
        {
            return FrontAction::TurnAway(outcome);
        }
        let due = self.supply.due(ticket);
        let due = due.filter(|at| *at <= now);
        let Some(part) = &front.part else {
            // Under a parent, the parent has to grant the front claim too.
            let ready = if !PLAIN && self.role.has_parent() { FrontAction::Held } else { FrontAction::Grant };
            return due.map_or(FrontAction::Wait, ready);
        };
        let state = match due {
            Some(at) => part.set_ready(at),
            // A claim that is not ready must not delay the parent's queue.
            None if self.role.has_parent() => part.claim.kill(),
            None => part.set_unready(),
        };
        if part.is_ticket() && state == PairState::Committed {
            // This queue alone decides about a parent ticket, and has just done so.
            return FrontAction::Grant(due.unwrap_or(now).max(self.supply.synced()));
        }
        if self.role.has_parent() && due.is_none() && state == PairState::Dead {
            return FrontAction::TicketRecalled;
        }
        if state != PairState::Held && part.is_new_decision(last_decision) {
            return FrontAction::Again;
        }
        match (state, due) {
            // The instant of the commit has passed, even if this clock has since stepped back to before it.
            (PairState::Committed, _) => FrontAction::Grant(part.committed_at(read).max(self.supply.synced())),
            (PairState::Dead, _) if self.role.has_parent() => FrontAction::TurnAway(part.claim.parent_outcome()),
            (PairState::Dead, _) => FrontAction::TurnAway(Outcome::TicketEnded),
            (PairState::Held, Some(since)) => FrontAction::Held(since),
            (PairState::Held, None) => FrontAction::Wait,
        }
    }

    pub(super) fn recall_parent_ticket(&mut self) {
        self.ticket_recalled = true;
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
        }
        if let Some(part) = waiter.part {
            // If this queue turns the claim away, `kill_as` turns it away in the other one. If the claim was granted, or the
            // other queue turned it away, it is decided already and `kill_as` changes nothing. The child must look then: it
            // has the other part of the claim. In the child itself, only a refusal has to recall the ticket.
            part.claim.kill_as(outcome);
            if part.is_ticket() {
                wakes.push_decision(part.claim.clone());
            } else if !matches!(outcome, Outcome::Granted { .. }) {
                self.recall_parent_ticket();
            }
        }
        wakes.push(waiter.waker);
    }
}

/// Whether the parent has granted the front claim, which this queue has not noticed yet. Such a grant stands. Otherwise this
/// call ends the claim with `outcome`, so that the parent does not grant it.
fn is_granted_elsewhere(front: &Waiter, outcome: Outcome) -> bool {
    front.part.as_ref().is_some_and(|part| part.claim.kill_as(outcome) == PairState::Committed)
}
