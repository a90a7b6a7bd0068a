//! Cancellation in every place and state. The claims behind move up at once, and no token is lost or invented.

use super::*;

#[test]
fn a_claim_that_was_never_polled_has_no_effect() {
    let fixture = Fixture::new(one_per_milli(5));
    let _front = fixture.enter(5);
    let before = fixture.limiter.snapshot();
    drop(fixture.limiter.consume(3));
    drop(fixture.limiter.clone().consume_owned(3));
    drop(fixture.limiter.consume(3).within(MILLI));
    assert_eq!(fixture.limiter.snapshot(), before);
}

#[test]
fn when_the_front_leaves_the_next_passes_at_once_if_its_tokens_are_there() {
    let fixture = Fixture::new(one_per_milli(9));
    let front = fixture.enter(9);
    let mut next = fixture.enter(2);
    let mut last = fixture.enter(2);
    fixture.pass(3 * MILLI);
    drop(front);
    let _grant = served(&mut next);
    waits(&mut last);
    fixture.pass(MILLI);
    let _grant = served(&mut last);
}

#[test]
fn a_waiter_dropped_in_the_middle_moves_up_only_the_claims_behind_it() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut before = fixture.enter(3);
    let middle = fixture.enter(3);
    let mut behind = fixture.enter(3);
    fixture.pass(2 * MILLI);
    drop(middle);
    waits(&mut before);
    fixture.pass(MILLI);
    let _grant = served(&mut before);
    fixture.pass(3 * MILLI - NANO);
    waits(&mut behind);
    fixture.pass(NANO);
    let _grant = served(&mut behind);
}

#[test]
fn a_waiter_dropped_at_the_back_delays_no_later_claim() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut before = fixture.enter(3);
    let back = fixture.enter(3);
    drop(back);
    waits(&mut before);
    let mut newcomer = fixture.enter(1);
    fixture.pass(3 * MILLI);
    let _grant = served(&mut before);
    waits(&mut newcomer);
    fixture.pass(MILLI);
    let _grant = served(&mut newcomer);
}

#[test]
fn a_bucket_is_unchanged_after_its_only_waiter_is_cancelled() {
    let fixture = Fixture::new(one_per_milli(9));
    let only = fixture.enter(5);
    fixture.pass(4 * MILLI);
    drop(only);
    assert_eq!((fixture.limiter.available(), fixture.limiter.deficiency()), (4, 0));
    fixture.pass(20 * MILLI);
    assert_eq!(fixture.limiter.available(), 9);
}

#[test]
fn an_unread_grant_goes_to_the_next() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(9));
    let granted = fixture.enter(3);
    let mut next = fixture.enter(2);
    fixture.pass(3 * MILLI);
    assert!(granted.is_woken());
    waits(&mut next);
    drop(granted);
    let _grant = served(&mut next);
    let after = fixture.limiter.snapshot();
    assert_eq!((fixture.limiter.available(), after.in_flight, after.refunded), (1, Some(2), 3));
}

#[test]
fn a_due_grant_that_was_not_delivered_goes_to_the_next() {
    let fixture = Fixture::new(one_per_milli(9));
    let due = fixture.enter(3);
    let mut next = fixture.enter(2);
    // No tick: the drop itself finds that three tokens were granted a moment ago.
    fixture.clock.advance(3 * MILLI);
    drop(due);
    let _grant = served(&mut next);
    assert_eq!(fixture.limiter.available(), 1);
}

#[test]
fn a_future_dropped_after_its_grant_was_taken_gives_nothing_back() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(9));
    let mut waiting = fixture.enter(3);
    fixture.pass(3 * MILLI);
    let grant = served(&mut waiting);
    drop(waiting);
    let after = fixture.limiter.snapshot();
    assert_eq!((fixture.limiter.available(), after.in_flight, after.refunded), (0, Some(3), 0));
    drop(grant);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(0));
}

#[test]
fn every_second_one_leaving_together_closes_the_gaps() {
    let fixture = Fixture::new(one_per_milli(9));
    let waiters: Vec<_> = (0..20).map(|_| fixture.enter(2)).collect();
    let (mut staying, leaving): (Vec<_>, Vec<_>) =
        waiters.into_iter().enumerate().partition(|(place, _)| place % 2 == 1);
    drop(leaving);
    for (_, waiting) in &mut staying {
        waits(waiting);
        fixture.pass(2 * MILLI);
        let _grant = served(waiting);
    }
    assert_eq!(fixture.limiter.available(), 0);
}

#[test]
fn cancelling_all_claims_leaves_the_minted_tokens() {
    for backwards in [false, true] {
        let fixture = Fixture::new(one_per_milli(9));
        let mut waiters: Vec<_> = (0..10).map(|_| fixture.enter(5)).collect();
        fixture.pass(4 * MILLI);
        if backwards {
            while let Some(last) = waiters.pop() {
                drop(last);
            }
        }
        drop(waiters);
        assert_eq!((fixture.limiter.available(), fixture.limiter.deficiency()), (4, 0), "backwards: {backwards}");
    }
}

