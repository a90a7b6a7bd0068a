//! Parts of joint claims: which of them holds up the claims behind it, and until when.
//!
//! # The rule
//!
//! *A later claim passes a joint claim in one queue as long as the joint claim still has its tokens there by the time at which
//! its other queues have them.* In batch scheduling this is known as backfilling.
//!
//! * A joint claim is *at the front* of a queue when no waiter that was there before it is left, and no earlier joint claim over
//!   the same limiters. Until then it holds up no claim there that it does not stand before, in any of its queues.
//! * From then on the queue tells the other ones the instant at which it expects to have the tokens, its *forecast*: the
//!   [due instant](crate::supply::Supply::due) of a claim at the front. While one of the other queues has told none yet, all
//!   later claims pass here. Once all have told one, they *meet* at the latest of them: a later claim passes only if the joint
//!   claim is due here by then, with that claim before it.
//! * A queue whose clock cannot foretell an instant (it waits for a release, or for tokens by hand) lets no claim pass until it
//!   has had the tokens for the first time. It has told its instant then, and that is never taken back.
//! * When a forecast changes so that the meeting does (a pause, another quota, a refund), the queue tells the others.
//! * Once the meeting has come and the joint claim still waits, a later claim passes at the instant at which there are tokens
//!   for both, if the burst holds them.
//!
//! # What has gone by
//!
//! A queue is granted from in virtual time, and may stand at an earlier instant than now. A claim that was held up until now must
//! not be granted as of an instant at which it was held up: many of them would then come at once, more than the burst. So when a
//! joint claim is turned away, or told another meeting, the queue first moves to now; so it does when a claim comes or leaves.
//! Time stands still for a joint claim that is ready here only where no other one is at the front.
//!
//! Later claims are waiters and joint claims over other limiters. Waiters do not pass waiters, and claims over the same limiters
//! do not pass each other.
//!
//! # Why no claim waits for ever
//!
//! Joint claims enter all their queues under all their locks, so two of them have the same order in every queue they share. Of
//! all that wait, look at the one that came first. No joint claim is ahead of it anywhere, and the waiters ahead of it are
//! finitely many and wait for one queue each. So it comes to the front of all its queues. There each queue that has told no
//! forecast lets no claim pass it, until it has had the tokens: so all queues tell one. Then no passing claim puts it off beyond
//! the latest forecast, by the rule itself; and a queue that has the tokens by then keeps them, since a claim that would take
//! them would put it off. So it is granted. Then the next one is the first. No claim waits for one behind it, so no circle can
//! form.
//!
//! # The bound
//!
//! Let the queues of a joint claim have told all their forecasts at the instant `t`, and let no earlier joint claim stand in
//! them. Then it is granted no later than `max(t, gate) + (cost + debt) / rate` of the queue where this is latest: by what
//! that queue needs for the claim from an empty bucket. This is the price of having let others pass before; afterwards passing
//! costs it nothing. Each earlier joint claim in one of the queues adds its own cost there. Later events that change a
//! forecast (a pause, a smaller quota, a debt) add what they would add for a waiter at the front, and a debt is charged at
//! once. A forecast is exact for one continuous quota; with several quotas, or steps, a passing claim may put the joint claim
//! off by what it costs at the slowest of them. What is saved above the burst for a claim that is larger is lost if another
//! claim passes it then.

use super::State;
use crate::knot::{ASIDE, Strand, Tie};
use crate::queue::{Outcome, Part, Stand};
use crate::rovers::{Rovers, ahead};
use crate::wakes::Wakes;
use std::task::{Poll, Waker};

/// What becomes of the parts of joint claims before the front waiter has its turn.
pub(super) enum Turn {
    /// None of them is in its way.
    Pass,
    /// One of them was called out, or has to be looked at again.
    Served,
    /// Leave the lock, and read the time anew.
    Again,
    /// One of them holds the others up. It ends at `ticket`; `since` it is ready and all its other queues should be.
    Hold { ticket: u64, since: Option<u64> },
}

/// What the survey finds.
enum Found {
    Turn(Turn),
    Grant { number: u64, at: u64 },
    TurnAway { number: u64, outcome: Outcome },
}

impl State {
    /// A joint claim enters; the number of its part.
    pub(crate) fn enter_part(&mut self, rovers: &Rovers, cost: u64, waker: Waker, strand: Strand) -> u64 {
        self.line.push_part(Part { waker, cost, at: rovers.tail(), strand })
    }

