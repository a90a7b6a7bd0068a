//! A distributed quota: what the refill task asks its store for, and what the answers bring.
//!
//! The *refill task* is the task that talks to the store. The [`RefillPlanner`] is what the node knows of the store,
//! and the rule by which the refill task asks. The *allowance* (the field `allowance`) is how many tokens the node may keep
//! unused. A *piece* is a number of tokens that the store promised without tokens of other nodes between them.

use super::cover::Cover;
use super::node_classes::NodeClasses;
use super::{Answered, Lease, Leases, Outage, Pace, Plan, RefillPlanner, SentAway, View, Wanted};
use crate::core::rovers::{Rovers, ahead};
use crate::core::schedule::Schedule;
use crate::core::state::State;
use crate::error::QuotaConflict;

/// A plan passes over no more claims that are too late: the limiter is locked meanwhile.
const MOST_TOO_LATE: u64 = 1_000;

impl State {
    pub(super) fn any_leases(&mut self) -> Option<&mut Leases> {
        self.supply.source_mut()?.as_any_mut().downcast_mut()
    }

    pub(crate) fn planner_mut(&mut self) -> Option<&mut RefillPlanner> {
        self.any_leases()?.planner.as_deref_mut()
    }

    /// The next step of the refill task, as of `now`, up to which the queue was served.
    pub(crate) fn plan(&mut self, rovers: &Rovers, now: u64) -> Option<Plan> {
        let mut planner = self.any_leases()?.planner.take()?;
        if planner.until <= now {
            planner.allowance = 0;
        }
        self.settle_classes(rovers, &mut planner);
        self.allow(rovers, &planner, false);
        let mut view = self.view(rovers, now, &planner);
        let classes = self.class_requests(&planner, &view, rovers);
        view.class_due = classes.due;
        view.wanted = if planner.classes.is_some() {
            classes.wanted
        } else {
            let all = self.whole_claims(rovers, &view, planner.part, None);
            planner.recall(&all);
            let away = planner.sent_away;
            if away.is_some() { self.whole_claims(rovers, &view, planner.part, away) } else { all }
        };
        let mut plan = planner.next(&view);
        if let Plan::Request(ask) = &mut plan {
            self.allow(rovers, &planner, ask.leave);
            // No claim can use them, or not the front claim, and this request asks for all of its tokens: other nodes may have
            // them.
            let is_useless = view.is_paused || ask.want > 0 && view.useless_to == Some(view.wanted.claim);
            let beyond = if view.has_unused { view.banked.saturating_sub(planner.allowance) } else { 0 };
            let leases = self.leases();
            let tokens = if ask.leave || is_useless { u64::MAX } else { beyond };
            leases.return_with(ask, tokens, now, planner.is_out);
            if ask.leave {
                leases.forget(false);
            }
            if !classes.rows.is_empty() {
                // What comes beside claims that wait is for one of the classes.
                (ask.ahead, ask.classes) = (0, classes.rows);
            }
        }
        self.leases().planner = Some(planner);
        Some(plan)
    }

    /// The limiter as the planner has to see it. The planner itself is taken out meanwhile.
    fn view(&mut self, rovers: &Rovers, now: u64, planner: &RefillPlanner) -> View {
        // With the joint claim that holds this queue, as `is_source_hungry` counts: else the task would plan again and again.
        let claims = self.claims(rovers);
        let gate = if self.supply.is_paused() { self.supply.gate() } else { 0 };
        let head = self.quota().head;
        let leases = self.leases();
        let covered = head.wrapping_add(leases.promised());
        let (mut ends, mut useless_to, has_spares) = (leases.ends(), None, leases.spare > 0);
        // All that was promised comes during the pause.
        let is_paused = ends.is_some_and(|ends| ends < gate);
        let are_of_one_rate = leases.are_minted_by(&planner.terms);
        let mut lack = ahead(claims, covered).max(0) as u64;
        if let Some((start, end)) = self.in_service(rovers) {
            // Tokens for the front claim that come in several pieces may not be kept until they complete it. The refill
            // task then asks for them anew.
            let missing = self.cover().lacks(start, end);
            if missing > 0 {
                (ends, lack) = (None, lack.max(missing));
                // Tokens of an older rate never form one piece with new ones: they would be asked for again and again.
                let may_return = are_of_one_rate && planner.classes.is_none();
                let is_none_used = ahead(end, head) == missing as i64 && self.held().is_none();
                useless_to = if may_return && is_none_used { self.first_waiting() } else { None };
            }
        }
        let over = ahead(covered, claims);
        let is_idle = !self.queue.has_claims() && lack == 0;
        View {
            now,
            soon: now.saturating_add(planner.round_trip),
            total: rovers.tail().wrapping_sub(self.totals.origin).wrapping_sub(self.totals.skipped),
            lack,
            banked: over.max(0) as u64,
            covered,
            ends,
            gate,
            is_waiting: self.queue.has_claims(),
            keeps: self.held().is_some() && ahead(covered, rovers.tail()) > 0,
            has_unused: has_spares || is_paused || is_idle && planner.has_too_much(over as u64),
            is_paused,
            useless_to,
            in_vain_for: planner.in_vain_since.map_or(0, |since| now.saturating_sub(since)),
            class_due: None,
            wanted: Wanted::default(),
            stuck: self.stuck_front(rovers),
        }
    }