#[test]
fn every_second_one_dropped_when_woken_costs_the_others_nothing() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut waiters: std::collections::VecDeque<_> = (0..40).map(|_| fixture.enter(1)).collect();
    for _ in 0..20 {
        fixture.pass(MILLI);
        let woken = waiters.pop_front().unwrap();
        assert!(woken.is_woken());
        drop(woken);
        let _grant = served(&mut waiters.pop_front().unwrap());
    }
    assert_eq!(fixture.limiter.available(), 0);
}

#[test]
fn a_chain_of_woken_claims_that_leave_passes_one_token_along() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut waiters: std::collections::VecDeque<_> = (0..50).map(|_| fixture.enter(1)).collect();
    fixture.pass(MILLI);
    while let Some(front) = waiters.pop_front() {
        assert!(front.is_woken());
        assert!(waiters.iter().all(|behind| !behind.is_woken()), "one token wakes one claim");
        drop(front);
    }
    assert_eq!(fixture.limiter.available(), 1);
}

#[test]
fn the_front_can_leave_while_the_ceiling_holds_it() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(4));
    let held = fixture.take(3);
    let front = fixture.enter(4);
    let mut next = fixture.enter(1);
    drop(front);
    let _grant = served(&mut next);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(4));
    drop(held);
    assert_eq!(fixture.limiter.available(), 3);
}

#[test]
fn the_front_can_leave_during_a_pause_and_no_claim_passes() {
    let fixture = Fixture::new(one_per_milli(9));
    let front = fixture.enter(5);
    let mut next = fixture.enter(1);
    fixture.limiter.pause_for(7 * MILLI);
    fixture.pass(3 * MILLI);
    drop(front);
    waits(&mut next);
    fixture.pass(4 * MILLI - NANO);
    waits(&mut next);
    fixture.pass(NANO);
    let _grant = served(&mut next);
    assert_eq!(fixture.limiter.available(), 6);
}

#[test]
fn the_front_can_leave_a_queue_with_several_quotas() {
    let slow = Quota::new(1, 2 * MILLI).burst(9).initial(0);
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).quota(slow));
    let front = fixture.enter(5);
    let mut next = fixture.enter(3);
    fixture.pass(4 * MILLI);
    drop(front);
    waits(&mut next);
    fixture.pass(2 * MILLI);
    let _grant = served(&mut next);
    let levels: Vec<_> = fixture.limiter.snapshot().quotas.iter().map(|quota| quota.level).collect();
    assert_eq!(levels, [3, 0]);
}

// ---- giants: costs above the burst ----------------------------------------------------------------------------------

#[test]
fn a_cancelled_giant_with_savings_above_the_burst_lets_a_burst_pass_and_then_the_rate() {
    let fixture = Fixture::new(one_per_milli(3));
    let giant = fixture.enter(10);
    let mut waiters: Vec<_> = (0..6).map(|_| fixture.enter(1)).collect();
    fixture.pass(8 * MILLI);
    drop(giant);
    for waiting in &mut waiters[..3] {
        let _grant = served(waiting);
    }
    for waiting in &mut waiters[3..] {
        fixture.pass(MILLI - NANO);
        waits(waiting);
        fixture.pass(NANO);
        let _grant = served(waiting);
    }
}

#[test]
fn a_lone_giant_that_is_cancelled_leaves_at_most_the_burst() {
    for (saved, left) in [(2, 2), (3, 3), (8, 3)] {
        let fixture = Fixture::new(one_per_milli(3));
        let giant = fixture.enter(10);
        fixture.pass(saved * MILLI);
        drop(giant);
        assert_eq!(fixture.limiter.available(), left, "saved for it: {saved}");
    }
}

#[test]
fn a_giant_does_not_inherit_what_a_giant_before_it_had_saved() {
    let fixture = Fixture::new(one_per_milli(3));
    let first = fixture.enter(10);
    let mut second = fixture.enter(5);
    fixture.pass(8 * MILLI);
    drop(first);
    waits(&mut second);
    fixture.pass(2 * MILLI - NANO);
    waits(&mut second);
    fixture.pass(NANO);
    let _grant = served(&mut second);
}

#[test]
fn a_giant_that_leaves_from_behind_burns_nothing_of_the_front() {
    let fixture = Fixture::new(one_per_milli(3));
    let mut front = fixture.enter(6);
    let giant = fixture.enter(10);
    let mut last = fixture.enter(1);
    fixture.pass(5 * MILLI);
    drop(giant);
    waits(&mut front);
    fixture.pass(MILLI);
    let _grant = served(&mut front);
    fixture.pass(MILLI);
    let _grant = served(&mut last);
}

#[test]
fn an_unread_grant_of_a_giant_refunds_at_most_the_burst() {
    let fixture = Fixture::new(one_per_milli(3));
    let giant = fixture.enter(10);
    let mut waiters: Vec<_> = (0..5).map(|_| fixture.enter(1)).collect();
    fixture.pass(10 * MILLI);
    assert!(giant.is_woken());
    drop(giant);
    for waiting in &mut waiters[..3] {
        let _grant = served(waiting);
    }
    for waiting in &mut waiters[3..] {
        waits(waiting);
    }
}

#[test]
fn cancelling_behind_the_front_serves_the_due_claims() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut front = fixture.enter(1);
    let behind = fixture.enter(5);
    fixture.clock.advance(MILLI);
    drop(behind);
    let _grant = served(&mut front);
}