    /// A claim comes, and time has stood still here for joint claims that wait: not for the one that comes.
    pub(crate) fn catch_up(&mut self, rovers: &Rovers, now: u64) {
        if self.line.parts_mut().is_some_and(|parts| std::mem::take(&mut parts.stays)) {
            self.supply.mint(now.max(self.supply.synced()), self.bound_ticket(rovers));
        }
    }

    /// Takes the outcome of a part that was called out, or leaves `waker` to be woken with it; the waker that need not be woken
    /// comes back.
    pub(crate) fn look_at_part(&mut self, number: u64, set: &[usize], waker: Waker) -> (Poll<Outcome>, Waker) {
        let parts = self.line.parts_mut().expect("a part is looked at while it is there");
        if let Some(outcome) = parts.take_outcome(number) {
            return (Poll::Ready(outcome), waker);
        }
        let part = parts.get_mut(number, set).expect("a part waits or was called out");
        if part.waker.will_wake(&waker) {
            return (Poll::Pending, waker);
        }
        (Poll::Pending, std::mem::replace(&mut part.waker, waker))
    }

    /// A joint claim leaves; says what its part had been called out for, and returns its waker.
    pub(crate) fn depart_part(
        &mut self,
        rovers: &Rovers,
        number: u64,
        set: &[usize],
    ) -> (Option<Outcome>, Option<Waker>) {
        if let Some(part) = self.line.remove_part(number, set) {
            // What was saved above the burst may have been saved for it.
            self.supply.cut(self.bound_ticket(rovers));
            return (None, Some(part.waker));
        }
        (self.line.parts_mut().and_then(|parts| parts.take_outcome(number)), None)
    }

