//! One of the quotas is shared: what its line is asked for, and what comes of the answers.

use super::State;
use crate::lease::{Answer, Ask, Feed, Lease, Leases, Outage, Pace, Plan, View};
use crate::rovers::{Rovers, ahead};
use crate::wakes::Wakes;
use std::sync::{Arc, Mutex};

/// What is promised, piece by piece, as far as the claims before need it.
struct Cover<I> {
    /// Up to where claims have what they need,
    at: u64,
    /// how much of what comes in other pieces may be kept for the next one,
    keeps: u64,
    /// and how much is left of the piece that comes then.
    left: u64,
    pieces: I,
}

impl<I: Iterator<Item = u64>> Cover<I> {
    /// How many tokens the next claim lacks, which begins and ends there.
    fn lacks(&mut self, start: u64, ticket: u64) -> u64 {
        loop {
            let need = ahead(ticket, self.at).max(0) as u64;
            if need <= self.left {
                self.left -= need;
                self.at = self.at.wrapping_add(need);
                return 0;
            }
            let room = ahead(start.wrapping_add(self.keeps), self.at).max(0) as u64;
            self.at = self.at.wrapping_add(self.left.min(room));
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
    /// From now on one of the quotas is shared, and empty. What its keeper finds in the end is returned.
    pub(crate) fn lease(&mut self, feed: Feed, start: u64) -> Arc<Mutex<Option<Ask>>> {
        let remains = Arc::clone(&feed.remains);
        self.supply.quota_mut(feed.quota).become_leased(start);
        self.supply.put_feed(Box::new(feed));
        remains
    }

    /// Wakes the keeper if it has to look. False if there is no room for its waker.
    pub(super) fn feed_keeper(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        if !self.is_hungry(rovers) {
            return true;
        }
        if wakes.is_full() {
            return false;
        }
        if let Some(waker) = self.supply.feed_mut().and_then(|feed| feed.rouse()) {
            wakes.push(waker);
        }
        true
    }

    /// Whether the keeper is to be woken.
    #[inline]
    pub(super) fn is_hungry(&self, rovers: &Rovers) -> bool {
        self.supply.feed().is_some_and(|feed| feed.is_low(self.claims(rovers)))
    }

    /// Where the last claim ends, holes left out.
    pub(super) fn claims(&self, rovers: &Rovers) -> u64 {
        rovers.tail().wrapping_sub(self.totals.holes)
    }

    /// Whether a claim that ends at `ticket` can have no tokens, and is to be told so.
    pub(super) fn is_cut_off(&self, ticket: u64) -> bool {
        self.supply.feed().is_some_and(|feed| {
            feed.is_out && feed.outage == Outage::Fail && self.supply.quotas()[feed.quota].reached(ticket).is_none()
        })
    }

    /// `try_acquire` is about to be denied `cost`: if nothing that was promised would help, the keeper asks for it. True if
    /// that is in vain, and is to be said.
    pub(crate) fn misses(&mut self, rovers: &Rovers, cost: u64) -> bool {
        let end = self.claims(rovers).wrapping_add(cost);
        let is_missed = |feed: &Feed| self.supply.quotas()[feed.quota].reached(end).is_none();
        if self.supply.feed().is_some_and(is_missed)
            && let Some(feed) = self.supply.feed_mut()
        {
            feed.miss(cost);
        }
        self.is_cut_off(end)
    }

    /// What the keeper does next, as of `now`, up to which the line was served.
    pub(crate) fn plan(&mut self, rovers: &Rovers, now: u64) -> Option<Plan> {
        let mut feed = self.supply.take_feed()?;
        if feed.until <= now {
            feed.hold = 0;
        }
        let feed_quota = feed.quota;
        self.allow(rovers, &feed, false);
        // Joint claims have no position, and lack their tokens all the same.
        let claims = self.claims(rovers).wrapping_add(self.line.part_tokens());
        let gate = if self.supply.is_paused() { self.supply.gate() } else { 0 };
        let schedule = self.supply.quota_mut(feed.quota);
        let head = schedule.head;
        let leases = schedule.leases().expect("the shared quota is leased");
        let covered = head.wrapping_add(leases.promised());
        let mut ends = leases.ends();
        let mut lack = ahead(claims, covered).max(0) as u64;
        let base = self.next_start(rovers);
        let front = self.line.front().map(|front| (front.start(), front.ticket));
        if let Some((start, end)) = self.saver(base).map(|end| (base, end)).or(front) {
            // What comes for it in several pieces is not kept: it is asked for anew.
            let missing = self.cover(feed_quota).lacks(start, end);
            if missing > 0 {
                (ends, lack) = (None, lack.max(missing));
            }
        }
        let over = ahead(covered, claims);
        let view = View {
            now,
            total: rovers.tail().wrapping_sub(self.totals.origin).wrapping_sub(self.totals.skipped),
            lack,
            bank: over.max(0) as u64,
            covered,
            ends,
            gate,
            is_waiting: !self.line.is_empty(),
        };
        let soon = now.saturating_add(feed.round_trip());
        let mut plan = feed.next(&view, |share| self.whole_claims(feed_quota, &view, share, soon));
        if let Plan::Ask(ask) = &mut plan {
            // What came and found no room is gone: the line would take it for a part of the hold, which may be spent by now. Only
            // what is given up here and now goes back.
            self.leases(feed_quota).take_spares();
            self.allow(rovers, &feed, ask.leave);
            let leases = self.leases(feed_quota);
            if ask.leave {
                leases.give_up();
            }
            ask.back = leases.take_spares();
        }
        self.supply.put_feed(feed);
        Some(plan)
    }

    /// How many tokens the next claims lack of which nothing is promised yet: whole ones, about a `share`, and none that
    /// will be held up by something else.
    fn whole_claims(&self, quota: usize, view: &View, share: u64, soon: u64) -> u64 {
        // Joint claims that hold the others up have no position: those behind them are moved back.
        let stands = self.line.parts().map_or(&[][..], |parts| &parts.stands);
        let held: u64 = stands.iter().map(|stand| stand.cost).sum();
        let (mut jumped, mut want) = (held.wrapping_neg(), 0_u64);
        let mut cover = self.cover(quota);
        for waiter in self.line.iter() {
            let ticket = waiter.ticket.wrapping_sub(jumped);
            let need = cover.lacks(ticket.wrapping_sub(waiter.cost), ticket);
            if need > 0 {
                let is_enough = want > 0 && want.saturating_add(need) > share;
                if is_enough || !self.supply.would_pass(ticket, quota, soon) {
                    return want;
                }
                want += need;
                cover.at = ticket;
            }
            jumped = jumped.wrapping_add(waiter.skip);
        }
        // What is left are debts.
        want.max(view.lack.min(share.max(1)))
    }

    /// What is promised, to be laid over the claims in line.
    fn cover(&self, quota: usize) -> Cover<impl Iterator<Item = u64>> {
        let schedule = &self.supply.quotas()[quota];
        Cover { at: schedule.head, keeps: schedule.burst, left: 0, pieces: schedule.pieces() }
    }

    fn leases(&mut self, quota: usize) -> &mut Leases {
        self.supply.quota_mut(quota).leases().expect("the shared quota is leased")
    }

    /// Lets as many tokens be kept unused as `feed` says, and none if it is to be emptied; what is there beyond is spare.
    fn allow(&mut self, rovers: &Rovers, feed: &Feed, empty: bool) {
        let (hold, own) = if empty { (0, 0) } else { (feed.hold, feed.own()) };
        let burst = hold.max(own);
        if burst < self.supply.quota_mut(feed.quota).burst {
            self.retract(rovers);
        }
        self.leases(feed.quota).keep_until(feed.until, own);
        self.supply.quota_mut(feed.quota).burst = burst;
        self.supply.cut(self.bound_ticket(rovers));
        self.stride.shorten(self.supply.least_burst() / 64);
    }

    /// Whether nobody waits or owes, and the line has nothing out to this node: so that it may be forgotten.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_at_rest(&mut self, rovers: &Rovers, now: u64) -> bool {
        if !self.line.is_empty() || self.deficiency(rovers) > 0 {
            return false;
        }
        let Some(feed) = self.supply.feed().filter(|feed| feed.is_at_rest(now)) else { return false };
        let quota = feed.quota;
        self.leases(quota).promised() == 0
    }

    /// The line has answered `ask`, which was sent `elapsed` before `now`.
    pub(crate) fn receive(&mut self, rovers: &Rovers, now: u64, ask: &Ask, answer: &Answer, elapsed: u64) {
        let Some(mut feed) = self.supply.take_feed() else { return };
        let quota = feed.quota;
        let was_own = std::mem::take(&mut feed.is_out) && matches!(feed.outage, Outage::Share(_));
        let is_sound = feed.hear(ask, answer, now, elapsed);
        if was_own || !is_sound {
            // Nothing of it was granted by the line, or the line does not know of it any more.
            self.allow(rovers, &feed, true);
            let leases = self.leases(quota);
            leases.end_own();
            if is_sound { _ = leases.take_spares() } else { leases.forget() }
        }
        self.allow(rovers, &feed, false);
        // Not before now, which is when the answer has come: the line's clock was there before.
        let at = now.max(self.supply.synced());
        let terms = *feed.terms();
        let kept = ahead(self.supply.quotas()[quota].head, self.supply.claimed()).max(0) as u64;
        let room = feed.hold.saturating_sub(ask.bank.max(kept));
        let leases = self.leases(quota);
        let is_new = answer.before != ask.number;
        // In one piece with what was promised before, if nobody else was promised anything since. Where something is there, nobody
        // comes before the rest.
        let goes_on = is_new && answer.behind <= leases.promised();
        let pace = Pace::of(&terms, answer.part);
        // What had its instant while the answer was on its way is stale, and is not taken by who waits.
        let later = Lease::new(now.saturating_sub(answer.age * 1_000), pace, answer.behind, answer.later);
        // Of an answer that got lost and is said again, all that was there meanwhile would come on top of what has been minted
        // since: of that no more is taken than may be held, and nothing goes back.
        let (once, later) = if is_new {
            (answer.once, later)
        } else {
            let once = answer.once.min(room);
            (once, later.without_stale(now, room - once))
        };
        leases.push(Lease::new(at, Pace::AtOnce, 0, once).going_on(goes_on));
        leases.push(later.going_on(goes_on));
        self.supply.put_feed(feed);
    }

    /// The line cannot be reached.
    pub(crate) fn lose(&mut self, rovers: &Rovers, now: u64) {
        let Some(mut feed) = self.supply.take_feed() else { return };
        if !std::mem::replace(&mut feed.is_out, true)
            && let Outage::Share(share) = feed.outage
        {
            let at = now.max(self.supply.synced());
            self.leases(feed.quota).push(Lease::of_our_own(at, &share));
            self.allow(rovers, &feed, false);
        }
        self.supply.put_feed(feed);
    }

    /// The limiter is gone: what is left goes back to the line.
    pub(crate) fn bequeath(&mut self, rovers: &Rovers) -> Option<std::task::Waker> {
        let mut feed = self.supply.take_feed()?;
        if feed.is_known() {
            self.supply.know_claimed(rovers.tail());
            // As before every ask: what found no room is gone.
            self.leases(feed.quota).take_spares();
            self.supply.quota_mut(feed.quota).burst = 0;
            self.supply.cut(None);
            let leases = self.leases(feed.quota);
            leases.give_up();
            let back = leases.take_spares();
            feed.bequeath(back);
        }
        feed.rouse()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::Quota;
    use crate::lease::Terms;
    use crate::queue::Place;
    use crate::state::Reach;
    use crate::supply::Supply;
    use std::pin::Pin;
    use std::task::Waker;

    const SHARED: Quota = Quota::per_second(1_000).burst(512);
    const SHARE: Outage = Outage::Share(Quota::per_second(10).burst(3));

    /// A node of a line, without a keeper. All positions are counted from 0, all instants in nanoseconds.
    struct Node {
        state: State,
        rovers: Rovers,
        places: Vec<Pin<Box<Place>>>,
    }

    impl Node {
        fn new(outage: Outage) -> Self {
            let mut state = State::new(Supply::new(&[SHARED], None, 0), None, 0);
            state.lease(Feed::new(0, Terms::of(&SHARED, 0).unwrap(), outage), 0);
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
            let mut feed = self.state.supply.take_feed().unwrap();
            (feed.hold, feed.until) = (hold, until);
            self.state.allow(&self.rovers, &feed, false);
            self.state.supply.put_feed(feed);
        }

        fn receive(&mut self, now: u64, number: u64, bank: u64, answer: &Answer) {
            let ask = Ask { bank, ..Ask::new(1, number, Terms::of(&SHARED, 0).unwrap()) };
            self.state.receive(&self.rovers, now, &ask, answer, 0);
        }

        /// What its keeper asks for, if anything.
        fn wants(&mut self, now: u64) -> Option<u64> {
            match self.state.plan(&self.rovers, now).unwrap() {
                Plan::Ask(ask) => Some(ask.want),
                Plan::Sleep(_) => None,
            }
        }

        /// Serves its line up to `now`, and says how many still wait and how many tokens were burned.
        fn serve(&mut self, now: u64) -> (usize, u64) {
            _ = self.state.settle(&self.rovers, now, Reach::Now, &mut Wakes::default());
            (self.state.line.len(), self.state.leases(0).take_spares())
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
                _ = self.state.line.leave(place.as_mut());
            }
        }
    }

    #[test]
    fn a_piece_is_used_up_and_what_is_left_of_it_is_kept_as_far_as_may_be() {
        let lacks = |keeps: u64| {
            let mut cover = Cover { at: 0, keeps, left: 0, pieces: [10].into_iter() };
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
            let view = View { now: 0, total: 0, lack: 0, bank: 0, covered: 0, ends: None, gate: 0, is_waiting: true };
            node.state.whole_claims(0, &view, share, 0)
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
            (node.state.supply.feed().unwrap().hold, node.head())
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

    #[cfg(feature = "keyed")]
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
            node.receive(0, 1, 5, &Answer { hold: 8, ..Answer::default() });
            node.head()
        });
        assert_eq!(heads, [5, 5, 0]);
    }

