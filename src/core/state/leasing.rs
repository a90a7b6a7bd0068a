//! A distributed quota: what the refill task asks its store for, and what the answers bring.
//!
//! The *refill task* is the task that talks to the store. The [`RefillPlanner`] is what the node knows of the store,
//! and the rule by which the refill task asks. The *allowance* (the field `allowance`) is how many tokens the node may keep
//! unused. A *piece* is a number of tokens that the store promised without tokens of other nodes between them.

use super::State;
use crate::core::rovers::{Rovers, ahead};
use crate::core::wakes::Wakes;
use crate::distributed::{Lease, LeaseGrant, LeaseRequest, Leases, Outage, Pace, Plan, RefillPlanner, View};
use std::sync::{Arc, Mutex};

/// The promised tokens, piece by piece, distributed over the claims in queue order.
struct Cover<I> {
    /// The position up to which claims have the tokens that they need.
    at: u64,
    /// How many tokens of earlier pieces may be kept until the next piece comes.
    keeps: u64,
    /// How many tokens are left of the current piece.
    left: u64,
    /// How many tokens of earlier pieces have to be kept for the claims so far: the maximum over these claims.
    counts_on: u64,
    pieces: I,
}

impl<I: Iterator<Item = u64>> Cover<I> {
    /// The number of tokens that the next claim lacks. The claim begins at `start` and ends at `ticket`.
    fn lacks(&mut self, start: u64, ticket: u64) -> u64 {
        let mut kept = 0;
        loop {
            let need = ahead(ticket, self.at).max(0) as u64;
            if need <= self.left {
                self.left -= need;
                self.at = self.at.wrapping_add(need);
                self.counts_on = self.counts_on.max(kept);
                return 0;
            }
            let space = ahead(start.wrapping_add(self.keeps), self.at).max(0) as u64;
            self.at = self.at.wrapping_add(self.left.min(space));
            kept = ahead(self.at, start).max(0) as u64;
            match self.pieces.next() {
                Some(left) => self.left = left,
                None => {
                    self.left = 0;
                    return ahead(ticket, self.at).max(0) as u64;
                }
            }
        }
    }
}

impl State {
    /// Makes one of the quotas distributed, and empties it. Returns the place where the refill task finds its final ask
    /// once the limiter is gone.
    pub(crate) fn lease(&mut self, planner: RefillPlanner, start: u64) -> Arc<Mutex<Option<LeaseRequest>>> {
        let final_return = Arc::clone(&planner.final_return);
        self.supply.quota_mut(planner.quota).become_leased(start);
        self.supply.put_planner(Box::new(planner));
        final_return
    }

    /// Wakes the refill task if it has to look. Returns false if there is no space for its waker.
    pub(super) fn wake_refill_task(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        if !self.is_hungry(rovers) {
            return true;
        }
        if wakes.is_full() {
            return false;
        }
        if let Some(waker) = self.supply.planner_mut().and_then(|planner| planner.rouse()) {
            wakes.push(waker);
        }
        true
    }

    /// Whether the refill task has to be woken.
    #[inline]
    pub(super) fn is_hungry(&self, rovers: &Rovers) -> bool {
        self.supply
            .planner()
            .is_some_and(|planner| planner.is_low(self.claims(rovers)) || self.is_front_unplanned(planner))
    }

    /// Whether the promised tokens give the front waiter no instant at which it passes, and the refill task's plan was
    /// made for another waiter.
    fn is_front_unplanned(&self, planner: &RefillPlanner) -> bool {
        self.stuck_front(planner.quota).is_some_and(|ticket| !planner.has_planned_for(ticket))
    }

    /// The ticket of the front waiter, if the promised tokens give it no instant at which it passes.
    fn stuck_front(&self, quota: usize) -> Option<u64> {
        self.front_ticket().filter(|ticket| self.supply.passes_leased(quota, *ticket).is_none())
    }

    /// Checks the refill task's invariant, see `distributed/planner.rs`. The invariant holds whenever the lock is free,
    /// unless a thread has released the lock in the middle of serving the queue and is about to take it again.
    pub(crate) fn assert_kept(&self) {
        debug_assert!(
            self.last_due == 0
                || self.supply.planner().is_none_or(|planner| self
                    .stuck_front(planner.quota)
                    .is_none_or(|ticket| !planner.neglects(ticket))),
            "the keeper sleeps although the front waiter has no instant at which it passes: {:?}",
            self.supply.planner()
        );
    }

