//! A node of a store, without a refill task.

use super::*;
use crate::Quota;
use crate::core::classes::ROOT;
use crate::core::queue::Place;
use crate::core::source::Source;
use crate::core::state::Reach;
use crate::core::supply::Supply;
use crate::core::wakes::Wakes;
use crate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms};
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

const SHARED: Quota = Quota::per_second(1_000).burst(512);
const SHARE: Outage = Outage::Share(Quota::per_second(10).burst(3));

/// A node of a store, without a refill task. All positions are counted from 0, all instants in nanoseconds.
struct Node {
    state: State,
    rovers: Rovers,
    places: Vec<Pin<Box<Place>>>,
}

impl Node {
    fn new(outage: Outage) -> Self {
        let mut state = State::new(Supply::new(&[SHARED], None, 0), None, 0);
        let planner = RefillPlanner::new(QuotaTerms::of(&SHARED).unwrap(), outage);
        state.use_source(0, Box::new(Leases::of(planner)), 0);
        Self { state, rovers: Rovers::new(0), places: Vec::new() }
    }

    /// Has `bank` tokens, and may keep `allowance` before the instant `until`.
    fn keeping(mut self, bank: u64, allowance: u64, until: u64) -> Self {
        self.allow(allowance, until);
        self.state.supply.quota_mut(0).head = bank;
        self
    }

    /// Was promised so many tokens at these instants, in pieces of their own or not.
    fn promised(mut self, leases: &[(u64, u64, bool)]) -> Self {
        for &(at, tokens, goes_on) in leases {
            self.state.leases().push(Lease { goes_on, ..Lease::new(at, Pace::AT_ONCE, 0, tokens) });
        }
        self
    }

    fn waiting(mut self, costs: &[u64]) -> Self {
        for cost in costs {
            let mut place = Box::pin(Place::new());
            self.state.enter(&self.rovers, place.as_mut(), ROOT, *cost, Waker::noop().clone(), None);
            self.places.push(place);
        }
        self
    }

    fn allow(&mut self, allowance: u64, until: u64) {
        let mut planner = self.state.leases().planner.take().unwrap();
        (planner.allowance, planner.until) = (allowance, until);
        self.state.allow(&self.rovers, &planner, false);
        self.state.leases().planner = Some(planner);
    }

    /// Returns by how many tokens the quota may be exceeded, if the store has lost its state.
    fn receive(&mut self, now: u64, number: u64, bank: u64, answer: &LeaseGrant) -> Option<u64> {
        let ask = LeaseRequest { banked: bank, ..LeaseRequest::new(1, number, QuotaTerms::of(&SHARED).unwrap()) };
        let answered = Answered { ask, answer: answer.clone(), sent: tokio::time::Instant::now() };
        self.state.receive(&self.rovers, now, &answered, 0)
    }

    /// What its refill task asks for, if anything.
    fn wants(&mut self, now: u64) -> Option<u64> {
        match self.state.plan(&self.rovers, now).unwrap() {
            Plan::Request(ask) => Some(ask.want),
            Plan::Sleep(_) => None,
        }
    }

    /// Serves its queue up to `now`. Returns how many claims still wait, and how many tokens were lost.
    fn serve(&mut self, now: u64) -> (u64, u64) {
        _ = self.state.settle(&self.rovers, now, Reach::Now, &mut Wakes::default());
        (self.state.queue.len(), std::mem::take(&mut self.state.leases().spare))
    }

    fn head(&self) -> u64 {
        self.state.supply.quotas()[0].head
    }

    fn pieces(&self) -> Vec<u64> {
        self.state.cover().pieces.collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for place in &mut self.places {
            _ = self.state.queue_of(ROOT).leave(place.as_mut());
        }
    }
}