    /// Grants, turns away or marks ready what the parts of joint claims have coming by `now`, and says whether the front waiter may
    /// have its turn.
    pub(super) fn serve_parts(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Turn {
        let base = self.next_start(rovers);
        if self.is_changed() && self.supply.synced() < now {
            // Whoever gains by it does so from now on, not from when this queue was looked at last.
            self.supply.mint(now, self.bound_ticket(rovers));
        }
        let Some(parts) = self.line.parts_mut() else { return Turn::Pass };
        let mut stands = std::mem::take(&mut parts.stands);
        stands.clear();
        let mut alarm = u64::MAX;
        let found = self.survey(base, now, &mut stands, &mut alarm, wakes);
        let front = self.line.front().map(|front| (front.ticket, self.passes_all(&stands, front.ticket, now)));
        let Some(parts) = self.line.parts_mut() else { return Turn::Pass };
        parts.stands = stands;
        parts.alarm = alarm;
        let turn = match found {
            Found::Turn(turn) => turn,
            _ if wakes.is_full() => return Turn::Again,
            Found::Grant { number, at } => {
                self.grant_part(rovers, base, number, at, now, wakes);
                return Turn::Served;
            }
            Found::TurnAway { number, outcome } => {
                self.turn_part_away(rovers, number, outcome, now, wakes);
                return Turn::Served;
            }
        };
        match turn {
            Turn::Hold { since, .. } => parts.stays = since.is_some(),
            Turn::Pass => {
                if let Some((ticket, Some(due))) = front.filter(|(_, due)| due.is_some_and(|due| due <= now)) {
                    // Where time stood still it was held up until now, and what was not counted meanwhile is not its own.
                    let at = if std::mem::take(&mut parts.stays) { now } else { due };
                    self.supply.mint(at, Some(ticket));
                    self.supply.cut(Some(ticket));
                }
            }
            Turn::Served | Turn::Again => {}
        }
        turn
    }

    /// Whether another instant was told since the last look, up to which claims may pass one of the heads. That all passed it
    /// until then is no such instant: from now on fewer do.
    fn is_changed(&self) -> bool {
        let Some(parts) = self.line.parts() else { return false };
        let mut limited = parts.stands.iter().filter(|stand| stand.meets != Some(ASIDE));
        limited.any(|stand| parts.head(stand.number).is_some_and(|part| part.strand.meets() != stand.meets))
    }

    /// Looks at each head in the order of arrival: what is decided about it, what it expects, and whether it stands in the way.
    fn survey(&self, base: u64, now: u64, stands: &mut Vec<Stand>, alarm: &mut u64, wakes: &mut Wakes) -> Found {
        let Some(parts) = self.line.parts() else { return Found::Turn(Turn::Pass) };
        let plain = self.line.front();
        let synced = self.supply.synced();
        for (number, part) in parts.heads() {
            let strand = &part.strand;
            let tie = strand.tie();
            if tie != Tie::Held && strand.is_news(&mut wakes.heard) {
                return Found::Turn(Turn::Again);
            }
            match tie {
                // That instant has come, also where this clock has stepped back behind it.
                Tie::Committed => {
                    return Found::Grant { number, at: strand.committed_at(now).min(now).max(synced) };
                }
                Tie::Dead => return Found::TurnAway { number, outcome: Outcome::Untied },
                Tie::Held if self.closed => return Found::TurnAway { number, outcome: Outcome::Closed },
                Tie::Held => {}
            }
            #[cfg(feature = "redis")]
            if self.is_cut_off(base.wrapping_add(part.cost)) {
                return Found::TurnAway { number, outcome: Outcome::Unreachable };
            }
            if plain.is_some_and(|front| ahead(front.start(), part.at) < 0) {
                continue;
            }
            let end = base.wrapping_add(part.cost);
            let before = stands.iter().filter(|stand| !self.may_pass(stand, end, now)).map(|stand| stand.cost).sum();
            let due = self.supply.due(end.wrapping_add(before));
            if let Some(at) = due.filter(|at| *at > now) {
                *alarm = at.min(*alarm);
            }
            let forecast = strand.tellable(due, now);
            if self.tell(strand, forecast, now) {
                wakes.push_knot(strand.knot.clone());
            }
            stands.push(Stand { number, cost: part.cost, before, due, meets: strand.meets(), ready: None });
        }
        let held_up = plain.map(|front| stands.iter().find(|stand| !self.may_pass(stand, front.ticket, now)));
        let passing = plain.filter(|_| held_up.is_some_and(|stand| stand.is_none()));
        let due = plain.and_then(|front| self.passes_all(stands, front.ticket, now));
        if let Some(at) = due.filter(|at| *at > now) {
            *alarm = at.min(*alarm);
        }
        let holder = held_up.unwrap_or(stands.first()).copied();
        // Where no waiter is held up, time waits for the first of them that has its tokens: how late it is looked at costs it
        // nothing then.
        let alone = stands.iter().filter_map(|stand| stand.due).min().filter(|_| plain.is_none());
        let passing_now = passing.filter(|_| due.is_some_and(|at| at <= now)).map(|front| front.ticket);
        if let Some(at) = due.filter(|_| passing_now.is_some()) {
            // Those that have their tokens before are granted before, if they can be.
            let is_earlier = |stand: &Stand| {
                let strand = parts.head(stand.number).map(|part| &part.strand);
                stand.due.is_some_and(|due| due < at) && strand.is_some_and(|strand| !strand.is_ready())
            };
            if stands.iter().any(is_earlier) && self.mark(base, at - 1, None, stands, alarm) {
                return Found::Turn(Turn::Served);
            }
        }
        if self.mark(base, now, passing_now, stands, alarm) {
            return Found::Turn(Turn::Served);
        }
        Found::Turn(match holder.filter(|_| passing.is_none()) {
            None => Turn::Pass,
            Some(stand) => {
                let is_overdue = stand.meets.is_some_and(|meets| meets <= now);
                // A release is read by a queue that advances to now.
                let needs_release = stands.iter().any(|stand| stand.due.is_none());
                // Of several, one may have to give way to another, and time that has gone by is not to be given twice.
                let is_only = stands.len() == 1;
                let since =
                    stand.due.filter(|_| is_overdue).or(alone).filter(|at| *at <= now && is_only && !needs_release);
                let most = stands.iter().map(|stand| stand.cost).max().unwrap_or(stand.cost);
                Turn::Hold { ticket: base.wrapping_add(most), since }
            }
        })
    }

    /// Marks those ready whose tokens are here, each with tokens of its own, and takes back what is not so any more: before the
    /// tokens go to the front waiter, if that is `passing` and ends there. True if one of the claims was decided.
    ///
    /// Those whose other queues should have their tokens come first, in the order of arrival. Then those that meet sooner.
    fn mark(&self, base: u64, now: u64, passing: Option<u64>, stands: &mut [Stand], alarm: &mut u64) -> bool {
        let Some(parts) = self.line.parts() else { return false };
        stands.sort_by_key(|stand| match stand.meets {
            Some(meets) if meets > now => (meets, stand.number),
            _ => (0, stand.number),
        });
        let burst = i64::try_from(self.supply.least_burst()).unwrap_or(i64::MAX);
        let mut taken = passing.unwrap_or(base);
        for stand in &mut *stands {
            let end = taken.wrapping_add(stand.cost);
            // More than the burst is kept for one claim only.
            let fits = taken == base || ahead(end, base) <= burst;
            let due = if fits { self.supply.due(end) } else { None };
            let is_due = due.is_some_and(|at| at <= now);
            stand.ready = due.filter(|_| is_due && stand.meets.is_some_and(|meets| meets != ASIDE));
            let is_overdue = stand.meets.is_none_or(|meets| meets <= now);
            if is_due || is_overdue {
                taken = end;
            }
            if stand.ready.is_none() {
                let next = due.into_iter().chain(stand.meets).filter(|at| *at > now).min();
                *alarm = next.map_or(*alarm, |at| at.min(*alarm));
                let strand = parts.head(stand.number).map(|part| &part.strand);
                if strand.is_some_and(|strand| strand.is_ready() && strand.unready() != Tie::Held) {
                    return true;
                }
            }
        }
        if passing.is_some() {
            // They may have to give way again before they are of use.
            return false;
        }
        stands.iter().any(|stand| {
            let strand = parts.head(stand.number).map(|part| &part.strand);
            stand.ready.zip(strand).is_some_and(|(at, strand)| strand.ready(at) != Tie::Held)
        })
    }

    /// Has the other queues know what this one expects of `strand`, if that is of use to them. True if they must look.
    fn tell(&self, strand: &Strand, forecast: Option<u64>, now: u64) -> bool {
        let (Some(at), told) = (forecast, strand.foretold()) else { return false };
        let Some(told) = told else { return strand.foretell(at) };
        let Some(meets) = strand.others() else { return false };
        // What has come has come, and need not be said twice.
        let is_other = if at <= now { told > now } else { told != at };
        let matters = is_other && at.max(told) > meets;
        if matters {
            strand.foretell(at);
        }
        matters
    }

    /// Whether a claim that ends at `end` may pass `stand` by `now`, which stands before it.
    fn may_pass(&self, stand: &Stand, end: u64, now: u64) -> bool {
        self.passes(stand, end, now).is_some_and(|at| at <= now)
    }

    /// From when on a claim that ends at `end` may pass `stand`, as far as that is known by `now`: at once, or, where the other
    /// queues are ready, once there are tokens for both. How long others keep what is in flight cannot be foretold: it counts
    /// from when all other queues should be ready.
    fn passes(&self, stand: &Stand, end: u64, now: u64) -> Option<u64> {
        let meets = stand.meets?;
        if meets == ASIDE {
            return Some(0);
        }
        let behind = end.wrapping_add(stand.before).wrapping_add(stand.cost);
        let due = self.supply.due_after(end, behind, meets > now)?;
        if due <= meets {
            return Some(0);
        }
        // More than the burst is kept for one claim only.
        let fits = ahead(behind, self.supply.claimed()) <= self.supply.least_burst() as i64;
        Some(due).filter(|_| meets <= now && fits)
    }

    /// When the front waiter, which ends at `ticket`, is granted, if it may pass all of `stands`.
    fn passes_all(&self, stands: &[Stand], ticket: u64, now: u64) -> Option<u64> {
        let due = self.supply.due(ticket)?;
        stands.iter().try_fold(due, |at, stand| Some(at.max(self.passes(stand, ticket, now)?)))
    }

    fn grant_part(&mut self, rovers: &Rovers, base: u64, number: u64, at: u64, now: u64, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let Some(cost) = self.line.parts().and_then(|parts| parts.head(number)).map(|part| part.cost) else { return };
        let end = base.wrapping_add(cost);
        self.supply.mint(at, Some(end));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        // What was saved above the burst for another one that it passes.
        self.supply.cut(Some(end));
        self.supply.take(cost);
        // It has no position that the tail could have passed.
        self.totals.skipped = self.totals.skipped.wrapping_sub(cost);
        let remaining = self.left_behind(base);
        self.call_part(number, Outcome::Granted { remaining }, wakes);
    }

    fn turn_part_away(&mut self, rovers: &Rovers, number: u64, outcome: Outcome, now: u64, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let Some(part) = self.line.parts().and_then(|parts| parts.head(number)) else { return };
        if part.strand.knot.kill_as(outcome) == Tie::Committed {
            // Another queue has just granted it: here too, then.
            return;
        }
        // What it held up has its turn from now on, not from when this queue was looked at last.
        self.supply.mint(now.max(self.supply.synced()), self.bound_ticket(rovers));
        self.call_part(number, outcome, wakes);
        self.supply.cut(self.bound_ticket(rovers));
    }

    fn call_part(&mut self, number: u64, outcome: Outcome, wakes: &mut Wakes) {
        let Some(part) = self.line.call_part(number, outcome) else { return };
        // The other queues hold the rest of it.
        wakes.push_knot(part.strand.knot);
        wakes.push(part.waker);
    }
}