    /// The position at which the last claim ends, counted without the gaps in the queue.
    pub(super) fn claims(&self, rovers: &Rovers) -> u64 {
        rovers.tail().wrapping_sub(self.totals.holes)
    }

    /// Whether a claim that ends at `ticket` gets no tokens because the store is out of reach, and has to fail for that
    /// reason.
    pub(super) fn is_cut_off(&self, ticket: u64) -> bool {
        self.supply.planner().is_some_and(|planner| {
            planner.is_out
                && planner.outage == Outage::Fail
                && self.supply.quotas()[planner.quota].reached(ticket).is_none()
        })
    }

    /// Called before `try_acquire` denies `cost` tokens. If no promised token would help, the refill task will ask for
    /// them. Returns true if the store is out of reach and the caller has to get that as its error.
    pub(crate) fn misses(&mut self, rovers: &Rovers, cost: u64) -> bool {
        let end = self.claims(rovers).wrapping_add(cost);
        let is_missed = |planner: &RefillPlanner| self.supply.quotas()[planner.quota].reached(end).is_none();
        if self.supply.planner().is_some_and(is_missed)
            && let Some(planner) = self.supply.planner_mut()
        {
            planner.miss(cost);
        }
        self.is_cut_off(end)
    }

    /// The next step of the refill task, as of `now`, up to which the queue was served.
    pub(crate) fn plan(&mut self, rovers: &Rovers, now: u64) -> Option<Plan> {
        let mut planner = self.supply.take_planner()?;
        if planner.until <= now {
            planner.allowance = 0;
        }
        let quota = planner.quota;
        self.allow(rovers, &planner, false);
        let view = self.view(rovers, quota, now);
        let soon = now.saturating_add(planner.round_trip());
        let hold = planner.allowance;
        let mut plan =
            planner.next(&view, |share| self.whole_claims(quota, view.lack, share, soon), || self.counted_on(quota));
        if let Plan::Request(ask) = &mut plan {
            // Tokens that came and found no space are discarded: the store would count them as part of the allowance,
            // which may be spent by now. Only the tokens that are given up right here go back.
            self.leases(quota).take_spares();
            self.allow(rovers, &planner, ask.leave);
            let leases = self.leases(quota);
            if ask.leave {
                leases.give_up();
            }
            ask.back = leases.take_spares();
            if ask.want > 0 && planner.allowance < hold {
                // The ask lowers the allowance, and its number of wanted tokens was computed with the old one: compute
                // it anew.
                let view = self.view(rovers, quota, now);
                ask.want = self.whole_claims(quota, view.lack, planner.share(), soon);
                ask.banked = view.banked;
            }
        }
        self.supply.put_planner(planner);
        Some(plan)
    }

    /// The limiter as the feed has to see it. The feed itself is taken out meanwhile.
    fn view(&mut self, rovers: &Rovers, quota: usize, now: u64) -> View {
        let claims = self.claims(rovers);
        let gate = if self.supply.is_paused() { self.supply.gate() } else { 0 };
        let schedule = self.supply.quota_mut(quota);
        let head = schedule.head;
        let leases = schedule.leases().expect("the distributed quota is leased");
        let covered = head.wrapping_add(leases.promised());
        let mut ends = leases.ends();
        let mut lack = ahead(claims, covered).max(0) as u64;
        if let Some(front) = self.queue.front() {
            // Tokens for the front claim that come in several pieces may not be kept until they complete it. The refill
            // task then asks for them anew.
            let missing = self.cover(quota).lacks(front.start(), front.ticket);
            if missing > 0 {
                (ends, lack) = (None, lack.max(missing));
            }
        }
        let over = ahead(covered, claims);
        View {
            now,
            total: rovers.tail().wrapping_sub(self.totals.origin).wrapping_sub(self.totals.skipped),
            lack,
            banked: over.max(0) as u64,
            covered,
            ends,
            gate,
            is_waiting: !self.queue.is_empty(),
            stuck: self.stuck_front(quota),
        }
    }