#[test]
fn what_comes_for_the_front_in_several_pieces_is_asked_for_anew() {
    let wants = |goes_on| {
        let node = Node::new(Outage::Wait).promised(&[(1_000, 5, false), (2_000, 5, goes_on)]);
        node.waiting(&[10]).wants(0)
    };
    // Otherwise for callers to come alone.
    assert_eq!([true, false].map(wants), [Some(0), Some(10)]);
    // The tokens of claims behind a front that was promised all of its own are requested shortly before those come.
    let node = Node::new(Outage::Wait).promised(&[(10_000_000_000, 10, false)]);
    assert_eq!(node.waiting(&[10, 5]).wants(0), None);
}

/// A plan took 5 ms with 100,000 of them, and the limiter was locked meanwhile.
#[test]
fn a_plan_passes_over_a_thousand_claims_that_are_too_late_at_most() {
    let wants = |too_late| {
        let mut node = Node::new(Outage::Wait).waiting(&[5]);
        for _ in 0..too_late {
            node = node.waiting(&[1]);
            node.state.leases().note_deadline(1_000);
        }
        let mut node = node.waiting(&[2]);
        let mut planner = node.state.leases().planner.take().unwrap();
        planner.sent_away = Some(SentAway { claim: 1, first: 5, before: u64::MAX, since: 0, at: u64::MAX });
        let view = node.state.view(&node.rovers, 0, &planner);
        node.state.whole_claims(&node.rovers, &view, 9, planner.sent_away).want
    };
    assert_eq!([0, 999, 1_000].map(wants), [7, 7, 5]);
}

#[test]
fn whole_claims_are_asked_for_as_far_as_a_share_goes() {
    let whole = |bank, costs: &[u64], share| {
        let mut node = Node::new(Outage::Wait).keeping(bank, bank, u64::MAX).waiting(costs);
        let planner = node.state.leases().planner.take().unwrap();
        let view = node.state.view(&node.rovers, 0, &planner);
        node.state.whole_claims(&node.rovers, &view, share, None).want
    };
    assert_eq!([4, 5, 6].map(|share| whole(0, &[3, 2, 9], share)), [3, 5, 5]);
    assert_eq!(whole(0, &[3, 2], 1), 3, "one in any case");
    assert_eq!(whole(10, &[4, 4, 3], 5), 1, "what is there serves all of them");
}

#[test]
fn the_allowance_ends_when_the_store_may_have_given_it_to_others() {
    let mut node = Node::new(Outage::Wait).keeping(5, 5, 100);
    let mut after = |now| {
        _ = node.state.plan(&node.rovers, now);
        (node.state.planner_mut().unwrap().allowance, node.head())
    };
    assert_eq!((after(99), after(100)), ((5, 5), (0, 0)));
}

#[test]
fn what_is_kept_beyond_its_time_is_lost_with_the_next_mint() {
    let mut node = Node::new(Outage::Wait).keeping(5, 5, 100);
    let mut after = |now| {
        node.state.supply.mint(now, None);
        (node.head(), node.state.leases().spare)
    };
    assert_eq!((after(99), after(100)), ((5, 0), (0, 5)));
}

#[test]
fn a_smaller_allowance_takes_back_what_is_published_and_shortens_the_stride() {
    let mut node = Node::new(Outage::Wait).keeping(10, 128, u64::MAX);
    node.rovers.publish(8, 10);
    node.state.stride.tokens = 100;
    node.allow(128, u64::MAX);
    assert_eq!((node.rovers.tail(), node.head(), node.state.stride.tokens), (0, 10, 2));
    node.allow(5, u64::MAX);
    assert_eq!((node.rovers.tail(), node.head(), node.state.stride.tokens), (8, 13, 0));
    assert_eq!(node.rovers.try_claim(1), None);
}

#[test]
fn a_node_that_waits_owes_or_was_promised_something_is_not_at_rest() {
    let is_at_rest = |mut node: Node| node.state.is_at_rest(&node.rovers, 0);
    assert!(is_at_rest(Node::new(Outage::Wait)));
    let held_back = Node::new(Outage::Wait).keeping(3, 0, 0).waiting(&[3]);
    assert_eq!(held_back.state.deficiency(&held_back.rovers), 0);
    assert!(!is_at_rest(held_back));
    let mut debtor = Node::new(Outage::Wait);
    debtor.state.charge(&debtor.rovers, ROOT, 3);
    assert!(!is_at_rest(debtor));
    assert!(!is_at_rest(Node::new(Outage::Wait).promised(&[(1_000, 3, false)])));
}