    /// What the next claims lack that is not promised yet. Counts whole claims only, up to about `share` tokens, without those
    /// for which the store has no tokens in time. Stops before a claim that something else still holds back when an answer
    /// comes.
    fn whole_claims(&self, rovers: &Rovers, view: &View, share: u64, sent_away: Option<SentAway>) -> Wanted {
        if view.lack == 0 {
            return Wanted::default();
        }
        let mut start = self.base(rovers);
        let mut wanted = Wanted::default();
        let leases = self.promised_leases();
        let mut cover = self.cover();
        let (mut lack, mut too_late) = (view.lack, 0);
        let is_held_up = self.held().is_some_and(|held| held.joint_due.is_none_or(|at| at > view.soon));
        for (number, cost, debt_after) in self.claims_and_debts() {
            if is_held_up && number > 0 {
                // The joint claim waits for another limiter: the claims behind it would lose their tokens.
                return wanted;
            }
            let ticket = start.wrapping_add(cost);
            let wait = leases.and_then(|leases| leases.wait_of(number));
            let mut after = cover.clone();
            let need = after.lacks(start, ticket);
            if need > 0 && wait.is_some_and(|wait| wait.is_too_late(sent_away, wanted.want + need)) {
                // It is turned away at the front, or leaves before.
                start = start.wrapping_add(debt_after);
                lack = lack.saturating_sub(cost);
                too_late += 1;
                if too_late == MOST_TOO_LATE {
                    return wanted;
                }
                continue;
            }
            cover = after;
            if need > 0 {
                let is_enough = wanted.want > 0 && wanted.want.saturating_add(need) > share;
                if is_enough || !self.supply.others_pass(ticket, view.soon) {
                    return wanted;
                }
                wanted.add(view, number, need, wait);
                cover.at = ticket;
            }
            start = ticket.wrapping_add(debt_after);
        }
        wanted.or_debts(lack.min(share), view.in_vain_for)
    }

    /// The promised tokens, to be distributed over the claims in the queue.
    pub(super) fn cover(&self) -> Cover<impl Iterator<Item = u64> + Clone> {
        let quota = self.quota();
        let pieces = self.promised_leases().into_iter().flat_map(Leases::pieces);
        Cover { at: quota.head, keeps: quota.burst, left: 0, pieces }
    }

    pub(super) fn promised_leases(&self) -> Option<&Leases> {
        self.supply.external()?.source()?.as_any().downcast_ref()
    }

    /// The distributed quota.
    pub(super) fn quota(&self) -> &Schedule {
        self.supply.external().expect("a quota is distributed")
    }

    fn leases(&mut self) -> &mut Leases {
        self.any_leases().expect("the distributed quota is leased")
    }

    /// Allows as many tokens to be kept unused as `planner` says, or none if `empty`. Tokens beyond that become spare.
    fn allow(&mut self, rovers: &Rovers, planner: &RefillPlanner, empty: bool) {
        let (allowance, own) = if empty { (0, 0) } else { (planner.allowance, planner.own()) };
        let burst = allowance.max(own);
        if burst < self.quota().burst {
            self.retract(rovers);
        }
        let leases = self.leases();
        (leases.until, leases.after) = (planner.until, own);
        self.supply.external_mut().into_iter().for_each(|quota| quota.burst = burst);
        self.supply.cut(self.in_service(rovers).map(|(_, end)| end));
        self.stride.shorten(self.supply.least_burst() / 64);
    }

    /// Whether the limiter may be forgotten: no waiter, no debt, and no token promised to this node that has not come
    /// yet.
    pub(crate) fn is_at_rest(&mut self, rovers: &Rovers, now: u64) -> bool {
        let is_idle = self.queue.is_empty() && self.deficiency(rovers) == 0;
        let leases = self.any_leases().filter(|leases| is_idle && leases.promised() == 0);
        leases.and_then(|leases| leases.planner.as_ref()).is_some_and(|planner| planner.is_at_rest(now))
    }