    /// The number of tokens that the next claims lack and that are not promised yet. Counts whole claims only, up to
    /// about `share` tokens, and stops before a claim that something else will still hold back at `soon`.
    fn whole_claims(&self, quota: usize, lack: u64, share: u64, soon: u64) -> u64 {
        let (mut gaps, mut want) = (0_u64, 0_u64);
        let mut cover = self.cover(quota);
        for waiter in self.queue.iter() {
            let ticket = waiter.ticket.wrapping_sub(gaps);
            let need = cover.lacks(ticket.wrapping_sub(waiter.cost), ticket);
            if need > 0 {
                let is_enough = want > 0 && want.saturating_add(need) > share;
                if is_enough || !self.supply.would_pass(ticket, quota, soon) {
                    return want;
                }
                want += need;
                cover.at = ticket;
            }
            gaps = gaps.wrapping_add(waiter.skip);
        }
        // The rest of the lack is debts.
        want.max(lack.min(share.max(1)))
    }

    /// How much of the allowance is needed for the claims that have all their tokens promised. If fewer tokens may be
    /// kept, one of these claims is left with a piece that does not complete it.
    fn counted_on(&self, quota: usize) -> u64 {
        let mut cover = self.cover(quota);
        let mut gaps = 0_u64;
        for waiter in self.queue.iter() {
            let ticket = waiter.ticket.wrapping_sub(gaps);
            if cover.lacks(ticket.wrapping_sub(waiter.cost), ticket) > 0 {
                break;
            }
            gaps = gaps.wrapping_add(waiter.skip);
        }
        cover.counts_on
    }

    /// The promised tokens, to be distributed over the claims in the queue.
    fn cover(&self, quota: usize) -> Cover<impl Iterator<Item = u64>> {
        let schedule = &self.supply.quotas()[quota];
        Cover { at: schedule.head, keeps: schedule.burst, left: 0, counts_on: 0, pieces: schedule.pieces() }
    }

    fn leases(&mut self, quota: usize) -> &mut Leases {
        self.supply.quota_mut(quota).leases().expect("the distributed quota is leased")
    }

    /// Allows as many tokens to be kept unused as `planner` says, or none if `empty`. Tokens beyond that become spare.
    fn allow(&mut self, rovers: &Rovers, planner: &RefillPlanner, empty: bool) {
        let (hold, own) = if empty { (0, 0) } else { (planner.allowance, planner.own()) };
        let burst = hold.max(own);
        if burst < self.supply.quota_mut(planner.quota).burst {
            self.retract(rovers);
        }
        self.leases(planner.quota).keep_until(planner.until, own);
        self.supply.quota_mut(planner.quota).burst = burst;
        self.supply.cut(self.front_ticket());
        self.stride.shorten(self.supply.least_burst() / 64);
    }

    /// Whether the limiter may be forgotten: no waiter, no debt, and no token promised to this node that has not come
    /// yet.
    pub(crate) fn is_at_rest(&mut self, rovers: &Rovers, now: u64) -> bool {
        if !self.queue.is_empty() || self.deficiency(rovers) > 0 {
            return false;
        }
        let Some(planner) = self.supply.planner().filter(|planner| planner.is_at_rest(now)) else { return false };
        let quota = planner.quota;
        self.leases(quota).promised() == 0
    }

    /// Takes the store's answer to `ask`, which was sent `elapsed` nanoseconds before `now`.
    pub(crate) fn receive(&mut self, rovers: &Rovers, now: u64, ask: &LeaseRequest, answer: &LeaseGrant, elapsed: u64) {
        let Some(mut planner) = self.supply.take_planner() else { return };
        let quota = planner.quota;
        let was_own = std::mem::take(&mut planner.is_out) && matches!(planner.outage, Outage::Share(_));
        let is_sound = planner.hear(ask, answer, now, elapsed);
        if was_own || !is_sound {
            // The store granted none of the tokens that are here, or does not know of them any more.
            self.allow(rovers, &planner, true);
            let leases = self.leases(quota);
            leases.end_own();
            if is_sound { _ = leases.take_spares() } else { leases.forget() }
        }
        self.allow(rovers, &planner, false);
        // The tokens available at once count from now, when the answer has come, and not earlier. By the store's clock
        // their instant was earlier, so nothing is granted too early.
        let at = now.max(self.supply.synced());
        let terms = *planner.terms();
        let kept = ahead(self.supply.quotas()[quota].head, self.supply.claimed()).max(0) as u64;
        let space = planner.allowance.saturating_sub(ask.banked.max(kept));
        let leases = self.leases(quota);
        let is_new = answer.before != ask.number;
        // The new tokens form one piece with the tokens promised before, if no other node was promised tokens in
        // between. If some tokens are available at once, no other node's tokens come before the rest.
        let goes_on = is_new && answer.queued_before <= leases.promised();
        let pace = Pace::of(&terms, answer.phase);
        // Tokens that had their instant while the answer was on its way are stale: waiters do not take them.
        let later = Lease::new(now.saturating_sub(answer.age * 1_000), pace, answer.queued_before, answer.promised);
        // If an answer got lost and is repeated, all tokens that came in the meantime would be added to those minted
        // since. The node takes no more of them than it may keep, and gives none of the others back.
        let (once, later) = if is_new {
            (answer.now, later)
        } else {
            let once = answer.now.min(space);
            (once, later.without_stale(now, space - once))
        };
        leases.push(Lease::new(at, Pace::AtOnce, 0, once).going_on(goes_on));
        leases.push(later.going_on(goes_on));
        self.supply.put_planner(planner);
    }