#[test]
fn an_answer_ends_what_the_node_allowed_itself_and_nothing_else() {
    let heads = [(Outage::Wait, true), (SHARE, false), (SHARE, true)].map(|(outage, is_out)| {
        let mut node = Node::new(outage).keeping(5, 8, u64::MAX);
        if is_out {
            node.state.lose(&node.rovers, 0, None);
        }
        node.receive(0, 1, 5, &LeaseGrant { allowance: 8, ..LeaseGrant::default() });
        node.head()
    });
    assert_eq!(heads, [5, 5, 0]);
}

#[test]
fn an_answer_goes_on_with_the_one_before_unless_others_were_between_or_it_is_repeated() {
    let pieces = |before, behind, once, later| {
        let mut node = Node::new(Outage::Wait);
        node.receive(0, 1, 0, &LeaseGrant { promised: 5, allowance: 20, ..LeaseGrant::default() });
        let (queued_before, now, promised) = (behind, once, later);
        let second = LeaseGrant { before, queued_before, now, promised, allowance: 20, ..LeaseGrant::default() };
        node.receive(0, 2, 0, &second);
        node.pieces()
    };
    assert_eq!(pieces(1, 5, 0, 3), [8]);
    assert_eq!(pieces(1, 6, 0, 3), [5, 3]);
    assert_eq!(pieces(1, 0, 2, 3), [10]);
    // What is there comes before what is promised.
    assert_eq!(pieces(2, 0, 2, 3), [2, 5, 3]);
    let mut first = Node::new(Outage::Wait);
    first.receive(0, 1, 0, &LeaseGrant { now: 2, promised: 3, allowance: 20, ..LeaseGrant::default() });
    assert_eq!(first.pieces(), [5]);
}

/// Tokens that came at once lay behind a promised one, and those that the front did not need when that came were lost.
#[test]
fn what_is_there_is_served_before_what_is_promised() {
    let mut node = Node::new(Outage::Wait).waiting(&[1; 5]);
    node.receive(0, 1, 0, &LeaseGrant { promised: 1, ..LeaseGrant::default() });
    // Tokens of other nodes are promised too: these 4 were returned.
    node.receive(10, 2, 0, &LeaseGrant { before: 1, now: 4, queued_before: 9, ..LeaseGrant::default() });
    assert_eq!((node.serve(10), node.serve(1_000_000)), ((1, 0), (0, 0)));
    assert_eq!((node.head(), node.state.leases().promised()), (5, 0));
}

/// They were put before what the front waits for, lost, and asked for again until that came.
#[test]
fn what_is_there_for_a_claim_behind_the_front_stays_until_the_front_has_its_promised_tokens() {
    let mut node = Node::new(Outage::Wait).waiting(&[3, 2]);
    let answer = |before, promised| LeaseGrant { before, promised, queued_before: 9 * before, ..LeaseGrant::default() };
    node.receive(0, 1, 0, &answer(0, 2));
    node.receive(0, 2, 0, &answer(1, 3));
    node.receive(10, 3, 0, &LeaseGrant { now: 2, ..answer(2, 0) });
    // Only the second piece completes the front claim.
    assert_eq!((node.pieces(), node.serve(10)), (vec![2, 3, 2], (2, 0)));
}