    /// Takes the store's answer to a request that was sent `elapsed` nanoseconds before `now`. If the store has lost its state
    /// of this node, returns by how many tokens that may exceed the quota.
    pub(crate) fn receive(&mut self, rovers: &Rovers, now: u64, answered: &Answered, elapsed: u64) -> Option<u64> {
        let Answered { ask, answer, .. } = answered;
        let mut planner = self.any_leases()?.planner.take()?;
        let was_out = std::mem::take(&mut planner.is_out);
        let known = planner.record(answered, now, elapsed, self.next_number);
        let at = now.max(self.supply.synced());
        let rest = planner.terms.period().saturating_sub(answer.phase);
        let ends = at.saturating_sub(elapsed).saturating_sub(answer.age * 1_000).saturating_add(rest * 1_000);
        self.leases().note_period(&ask.terms, at, ends);
        // Promised tokens that have not come are void, and exceed nothing.
        let promised = self.leases().promised();
        let lost = known.err().flatten().map(|lost| lost.saturating_sub(promised));
        if was_out && matches!(planner.outage, Outage::Share(_)) || known.is_err() {
            // The store granted none of the tokens that are here, or does not know of them any more.
            self.end_own(rovers, &planner);
        }
        if known.is_err() {
            self.leases().forget(false);
        }
        if was_out {
            // What came during the outage does not return either.
            self.leases().spare = 0;
        }
        self.allow(rovers, &planner, false);
        self.take_tokens(rovers, &mut planner, answered, now);
        self.give_classes(rovers, &mut planner, answered, now);
        self.leases().planner = Some(planner);
        lost
    }

    /// Takes the tokens of an answer. All count from now, when the answer has come, and not earlier: by the store's clock it was
    /// given earlier, so nothing is granted too early. If the limiter's clock has stepped back, its time stands still meanwhile.
    fn take_tokens(&mut self, rovers: &Rovers, planner: &mut RefillPlanner, answered: &Answered, now: u64) {
        let Answered { ask, answer, .. } = answered;
        let (terms, at, head) = (planner.terms, now.max(self.supply.synced()), self.quota().head);
        let kept = ahead(head, self.supply.claimed()).max(0) as u64;
        let covered = self.in_service(rovers).filter(|(_, end)| self.supply.passes_external(*end).is_some());
        let need = covered.map_or(0, |(_, end)| ahead(end, head).max(0) as u64);
        let leases = self.leases();
        let is_new = answer.before != ask.number;
        // The new tokens form one piece with the tokens promised before, if no other node was promised tokens in
        // between. (Tokens promised at another rate, before a change of the quota, count differently in the store.) If some
        // tokens are available at once, no other node's tokens come before the rest.
        let goes_on = is_new && answer.queued_before <= leases.promised() && leases.are_minted_by(&terms);
        // Tokens that had their instant while the answer was on its way are stale: waiters do not take them.
        let since = at.saturating_sub(answer.age * 1_000);
        let mut promised = Lease {
            last: answer.last,
            goes_on: goes_on || is_new && answer.now > 0,
            ..Lease::new(since, Pace::of(&terms, answer.phase), answer.queued_before, answer.promised)
        };
        let ends = if answer.promised > 0 { promised.instant(answer.promised).unwrap_or(u64::MAX) } else { now };
        // The first period may have begun long ago, or be longer than others.
        let fills_in = Pace::of(&terms, 0).wait(terms.burst + terms.amount).unwrap_or(u64::MAX);
        let until = ends.max(now).saturating_add(fills_in);
        planner.losses.note_grant(ask.number, answer.now + answer.promised, until, now);
        // If an answer got lost and is repeated, all tokens that came in the meantime would be added to those minted
        // since. The node takes no more of them than it may keep, and gives none of the others back.
        let most = if is_new { u64::MAX } else { planner.allowance.saturating_sub(ask.banked.max(kept)) };
        let granted = answer.now.min(most);
        leases.push_here(Lease { goes_on, ..Lease::new(at, Pace::AT_ONCE, 0, granted) }, need);
        promised.take(promised.due_by(at).saturating_sub(most - granted));
        leases.push(promised);
    }

    /// Drops all tokens that are here, and the lease that this node granted itself.
    fn end_own(&mut self, rovers: &Rovers, planner: &RefillPlanner) {
        self.allow(rovers, planner, true);
        self.leases().forget(true);
    }

    /// Records that the store cannot be reached, or that it refuses the node's quota because of `conflict`.
    pub(crate) fn lose(&mut self, rovers: &Rovers, now: u64, conflict: Option<QuotaConflict>) {
        let Some(mut planner) = self.any_leases().and_then(|leases| leases.planner.take()) else { return };
        planner.conflict = conflict;
        let was_out = std::mem::replace(&mut planner.is_out, conflict.is_none());
        let changes = was_out != planner.is_out;
        if let (Outage::Share(share), true) = (planner.outage, changes) {
            if planner.is_out {
                let at = now.max(self.supply.synced());
                self.leases().push(Lease::of_our_own(at, &share));
            } else {
                self.end_own(rovers, &planner);
            }
            self.allow(rovers, &planner, false);
            planner.classes.iter_mut().for_each(NodeClasses::clear);
            self.settle_classes(rovers, &mut planner);
        }
        self.leases().planner = Some(planner);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
