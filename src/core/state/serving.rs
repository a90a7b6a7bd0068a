//! Serving: the queue gets what the supply has, each claim at the exact instant that the schedule gives it.

use super::State;
use crate::core::joint::JointState;
use crate::core::outcome::Outcome;
use crate::core::queue::Waiter;
use crate::core::rovers::{Rovers, ahead};
use crate::core::wakes::{LastDecision, Wakes};

/// How a call that serves the queue ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServeResult {
    /// The queue is served up to now.
    Done,
    /// The caller must release the lock, wake the collected wakers, read the time anew, and serve the queue again.
    /// Either there is no space for more wakers; or another queue has decided about the front claim, at an instant that
    /// the earlier reading of the time may not have reached.
    Again,
    /// A joint claim has left the line. Its queues must receive an update before this queue is served further. The
    /// update is in the caller's [`Wakes`], and this queue is served again after it. Or a child has to
    /// [answer](crate::core::Core::answer_parent) first.
    Stopped,
}

/// How far a queue is served if its front claim is ready here and another queue holds it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Up to now, like every other queue. For callers that act on the state.
    Now,
    /// Up to the instant at which the front claim became ready. The claim can then still be granted as of its own
    /// instant, and tokens minted after that instant are not cut at the burst. For callers that only look, or join the
    /// end of the queue.
    Held,
    /// Like [`Held`](Self::Held), and not past the instant at which a joint claim is decided and leaves the line. Its
    /// queues must receive the update first, because the updates that they send in turn are as of that instant. For
    /// [`State::finish`], after any action, and for updates.
    Decision,
}

/// How far a caller serves a queue that is behind, where a driver could do it instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// Up to now: for changes that apply from now on.
    Fully,
    /// One batch of wakers. The drivers are woken to serve the rest, and the caller acts on a queue that is
    /// [behind](State::act_behind).
    Batch,
}

/// How far [`State::serve`] came.
pub(super) enum Served {
    /// The queue is served up to the given instant.
    All,
    /// Another queue holds the front claim, and nothing was minted past the instant at which the claim became ready
    /// here.
    Held,
    /// See [`ServeResult::Again`].
    Again,
    /// See [`ServeResult::Stopped`].
    Stopped,
}

/// What one step of serving did.
pub(super) enum Step {
    /// Something changed: the next step decides anew.
    Moved,
    /// The joint claim that was held in front has left, granted or turned away.
    Left,
    Ended(Served),
}

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