/// After other claims left, the front claim lacks more than the one piece that is promised, and other nodes can use it.
#[test]
fn what_the_front_cannot_use_returns_with_the_request_for_all_of_its_tokens() {
    let terms = QuotaTerms::of(&SHARED).unwrap();
    let returned = |cost, debt, allowance, pace| {
        let mut node = Node::new(Outage::Wait);
        node.state.charge(&node.rovers, ROOT, debt);
        let mut node = node.waiting(&[cost]);
        node.state.leases().push(Lease { last: 9, ..Lease::new(0, pace, 0, 3) });
        node.allow(allowance, u64::MAX);
        let Some(Plan::Request(ask)) = node.state.plan(&node.rovers, 0) else { panic!("it may ask for its bank") };
        (ask.want, ask.unused, ask.last, node.state.leases().promised())
    };
    let pace = Pace::of(&terms, 0);
    assert_eq!([3, 6].map(|cost| returned(cost, 0, 0, pace)), [(0, 0, 9, 3), (6, 3, 9, 0)]);
    assert_eq!(returned(6, 0, 8, pace), (3, 0, 9, 3), "the front keeps them");
    assert_eq!(returned(6, 3, 0, pace), (6, 0, 9, 3), "they pay the debt");
    let older = Pace { amount: 500, ..pace };
    assert_eq!(returned(6, 0, 0, older), (6, 0, 9, 3), "a quota was changed");
}

/// No claim can use them here, and other nodes can.
#[test]
fn what_comes_during_a_pause_returns() {
    let returned = |gate| {
        let mut node = Node::new(Outage::Wait).waiting(&[3]);
        let pace = Pace::of(&QuotaTerms::of(&SHARED).unwrap(), 0);
        node.state.leases().push(Lease { last: 9, ..Lease::new(0, pace, 0, 3) });
        node.state.pause_for(&node.rovers, 0, gate);
        match node.state.plan(&node.rovers, 0) {
            Some(Plan::Request(ask)) => ask.unused,
            _ => 0,
        }
    };
    assert_eq!([3_000_000, 3_000_001].map(returned), [0, 3]);
}

/// Not what it knows of, nor what the bucket would have minted since.
#[test]
fn what_a_store_has_lost_is_what_its_bucket_may_lack() {
    const MILLI: u64 = 1_000_000;
    let lost = |now, clock, before| {
        let mut node = Node::new(Outage::Wait);
        let answer = |before, clock, now| LeaseGrant {
            before,
            clock,
            now,
            allowance: 20,
            remaining: 400,
            ..LeaseGrant::default()
        };
        _ = (node.receive(0, 1, 0, &answer(0, 1_000_000, 5)), node.serve(1));
        _ = (node.receive(50 * MILLI, 2, 0, &answer(1, 1_050_000, 7)), node.serve(50 * MILLI + 1));
        node.receive(now, 3, 0, &answer(before, clock, 0))
    };
    assert_eq!([2, 1, 0].map(|before| lost(100 * MILLI, 1_100_000, before)), [None, Some(7), Some(12)]);
    // The bucket is filled up in 513 ms.
    assert_eq!([512, 513, 563].map(|ms| lost(ms * MILLI, 1_000_000 + ms * 1_000, 0)), [12, 7, 0].map(Some));
    // When its clock leaps ahead, a store forgets nodes, and no requests of others.
    assert_eq!([1, 0].map(|before| lost(100 * MILLI, 9_000_000, before)), [Some(7), None]);
}

#[test]
fn of_a_repeated_answer_no_more_is_taken_than_may_be_kept() {
    let taken = [0, 1, 4, 9].map(|bank| {
        let mut node = Node::new(Outage::Wait);
        // A second ago, in which all of it was minted.
        let answer =
            LeaseGrant { before: 1, age: 1_000_000, now: 3, promised: 10, allowance: 5, ..LeaseGrant::default() };
        node.receive(1_000_000_000, 1, bank, &answer);
        node.state.leases().promised()
    });
    assert_eq!(taken, [5, 4, 1, 0]);
}

#[test]
fn a_node_that_loses_the_store_allows_itself_its_share_once() {
    let mut node = Node::new(SHARE);
    for now in [5, 6, 7] {
        node.state.lose(&node.rovers, now, None);
        assert_eq!((node.pieces(), node.state.supply.least_burst()), (vec![1 << 61], 3));
    }
    let mut node = Node::new(Outage::Wait);
    node.state.lose(&node.rovers, 5, None);
    assert_eq!((node.pieces(), node.state.supply.least_burst()), (vec![], 0));
    assert!(node.state.planner_mut().unwrap().is_out);
}

