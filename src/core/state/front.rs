//! The front waiter: what is decided about it, and how it leaves the queue.

use super::State;
use super::serving::{PassTime, Reach, Served, Step};
use crate::core::joint::JointState;
use crate::core::outcome::Outcome;
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::wakes::{LastDecision, Wakes};

/// What to do with the front waiter.
pub(super) enum FrontAction {
    /// Grant it, as of this instant.
    Grant(u64),
    TurnAway(Outcome),
    /// Ready here since this instant, but another queue is not ready.
    Held(u64),
    /// Another queue has just decided about the claim.
    Again,
    Wait,
    /// Not ready any more: the parent ticket has been recalled.
    TicketRecalled,
}

/// The front claim, as far as its service needs it.
#[derive(Clone, Copy)]
struct FrontClaim {
    ticket: u64,
    /// No other queue takes part in deciding about it.
    is_plain: bool,
    /// Other queues wait to learn what is decided about it.
    is_joint: bool,
}

impl State {
    /// Moves a part of a joint claim that can move, or else decides about the front claim: one step of
    /// [`serve_as`](Self::serve_as).
    #[inline(always)]
    pub(super) fn serve_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        time: PassTime,
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Step {
        if !PLAIN && let Some(step) = self.move_next_part(rovers, wakes) {
            return step;
        }
        let now = time.now;
        let alarm = if PLAIN { None } else { self.next_alarm() };
        let has_come = |front: &&Waiter| end.is_none_or(|end| front.number < end);
        let Some(front) = self.queue.front().filter(has_come) else {
            if alarm.is_some_and(|alarm| alarm <= now) {
                return self.review_alarm(rovers, None, wakes);
            }
            self.supply.mint(now, None);
            return Step::Ended(Served::All);
        };
        let claim = FrontClaim {
            ticket: self.base(rovers).wrapping_add(front.cost),
            is_plain: front.part.is_none(),
            // The claim of a child has no other queue that sends updates: its parent decides alone.
            is_joint: !PLAIN && front.is_joint() && !self.role.has_parent(),
        };
        debug_assert!(!PLAIN || !front.is_joint(), "a joint claim is known by its part");
        if !claim.is_plain && wakes.is_full() {
            // What follows decides about a joint claim in all queues, and then needs space for a waker. If the
            // lock were released between the two, a waker could cancel a claim that counts as granted already.
            return Step::Ended(Served::Again);
        }
        if !claim.is_plain && alarm.is_some_and(|alarm| self.alarm_comes_first(alarm, front.cost, claim.ticket, now)) {
            return self.review_alarm(rovers, Some(claim.ticket), wakes);
        }
        let action = self.front_action::<PLAIN>(front, claim.ticket, time, &mut wakes.last_decision);
        let until = match action {
            FrontAction::Grant(at) if claim.is_plain => Some(at.saturating_sub(1)),
            FrontAction::Held(_) | FrontAction::Wait => Some(now),
            _ => None,
        };
        if alarm.zip(until).is_some_and(|(alarm, until)| alarm <= until) {
            return self.review_alarm(rovers, Some(claim.ticket), wakes);
        }
        self.act_on_front::<PLAIN>(rovers, claim, action, time, reach, wakes)
    }