    /// Records that the store cannot be reached.
    pub(crate) fn lose(&mut self, rovers: &Rovers, now: u64) {
        let Some(mut planner) = self.supply.take_planner() else { return };
        if !std::mem::replace(&mut planner.is_out, true)
            && let Outage::Share(share) = planner.outage
        {
            let at = now.max(self.supply.synced());
            self.leases(planner.quota).push(Lease::of_our_own(at, &share));
            self.allow(rovers, &planner, false);
        }
        self.supply.put_planner(planner);
    }

    /// The limiter is gone: prepares the final ask, which gives the rest back to the store. Returns the refill task's
    /// waker.
    pub(crate) fn return_all(&mut self, rovers: &Rovers) -> Option<std::task::Waker> {
        let mut planner = self.supply.take_planner()?;
        if planner.is_known() {
            self.supply.know_claimed(rovers.tail());
            // As before every ask: tokens that found no space are discarded.
            self.leases(planner.quota).take_spares();
            self.supply.quota_mut(planner.quota).burst = 0;
            self.supply.cut(None);
            let leases = self.leases(planner.quota);
            leases.give_up();
            let back = leases.take_spares();
            planner.return_all(back);
        }
        planner.rouse()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::Quota;
    use crate::core::queue::Place;
    use crate::core::state::Reach;
    use crate::core::supply::Supply;
    use crate::distributed::QuotaTerms;
    use std::pin::Pin;
    use std::task::Waker;

    const SHARED: Quota = Quota::per_second(1_000).burst(512);
    const SHARE: Outage = Outage::Share(Quota::per_second(10).burst(3));

    /// A node of a line, without a refill task. All positions are counted from 0, all instants in nanoseconds.
    struct Node {
        state: State,
        rovers: Rovers,
        places: Vec<Pin<Box<Place>>>,
    }

    impl Node {
        fn new(outage: Outage) -> Self {
            let mut state = State::new(Supply::new(&[SHARED], None, 0), None, 0);
            state.lease(RefillPlanner::new(0, QuotaTerms::of(&SHARED, 0).unwrap(), outage), 0);
            Self { state, rovers: Rovers::new(0), places: Vec::new() }
        }

        /// Has `bank` tokens, and may keep `hold` before the instant `until`.
        fn keeping(mut self, bank: u64, hold: u64, until: u64) -> Self {
            self.hold(hold, until);
            self.state.supply.quota_mut(0).head = bank;
            self
        }

        /// Was promised so many tokens at these instants, in pieces of their own or not.
        fn promised(mut self, leases: &[(u64, u64, bool)]) -> Self {
            for &(at, tokens, goes_on) in leases {
                self.state.leases(0).push(Lease::new(at, Pace::AtOnce, 0, tokens).going_on(goes_on));
            }
            self
        }

        fn waiting(mut self, costs: &[u64]) -> Self {
            for cost in costs {
                let mut place = Box::pin(Place::new());
                self.state.enter(&self.rovers, place.as_mut(), *cost, Waker::noop().clone(), None);
                self.places.push(place);
            }
            self
        }

        fn hold(&mut self, hold: u64, until: u64) {
            let mut planner = self.state.supply.take_planner().unwrap();
            (planner.allowance, planner.until) = (hold, until);
            self.state.allow(&self.rovers, &planner, false);
            self.state.supply.put_planner(planner);
        }

        fn receive(&mut self, now: u64, number: u64, bank: u64, answer: &LeaseGrant) {
            let ask =
                LeaseRequest { banked: bank, ..LeaseRequest::new(1, number, QuotaTerms::of(&SHARED, 0).unwrap()) };
            self.state.receive(&self.rovers, now, &ask, answer, 0);
        }

        /// What its refill task asks for, if anything.
        fn wants(&mut self, now: u64) -> Option<u64> {
            match self.state.plan(&self.rovers, now).unwrap() {
                Plan::Request(ask) => Some(ask.want),
                Plan::Sleep(_) => None,
            }
        }

        /// Serves its line up to `now`, and says how many still wait and how many tokens were burned.
        fn serve(&mut self, now: u64) -> (usize, u64) {
            _ = self.state.settle(&self.rovers, now, Reach::Now, &mut Wakes::default());
            (self.state.queue.len(), self.state.leases(0).take_spares())
        }

        fn head(&self) -> u64 {
            self.state.supply.quotas()[0].head
        }

        fn pieces(&self) -> Vec<u64> {
            self.state.supply.quotas()[0].pieces().collect()
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            for place in &mut self.places {
                _ = self.state.queue.leave(place.as_mut());
            }
        }
    }

    #[test]
    fn a_piece_is_used_up_and_what_is_left_of_it_is_kept_as_far_as_may_be() {
        let lacks = |keeps: u64| {
            let mut cover = Cover { at: 0, keeps, left: 0, counts_on: 0, pieces: [10].into_iter() };
            [(0, 6), (6, 9), (9, 14)].map(|(start, ticket)| cover.lacks(start, ticket))
        };
        assert_eq!([0, 1, 3].map(lacks), [[0, 0, 5], [0, 0, 4], [0, 0, 4]]);
    }

    #[test]
    fn what_comes_for_the_front_in_several_pieces_is_asked_for_anew() {
        let wants = |goes_on| {
            let node = Node::new(Outage::Wait).promised(&[(1_000, 5, false), (2_000, 5, goes_on)]);
            node.waiting(&[10]).wants(0)
        };
        // Otherwise for callers to come alone.
        assert_eq!([true, false].map(wants), [Some(0), Some(10)]);
        // Who is behind a front that has all it needs is asked for when that is about to come.
        let node = Node::new(Outage::Wait).promised(&[(10_000_000_000, 10, false)]);
        assert_eq!(node.waiting(&[10, 5]).wants(0), None);
    }

    #[test]
    fn whole_claims_are_asked_for_as_far_as_a_share_goes() {
        let whole = |bank, costs: &[u64], share| {
            let node = Node::new(Outage::Wait).keeping(bank, bank, u64::MAX).waiting(costs);
            node.state.whole_claims(0, 0, share, 0)
        };
        assert_eq!([4, 5, 6].map(|share| whole(0, &[3, 2, 9], share)), [3, 5, 5]);
        assert_eq!(whole(0, &[3, 2], 1), 3, "one in any case");
        assert_eq!(whole(10, &[4, 4, 3], 5), 1, "what is there serves all of them");
    }

    #[test]
    fn the_hold_ends_when_the_line_may_have_given_it_to_others() {
        let mut node = Node::new(Outage::Wait).keeping(5, 5, 100);
        let mut after = |now| {
            _ = node.state.plan(&node.rovers, now);
            (node.state.supply.planner().unwrap().allowance, node.head())
        };
        assert_eq!((after(99), after(100)), ((5, 5), (0, 0)));
    }

    #[test]
    fn what_is_kept_beyond_its_time_is_burned_by_the_next_mint() {
        let mut node = Node::new(Outage::Wait).keeping(5, 5, 100);
        let mut after = |now| {
            node.state.supply.mint(now, None);
            (node.head(), node.state.leases(0).take_spares())
        };
        assert_eq!((after(99), after(100)), ((5, 0), (0, 5)));
    }

    #[test]
    fn who_may_keep_less_takes_back_what_is_published_and_shortens_the_stride() {
        let mut node = Node::new(Outage::Wait).keeping(10, 128, u64::MAX);
        node.rovers.publish(8, 10);
        node.state.stride.tokens = 100;
        node.hold(128, u64::MAX);
        assert_eq!((node.rovers.tail(), node.head(), node.state.stride.tokens), (0, 10, 2));
        node.hold(5, u64::MAX);
        assert_eq!((node.rovers.tail(), node.head(), node.state.stride.tokens), (8, 13, 0));
        assert_eq!(node.rovers.try_claim(1), None);
    }

    #[test]
    fn who_waits_owes_or_was_promised_something_is_not_at_rest() {
        let is_at_rest = |mut node: Node| node.state.is_at_rest(&node.rovers, 0);
        assert!(is_at_rest(Node::new(Outage::Wait)));
        let held_back = Node::new(Outage::Wait).keeping(3, 0, 0).waiting(&[3]);
        assert_eq!(held_back.state.deficiency(&held_back.rovers), 0);
        assert!(!is_at_rest(held_back));
        let mut debtor = Node::new(Outage::Wait);
        debtor.state.charge(&debtor.rovers, 3);
        assert!(!is_at_rest(debtor));
        assert!(!is_at_rest(Node::new(Outage::Wait).promised(&[(1_000, 3, false)])));
    }

    #[test]
    fn an_answer_ends_what_the_node_allowed_itself_and_nothing_else() {
        let heads = [(Outage::Wait, true), (SHARE, false), (SHARE, true)].map(|(outage, is_out)| {
            let mut node = Node::new(outage).keeping(5, 8, u64::MAX);
            if is_out {
                node.state.lose(&node.rovers, 0);
            }
            node.receive(0, 1, 5, &LeaseGrant { allowance: 8, ..LeaseGrant::default() });
            node.head()
        });
        assert_eq!(heads, [5, 5, 0]);
    }

    #[test]
    fn an_answer_goes_on_with_the_one_before_unless_others_were_between_or_it_is_said_again() {
        let pieces = |before, behind, once, later| {
            let mut node = Node::new(Outage::Wait);
            node.receive(0, 1, 0, &LeaseGrant { promised: 5, allowance: 20, ..LeaseGrant::default() });
            node.receive(
                0,
                2,
                0,
                &LeaseGrant {
                    before,
                    queued_before: behind,
                    now: once,
                    promised: later,
                    allowance: 20,
                    ..LeaseGrant::default()
                },
            );
            node.pieces()
        };
        assert_eq!(pieces(1, 5, 0, 3), [8]);
        assert_eq!(pieces(1, 6, 0, 3), [5, 3]);
        assert_eq!(pieces(1, 0, 2, 3), [10]);
        assert_eq!(pieces(2, 0, 2, 3), [5, 2, 3]);
        let mut first = Node::new(Outage::Wait);
        first.receive(0, 1, 0, &LeaseGrant { now: 2, promised: 3, allowance: 20, ..LeaseGrant::default() });
        assert_eq!(first.pieces(), [5]);
    }

    #[test]
    fn of_an_answer_that_is_said_again_no_more_is_taken_than_may_be_held() {
        let taken = [0, 1, 4, 9].map(|bank| {
            let mut node = Node::new(Outage::Wait);
            // A second ago, in which all of it was minted.
            let answer =
                LeaseGrant { before: 1, age: 1_000_000, now: 3, promised: 10, allowance: 5, ..LeaseGrant::default() };
            node.receive(1_000_000_000, 1, bank, &answer);
            node.state.leases(0).promised()
        });
        assert_eq!(taken, [5, 4, 1, 0]);
    }

    #[test]
    fn who_loses_the_line_allows_itself_its_share_once() {
        let mut node = Node::new(SHARE);
        for now in [5, 6, 7] {
            node.state.lose(&node.rovers, now);
            assert_eq!((node.pieces(), node.state.supply.least_burst()), (vec![1 << 61], 3));
        }
        let mut node = Node::new(Outage::Wait);
        node.state.lose(&node.rovers, 5);
        assert_eq!((node.pieces(), node.state.supply.least_burst()), (vec![], 0));
        assert!(node.state.supply.planner().unwrap().is_out);
    }

    /// 4 are here and 1 comes at 50; these can be kept until 100, or longer. Then 2 come at 150.
    #[test]
    fn a_claim_whose_tokens_could_not_be_kept_until_the_last_came_is_not_granted() {
        let served = |until| {
            let node = Node::new(Outage::Wait).keeping(4, 5, until).promised(&[(50, 1, false), (150, 2, false)]);
            node.waiting(&[7]).serve(200)
        };
        assert_eq!((served(100), served(151)), ((1, 7), (0, 0)));
    }

    #[test]
    fn what_a_pause_held_back_is_granted_at_the_instant_at_which_it_came_or_never() {
        let served = |gate| {
            let mut node = Node::new(Outage::Wait).promised(&[(10, 5, false)]).waiting(&[5]);
            node.state.pause_until(&node.rovers, gate);
            node.serve(25)
        };
        assert_eq!((served(10), served(11)), ((0, 0), (1, 5)));
    }
}