/// 4 are here and 1 comes at 50; these can be kept until 100, or longer. Then 2 come at 150. Those that find no space return.
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
        node.state.pause_for(&node.rovers, 0, gate);
        node.serve(25)
    };
    assert_eq!((served(10), served(11)), ((0, 0), (1, 0)));
}

/// As long as the piece completes it: otherwise they would come on top of what other nodes save up.
#[test]
fn what_the_front_saved_is_for_the_next_claim_when_it_leaves_and_returns_if_that_cannot_have_it() {
    let left = |cost, gate| {
        let promised = [(10, 2, false), (1_000_000_000, 3, true), (2_000_000_000, 5, false)];
        let mut node = Node::new(Outage::Wait).promised(&promised).waiting(&[5, cost]);
        assert_eq!((node.serve(15), node.wants(15)), ((2, 0), None));
        node.state.pause_for(&node.rovers, 15, gate);
        let mut front = node.places.remove(0);
        _ = node.state.depart(&node.rovers, front.as_mut(), ROOT);
        let now = node.serve(15);
        (now, node.serve(16), node.serve(1_000_000_000))
    };
    assert_eq!(left(1, 0), ((0, 0), (0, 1), (0, 0)));
    assert_eq!(left(4, 0), ((1, 0), (1, 0), (0, 0)));
    assert_eq!(left(6, 0), ((1, 2), (1, 0), (1, 3)));
    assert_eq!(left(4, 1_000_000_000), ((1, 2), (1, 0), (1, 3)));
}

/// They returned to the store, which had not given them.
#[test]
fn what_the_front_saved_of_the_share_ends_with_the_outage() {
    let mut node = Node::new(SHARE).waiting(&[8]);
    node.state.lose(&node.rovers, 0, None);
    let now = 500_000_000;
    assert_eq!((node.serve(now), node.head()), ((1, 0), 5));
    let mut front = node.places.remove(0);
    _ = node.state.depart(&node.rovers, front.as_mut(), ROOT);
    node.receive(now, 1, 0, &LeaseGrant::default());
    assert_eq!((node.serve(now + 1), node.pieces()), ((0, 0), vec![]));
}

/// They were lost, also of claims that were given up in the millisecond in which they were granted.
#[test]
fn refunded_tokens_beyond_the_allowance_return_to_the_store() {
    let mut node = Node::new(Outage::Wait).keeping(0, 3, u64::MAX);
    node.state.supply.refund(5, None);
    let Some(Plan::Request(ask)) = node.state.plan(&node.rovers, 0) else { panic!("it returns them") };
    assert_eq!((node.head(), ask.back, node.state.leases().spare), (3, 2, 0));
}

/// They were lost if the clock had gone on by a nanosecond.
#[test]
fn tokens_that_came_a_moment_ago_for_claims_that_have_left_return_to_the_store() {
    let returned = |now| {
        let mut node = Node::new(Outage::Wait);
        node.receive(0, 1, 0, &LeaseGrant { now: 4, ..LeaseGrant::default() });
        node.serve(now)
    };
    assert_eq!([1, 4_999_999, 5_000_000].map(returned), [(0, 4), (0, 4), (0, 0)]);
}

/// They were lost.
#[test]
fn tokens_that_are_there_return_also_in_front_of_a_gap_of_numbers() {
    let mut node = Node::new(Outage::Wait).promised(&[(0, 3, false)]);
    let (leases, pace) = (node.state.leases(), Pace { amount: 1, period: 1_000, part: 0, in_steps: false });
    leases.push(Lease { last: 2, ..Lease::new(0, pace, 1, 1) });
    leases.push(Lease { last: 8, ..Lease::new(0, pace, 6, 2) });
    let mut ask = LeaseRequest::default();
    leases.return_with(&mut ask, u64::MAX, 0, false);
    assert_eq!((ask.unused, ask.back), (2, 3));
}