    /// Does what was decided about the front claim.
    #[inline(always)]
    fn act_on_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        claim: FrontClaim,
        action: FrontAction,
        PassTime { now, .. }: PassTime,
        reach: Reach,
        wakes: &mut Wakes,
    ) -> Step {
        match action {
            FrontAction::Held(_) | FrontAction::Wait => {
                return Step::Ended(self.stop_at_front::<PLAIN>(rovers, claim.ticket, action, now, reach, wakes));
            }
            FrontAction::Again => return Step::Ended(Served::Again),
            FrontAction::TicketRecalled => {
                self.queue.clear_front_part();
                self.recall_parent_ticket();
            }
            _ if wakes.is_full() => return Step::Ended(Served::Again),
            FrontAction::Grant(at) => self.grant_at_front::<PLAIN>(rovers, claim, at, now, wakes),
            FrontAction::TurnAway(outcome) => {
                self.supply.mint(now, Some(claim.ticket));
                self.call_front(rovers, outcome, wakes);
            }
        }
        let has_left = claim.is_joint && self.queue.held().is_none();
        if has_left { Step::Left } else { Step::Moved }
    }

    /// Grants the front claim as of `at`. The queue is served up to `now`.
    #[inline(always)]
    fn grant_at_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        FrontClaim { ticket, is_plain, .. }: FrontClaim,
        at: u64,
        now: u64,
        wakes: &mut Wakes,
    ) {
        if !PLAIN && is_plain && self.supply.has_external() && self.supply.falls_short(ticket, at) {
            // External tokens could not be kept any longer and are gone: the next step decides anew.
            return;
        }
        self.supply.mint(at, Some(ticket));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        self.call_front(rovers, Outcome::Granted { remaining: self.remaining_after(ticket) }, wakes);
    }

    /// The front claim, which ends at `ticket`, does not pass by `now`: mints as far as the queue is to be served.
    #[inline]
    fn stop_at_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        ticket: u64,
        action: FrontAction,
        now: u64,
        reach: Reach,
        wakes: &mut Wakes,
    ) -> Served {
        if let FrontAction::Held(since) = action
            && reach != Reach::Now
        {
            self.supply.mint(since, Some(ticket));
            self.announce_held_due(rovers, wakes);
            return Served::Held;
        }
        if self.cap.is_some() {
            self.supply.note_hold(ticket, now);
        }
        self.supply.mint(now, Some(ticket));
        if !PLAIN {
            if matches!(action, FrontAction::Wait) && self.supply.has_external() {
                self.supply.shed(ticket);
            }
            self.announce_held_due(rovers, wakes);
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
        let due = if PLAIN { self.supply.due(ticket) } else { self.front_due(front.cost, ticket) };
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
        if part.is_parent_ticket() && state == JointState::Committed {
            // This queue alone decides about a parent ticket, and has just done so.
            return FrontAction::Grant(due.unwrap_or(now).max(self.supply.synced()));
        }
        if self.role.has_parent() && due.is_none() && state == JointState::Dead {
            return FrontAction::TicketRecalled;
        }
        if state != JointState::Held && part.is_new_decision(last_decision) {
            return FrontAction::Again;
        }
        match (state, due) {
            // The instant of the commit has passed, even if this clock has since stepped back to before it.
            (JointState::Committed, _) => FrontAction::Grant(part.committed_at(read).max(self.supply.synced())),
            (JointState::Dead, _) if self.role.has_parent() => FrontAction::TurnAway(part.claim.parent_outcome()),
            (JointState::Dead, _) => FrontAction::TurnAway(Outcome::JointEnded),
            (JointState::Held, Some(since)) => FrontAction::Held(since),
            (JointState::Held, None) => FrontAction::Wait,
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
            // If this queue turns the claim away, `kill_as` turns it away in every queue. If the claim was granted, or
            // another queue turned it away, it is decided already and `kill_as` changes nothing. In each case the other
            // queues must look: they hold the other parts of the claim. Under a parent, the only other part is the
            // parent ticket, and only a refusal has to recall it.
            part.claim.kill_as(outcome);
            if !self.role.has_parent() {
                wakes.push_update(part.claim.clone(), part.since_entered(self.supply.synced()));
            } else if !matches!(outcome, Outcome::Granted { .. }) {
                self.recall_parent_ticket();
            }
        }
        wakes.push(waiter.waker);
    }
}

/// Whether the front claim is a joint one that is committed, by another queue or by the parent, which this queue has not
/// noticed yet. Such a grant stands. Otherwise this call ends the joint claim with `outcome`, so that no queue grants it.
fn is_granted_elsewhere(front: &Waiter, outcome: Outcome) -> bool {
    front.part.as_ref().is_some_and(|part| part.claim.kill_as(outcome) == JointState::Committed)
}