impl State {
    /// Brings everything up to `now`. Callers call this before they act on the state.
    pub(crate) fn settle(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> ServeResult {
        while let Some(deferred) = self.next_deferred() {
            if let Served::Again = self.serve(rovers, (deferred.at, now), Reach::Now, Some(deferred.from), wakes) {
                return self.leave_unfinished(rovers);
            }
            self.do_deferred(rovers);
        }
        loop {
            match self.serve(rovers, (now, now), reach, None, wakes) {
                Served::Again => return self.leave_unfinished(rovers),
                // Only a caller that advances to now reads releases: they take effect at that instant.
                Served::Held => return ServeResult::Done,
                Served::Stopped => return ServeResult::Stopped,
                Served::All => {}
            }
            // The releases read here count from now on, not from the instants at which they were made. Otherwise the
            // claims that they let through would be granted in a past in which the ceiling was still closed.
            match self.refresh_ceiling(rovers, &mut wakes.release_mark) {
                Some(0) => return ServeResult::Done,
                Some(_) => {}
                None => return self.leave_unfinished(rovers),
            }
        }
    }

    /// Ends every action: serves the queue again, publishes, and wakes each driver that has set its alarm too late.
    pub(crate) fn finish(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> ServeResult {
        let busy = self.cap.as_ref().is_some_and(|cap| cap.watching) || self.role.awaits();
        if self.queue.parts().is_none() && self.queue.is_empty() && !busy && self.next_deferred().is_none() {
            // The common case: no waiter to serve, no alarm to set.
            self.supply.mint(now, None);
            if !self.wake_source(rovers, wakes) {
                return self.leave_unfinished(rovers);
            }
            self.publish(rovers);
            if self.last_due == u64::MAX {
                return ServeResult::Done;
            }
            return self.set_alarms(rovers, now, wakes);
        }
        self.last_served = now;
        match self.settle(rovers, now, Reach::Decision, wakes) {
            ServeResult::Again => return ServeResult::Again,
            // The rest follows when this queue is served again.
            ServeResult::Stopped => {
                if let Some(child) = self.awaited_child() {
                    wakes.push_parent_poll(child);
                }
                self.leave_unfinished(rovers);
                return ServeResult::Done;
            }
            ServeResult::Done => {}
        }
        if !self.wake_source(rovers, wakes) {
            return self.leave_unfinished(rovers);
        }
        self.publish(rovers);
        self.set_alarms(rovers, now, wakes)
    }

    /// Replaces [`finish`](Self::finish) if one batch was served and more is due: tells the drivers to look at once.
    pub(crate) fn hand_over(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> ServeResult {
        self.leave_unfinished(rovers);
        self.last_served = now;
        if self.drivers.call_lead(now, wakes) { ServeResult::Done } else { ServeResult::Again }
    }

    // Inlined always, though large: it has one or two callers, and is a part of every wait.
    #[inline(always)]
    fn set_alarms(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> ServeResult {
        let due = self.due();
        self.last_due = due;
        if self.drivers.rouse(due, now, wakes) { ServeResult::Done } else { self.leave_unfinished(rovers) }
    }

    /// The lock is about to be released in the middle of serving: results computed before may not hold any more.
    pub(crate) fn leave_unfinished(&mut self, rovers: &Rovers) -> ServeResult {
        self.last_due = 0;
        self.forget_denial(rovers);
        ServeResult::Again
    }

    /// Serves the queue up to `now` in virtual time: grants each waiter at the exact instant that the schedule gives it.
    /// The caller read `read` from the clock. Waiters that begin at `end` or behind it have not arrived yet.
    pub(super) fn serve(
        &mut self,
        rovers: &Rovers,
        time: (u64, u64),
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Served {
        // One check here, instead of one at each place below.
        if self.queue.parts().is_some() || !self.role.is_plain() {
            if self.role.has_classes() {
                return self.serve_classes(rovers, time, reach, wakes);
            }
            return self.serve_as::<false>(rovers, time, reach, end, wakes);
        }
        self.serve_as::<true>(rovers, time, reach, end, wakes)
    }

    /// Does [`serve`](Self::serve). With `PLAIN`, no part of a joint claim waits here, and there are neither a parent
    /// nor external tokens. Nothing that is done here changes that.
    fn serve_as<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        (now, read): (u64, u64),
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Served {
        self.serve_steps(now, reach, |state, now| state.serve_front::<PLAIN>(rovers, (now, read), reach, end, wakes))
    }

    /// Takes steps until one of them ends the pass.
    #[inline(always)]
    pub(super) fn serve_steps(
        &mut self,
        mut now: u64,
        reach: Reach,
        mut step: impl FnMut(&mut Self, u64) -> Step,
    ) -> Served {
        let mut is_stopped = false;
        loop {
            now = now.max(self.supply.synced());
            match step(self, now) {
                Step::Left if reach == Reach::Decision => (now, is_stopped) = (self.supply.synced(), true),
                Step::Moved | Step::Left => {}
                Step::Ended(Served::All | Served::Held) if is_stopped => return Served::Stopped,
                Step::Ended(served) => return served,
            }
        }
    }

    /// Moves a part of a joint claim that can move, or else decides about the front claim: one step of
    /// [`serve_as`](Self::serve_as).
    #[inline(always)]
    fn serve_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        (now, read): (u64, u64),
        reach: Reach,
        end: Option<u64>,
        wakes: &mut Wakes,
    ) -> Step {
        if !PLAIN && let Some(step) = self.move_next_part(rovers, wakes) {
            return step;
        }
        let alarm = if PLAIN { None } else { self.next_alarm() };
        let has_come = |front: &&Waiter| end.is_none_or(|end| ahead(front.start(), end) < 0);
        let Some(front) = self.queue.front().filter(has_come) else {
            if alarm.is_some_and(|alarm| alarm <= now) {
                return self.review_alarm(rovers, None, wakes);
            }
            self.supply.mint(now, None);
            return Step::Ended(Served::All);
        };
        let (ticket, is_plain) = (front.ticket, front.part.is_none());
        // The claim of a child has no other queue that sends updates: its parent decides alone.
        let is_joint = !PLAIN && front.is_joint() && !self.role.has_parent();
        debug_assert!(!PLAIN || !front.is_joint(), "a joint claim is known by its part");
        if !is_plain && wakes.is_full() {
            // What follows decides about a joint claim in all queues, and then needs space for a waker. If the
            // lock were released between the two, a waker could cancel a claim that counts as granted already.
            return Step::Ended(Served::Again);
        }
        if !is_plain && alarm.is_some_and(|alarm| self.comes_before(alarm, front, now)) {
            return self.review_alarm(rovers, Some(ticket), wakes);
        }
        let action = self.front_action::<PLAIN>(front, (now, read), &mut wakes.last_decision);
        let until = match action {
            FrontAction::Grant(at) if is_plain => Some(at.saturating_sub(1)),
            FrontAction::Held(_) | FrontAction::Wait => Some(now),
            _ => None,
        };
        if alarm.zip(until).is_some_and(|(alarm, until)| alarm <= until) {
            return self.review_alarm(rovers, Some(ticket), wakes);
        }
        match action {
            FrontAction::Held(_) | FrontAction::Wait => {
                return Step::Ended(self.stop_at_front::<PLAIN>((ticket, action), now, reach, wakes));
            }
            FrontAction::Again => return Step::Ended(Served::Again),
            FrontAction::TicketRecalled => {
                self.queue.unjoin_front();
                self.recall_parent_ticket();
            }
            _ if wakes.is_full() => return Step::Ended(Served::Again),
            FrontAction::Grant(at) => self.grant_at_front::<PLAIN>(rovers, (ticket, is_plain), (at, now), wakes),
            FrontAction::TurnAway(outcome) => {
                self.supply.mint(now, Some(ticket));
                self.call_front(rovers, outcome, wakes);
            }
        }
        let has_left = is_joint && self.queue.held().is_none();
        if has_left { self.catch_up_releases(rovers, read, wakes) } else { Step::Moved }
    }

    /// Grants the front claim, which ends at `ticket`, as of `at`. The queue is served up to `now`.
    #[inline(always)]
    fn grant_at_front<const PLAIN: bool>(
        &mut self,
        rovers: &Rovers,
        (ticket, is_plain): (u64, bool),
        (at, now): (u64, u64),
        wakes: &mut Wakes,
    ) {
        if !PLAIN && is_plain && self.supply.has_external() && self.supply.falls_short(ticket, at) {
            // External tokens could not be kept any longer and are gone: the next step decides anew.
            return;
        }
        self.supply.mint(at, Some(ticket));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        self.call_front(rovers, Outcome::Granted { remaining: self.left_behind(ticket) }, wakes);
    }

    /// A joint claim that was held in front has left. Releases were not read while it was held back. The caller read `read`
    /// from the clock.
    pub(super) fn catch_up_releases(&mut self, rovers: &Rovers, read: u64, wakes: &mut Wakes) -> Step {
        if self.supply.synced() >= read && self.refresh_ceiling(rovers, &mut wakes.release_mark).is_none() {
            return Step::Ended(Served::Again);
        }
        Step::Left
    }

    /// The front claim, which ends at `ticket`, does not pass by `now`: mints as far as the queue is to be served.
    #[inline]
    fn stop_at_front<const PLAIN: bool>(
        &mut self,
        (ticket, action): (u64, FrontAction),
        now: u64,
        reach: Reach,
        wakes: &mut Wakes,
    ) -> Served {
        if let FrontAction::Held(since) = action
            && reach != Reach::Now
        {
            self.supply.mint(since, Some(ticket));
            self.report_held(wakes);
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
            self.report_held(wakes);
        }
        Served::All
    }

    /// Serves the queue up to `at`, or up to the last instant before it at which a joint claim left the line.
    /// The caller read `now` from the clock. Calls made by `at` while the queue was behind take effect on the way.
    pub(super) fn serve_up_to(&mut self, rovers: &Rovers, at: u64, now: u64, wakes: &mut Wakes) -> Served {
        while let Some(deferred) = self.next_deferred().filter(|deferred| deferred.at <= at) {
            if let Served::Again = self.serve(rovers, (deferred.at, now), Reach::Now, Some(deferred.from), wakes) {
                return Served::Again;
            }
            self.do_deferred(rovers);
        }
        let end = self.next_deferred().map(|deferred| deferred.from);
        self.serve(rovers, (at, now), Reach::Decision, end, wakes)
    }

    /// Decides about the front waiter as of `now`. The caller read `read` from the clock, at `now` or later.
    #[inline(always)]
    pub(super) fn front_action<const PLAIN: bool>(
        &self,
        front: &Waiter,
        (now, read): (u64, u64),
        last_decision: &mut LastDecision,
    ) -> FrontAction {
        let cut_off = if PLAIN { None } else { self.cut_off(front.ticket).map(Outcome::CutOff) };
        if let Some(outcome) = if self.closed { Some(Outcome::Closed) } else { cut_off }
            && !is_granted_elsewhere(front, outcome)
        {
            return FrontAction::TurnAway(outcome);
        }
        let due = if PLAIN { self.supply.due(front.ticket) } else { self.front_due(front) };
        let due = due.filter(|at| *at <= now);
        let Some(part) = &front.part else {
            // Under a parent, the parent has to grant the front claim too.
            let ready = if !PLAIN && self.role.has_parent() { FrontAction::Held } else { FrontAction::Grant };
            return due.map_or(FrontAction::Wait, ready);
        };
        let state = match due {
            Some(at) => part.ready(at),
            // A claim that is not ready must not delay the parent's queue.
            None if self.role.has_parent() => part.joint.kill(),
            None => part.unready(),
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
            (JointState::Dead, _) if self.role.has_parent() => FrontAction::TurnAway(part.joint.parent_outcome()),
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
        self.totals.gaps -= waiter.skip;
        if !matches!(outcome, Outcome::Granted { .. }) {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.fill_front(rovers, &waiter);
        } else {
            self.supply.pass(waiter.span(), self.next_start(rovers));
        }
        if let Some(part) = waiter.part {
            // If this queue turns the claim away, `kill_as` turns it away in every queue. If the claim was granted, or
            // another queue turned it away, it is decided already and `kill_as` changes nothing. In each case the other
            // queues must look: they hold the other parts of the claim. Under a parent, the only other part is the
            // parent ticket, and only a refusal has to recall it.
            part.joint.kill_as(outcome);
            if !self.role.has_parent() {
                wakes.push_update(part.joint.clone(), part.since_entered(self.supply.synced()));
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
    front.part.as_ref().is_some_and(|part| part.joint.kill_as(outcome) == JointState::Committed)
}