    #[test]
    fn an_answer_goes_on_with_the_one_before_unless_others_were_between_or_it_is_said_again() {
        let pieces = |before, behind, once, later| {
            let mut node = Node::new(Outage::Wait);
            node.receive(0, 1, 0, &Answer { later: 5, hold: 20, ..Answer::default() });
            node.receive(0, 2, 0, &Answer { before, behind, once, later, hold: 20, ..Answer::default() });
            node.pieces()
        };
        assert_eq!(pieces(1, 5, 0, 3), [8]);
        assert_eq!(pieces(1, 6, 0, 3), [5, 3]);
        assert_eq!(pieces(1, 0, 2, 3), [10]);
        assert_eq!(pieces(2, 0, 2, 3), [5, 2, 3]);
        let mut first = Node::new(Outage::Wait);
        first.receive(0, 1, 0, &Answer { once: 2, later: 3, hold: 20, ..Answer::default() });
        assert_eq!(first.pieces(), [5]);
    }

    #[test]
    fn of_an_answer_that_is_said_again_no_more_is_taken_than_may_be_held() {
        let taken = [0, 1, 4, 9].map(|bank| {
            let mut node = Node::new(Outage::Wait);
            // A second ago, in which all of it was minted.
            let answer = Answer { before: 1, age: 1_000_000, once: 3, later: 10, hold: 5, ..Answer::default() };
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
        assert!(node.state.supply.feed().unwrap().is_out);
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