#[test]
fn tokens_at_once_behind_promised_ones_leave_the_instant_of_the_last_promise() {
    let mut node = Node::new(Outage::Wait);
    let leases = node.state.leases();
    leases.push(Lease { last: 8, ..Lease::new(5_000_000, Pace::AT_ONCE, 0, 3) });
    leases.push(Lease::new(1_000_000, Pace::AT_ONCE, 0, 2));
    assert_eq!(leases.ends(), Some(5_000_000));
    let mut ask = LeaseRequest::default();
    leases.return_with(&mut ask, 0, 1_000_000, false);
    assert_eq!((ask.last, ask.rest), (8, 4_000));
}

/// Of promises that are not in one row, one can return. The others are void: the store forgets the node.
#[test]
fn a_node_that_leaves_keeps_no_promise() {
    let mut node = Node::new(Outage::Wait).keeping(0, 9, u64::MAX);
    node.receive(0, 1, 0, &LeaseGrant { allowance: 9, ..LeaseGrant::default() });
    let pace = Pace::of(&QuotaTerms::of(&SHARED).unwrap(), 0);
    for last in [5, 9] {
        node.state.leases().push(Lease { last, ..Lease::new(u64::MAX, pace, 0, 3) });
    }
    let now = LeaseRequest::LEASE_TIME.as_nanos() as u64 / 2;
    let Some(Plan::Request(ask)) = node.state.plan(&node.rovers, now) else { panic!("it leaves") };
    assert_eq!((ask.leave, ask.last, ask.unused, node.state.leases().promised()), (true, 9, 3, 0));
}

/// Nothing is planned in an outage: what was known of the claims that left meanwhile was kept until its end.
#[test]
fn what_is_known_of_a_claim_that_waits_is_forgotten_with_it() {
    for has_classes in [false, true] {
        let mut node = Node::new(Outage::Wait).promised(&[(10, 1, false)]);
        if has_classes {
            node.state.enable_classes();
        }
        let mut node = node.waiting(&[1; 5]);
        assert_eq!(node.serve(20), (4, 0));
        for left in [2, 1] {
            let mut place = node.places.remove(left);
            if node.state.remove_fast(&node.rovers, place.as_mut(), 0).is_none() {
                _ = node.state.depart(&node.rovers, place.as_mut(), ROOT);
            }
        }
        let known: Vec<_> = (1..=5).filter(|number| node.state.leases().wait_of(*number).is_some()).collect();
        assert_eq!(known, [4, 5], "{has_classes}");
    }
}

/// Behind a front claim that waits on.
#[test]
fn claims_that_have_left_take_no_memory() {
    let mut leases = Leases::default();
    (1..=1_000).for_each(|number| leases.note_wait(number, 0));
    (2..=1_000).for_each(|number| leases.forget_wait(number));
    assert!(leases.wait_of(1).is_some() && leases.waits.len() <= 2, "{}", leases.waits.len());
}

/// It was full after four periods: nodes had returned half of the burst, and the tokens of a period that had just ended.
#[test]
fn a_bucket_that_was_full_and_forgotten_since_is_not_lost() {
    let terms = QuotaTerms::of(&Quota::new(100, Duration::from_secs(10)).burst(1_000).stepped()).unwrap();
    let is_lost = |seconds: u64| {
        let mut planner = RefillPlanner::new(terms, Outage::Wait);
        let mut record = |number, clock, now| {
            let (ask, sent) = (LeaseRequest::new(1, number, terms), tokio::time::Instant::now());
            let answer = LeaseGrant { clock, nodes: 2, ..LeaseGrant::default() };
            planner.record(&Answered { ask, answer, sent }, now, 0, 1).is_err()
        };
        assert!(!record(1, 50_000_000, 0));
        record(2, 1_000, seconds * 1_000_000_000)
    };
    assert_eq!([39, 41].map(is_lost), [true, false]);
}
