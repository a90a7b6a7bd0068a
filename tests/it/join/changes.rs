//! One limiter is paused, or gets another quota or cap, while a joint claim is ready in it.

use super::{MS, costs, empty, full, holding, limiter, on_a_clock, pass, tick};
use crate::fixture::*;

/// A claim that is ready in the first limiter and lacks one token of the second, which only a manual replenish brings.
fn half_ready<'a>(ready: &'a Limiter, cost: u64, by_hand: &'a Limiter) -> Spawn<Join<'a, 2>> {
    pending(join([(ready, cost), (by_hand, 1)]))
}

/// A limiter with these quotas, and one that is filled by hand.
fn beside_one_by_hand(quotas: Quotas) -> (ManualClock, [Limiter; 2]) {
    on_a_clock([quotas, Quota::manual(5).initial(0).into()])
}

/// The larger claim comes to the front earlier, to save its tokens, and goes aside again for the older one.
#[test]
fn at_the_end_of_a_pause_an_older_claim_passes_the_one_that_is_held() {
    let (clock, [a]) = on_a_clock([full(5)]);
    a.pause_for(8 * MS);
    let [older, younger] = [1, 5].map(|cost| pending(join([(&a, cost)])));
    pass(4, &clock, &[&a]);
    a.resume();
    assert!(older.is_woken() && !younger.is_woken());
    pass(1, &clock, &[&a]);
    assert!(younger.is_woken());
}

/// The smaller claim behind fits into what is there when the pause ends.
#[test]
fn at_the_end_of_a_pause_no_later_claim_passes_a_joint_one() {
    for others in 0..2 {
        let (clock, [a, b]) = on_a_clock([full(10), full(10)]);
        a.pause_for(100 * MS);
        let joint = pending(join([(&a, 10), (&b, others)]));
        let plain = pending(a.consume(5));
        pass(10, &clock, &[&a, &b]);
        a.resume();
        assert!(joint.is_woken() && !plain.is_woken(), "a second limiter: {others}");
        pass(5, &clock, &[&a, &b]);
        assert!(plain.is_woken());
    }
}

/// No queue is served during the pause. The younger claim comes to the front at 9 ms, to save its tokens, and the older
/// one at 18 ms.
#[test]
fn at_the_end_of_a_pause_that_is_served_late_an_older_claim_passes_the_one_that_is_held() {
    let (clock, [a]) = on_a_clock([full(5)]);
    a.pause_for(20 * MS);
    let [older, younger] = [2, 11].map(|cost| pending(join([(&a, cost)])));
    tick_after(&clock, &a, 20 * MS);
    assert!(older.is_woken() && !younger.is_woken());
}

/// While the debt is paid off, the part waits aside for the instant from which its own tokens are minted. Tokens that come
/// before that are its own.
#[test]
fn what_pays_a_debt_serves_the_joint_claim_that_waits_aside_first() {
    type Pay = fn(&Limiter, &mut Grant<'_>);
    let ways: [(Pay, u64); 3] = [
        (|a, _| a.replenish(12), 0),
        (|_, earlier| earlier.settle(2), 2),
        (|a, _| a.set_quota(0, Quota::new(12, MS).burst(3)).unwrap(), 1),
    ];
    for (pay, later) in ways {
        let (clock, [a]) = on_a_clock([full(3)]);
        let mut earlier = a.try_acquire(2).unwrap();
        earlier.settle(12);
        let joint = pending(join([(&a, 3)]));
        pay(&a, &mut earlier);
        assert!(a.try_acquire(1).is_err());
        let newcomer = pending(a.consume(3));
        pass(later, &clock, &[&a]);
        assert!(joint.is_woken() && !newcomer.is_woken(), "{later} ms later");
    }
}

/// The part waits aside for the next step. Tokens can come in before that, also when a debt was charged meanwhile.
#[test]
fn tokens_that_come_in_between_two_steps_go_to_the_joint_claim_that_waits_aside() {
    let add: [fn(&Limiter, Grant<'_>); 3] = [
        |_, mut earlier| earlier.settle(0),
        |a, _| a.replenish(3),
        |_, mut earlier| {
            earlier.settle(9);
            earlier.settle(0);
        },
    ];
    for add in add {
        let (_clock, [a]) = on_a_clock([Quota::new(5, 10 * MS).burst(5).stepped().into()]);
        let earlier = a.try_acquire(3).unwrap();
        let joint = pending(join([(&a, 5)]));
        add(&a, earlier);
        assert!(a.try_acquire(1).is_err() && joint.is_woken());
    }
}

/// The joint claims of several sets wait aside, for a step or while a debt is paid off.
#[test]
fn tokens_that_come_in_go_to_all_joint_claims_for_which_they_are_enough() {
    let stepped = Quota::new(10, 100 * MS).burst(10).stepped();
    for (quota, debt) in [(stepped, 0), (stepped, 15), (Quota::new(10, 100 * MS).burst(10), 20)] {
        let (_clock, [a, b, c, d]) = on_a_clock([quota.into(), full(3), full(3), full(3)]);
        let mut earlier = a.try_acquire(10).unwrap();
        earlier.settle(10 + debt);
        let claims = [(5, &b), (2, &c), (3, &d)].map(|(cost, other)| pending(join([(&a, cost), (other, 3)])));
        earlier.settle(0);
        assert_eq!((woken(&claims), a.available()), (3, 0), "{quota}, a debt of {debt}");
    }
}

/// What comes in is too little for the first claim, which is dropped then.
#[test]
fn tokens_that_a_dropped_joint_claim_leaves_go_to_the_next_one_of_another_set() {
    let stepped = Quota::new(10, 100 * MS).burst(10).stepped();
    for (quota, debt) in [(stepped, 0), (stepped, 15), (Quota::new(10, 100 * MS).burst(10), 20)] {
        let (_clock, [a, b, c]) = on_a_clock([quota.into(), full(3), full(3)]);
        let mut earlier = a.try_acquire(10).unwrap();
        earlier.settle(10 + debt);
        let [first, next] = [(5, &b), (2, &c)].map(|(cost, other)| pending(join([(&a, cost), (other, 3)])));
        earlier.settle(7);
        assert!(!first.is_woken() && !next.is_woken(), "the first one holds the limiter");
        drop(first);
        assert_eq!((next.is_woken(), a.available()), (true, 1), "{quota}, a debt of {debt}");
    }
}

/// The first claim wants to hold the limiter before the debt is paid off, but it waits for a slower one.
#[test]
fn tokens_that_come_in_pass_a_joint_claim_that_waits_for_a_slower_limiter() {
    let (_clock, [a, slow, c]) = on_a_clock([Quota::new(10, 100 * MS).burst(10).into(), empty(210), full(3)]);
    let mut earlier = a.try_acquire(10).unwrap();
    earlier.settle(30);
    let [first, next] =
        [(5, &slow, 210), (2, &c, 3)].map(|(cost, other, more)| pending(join([(&a, cost), (other, more)])));
    earlier.settle(8);
    assert_eq!((first.is_woken(), next.is_woken(), a.available()), (false, true, 0));
}

#[test]
fn the_end_of_a_pause_grants_the_claims_that_wait_aside_for_it() {
    for paused in [0, 1] {
        let (clock, limiters) = on_a_clock([full(90), full(90)]);
        let [a, b] = &limiters;
        limiters[paused].pause_for(600 * Duration::from_secs(1));
        let mut claims: Vec<_> = (0..80).map(|_| pending(join([(a, 1), (b, 1)]))).collect();
        pass(5, &clock, &[a, b]);
        limiters[paused].resume();
        pass(1, &clock, &[a, b]);
        assert_eq!(woken(&claims), 80, "limiter {paused}");
        claims.iter_mut().for_each(|claim| assert_eq!(costs(claim), [1, 1]));
    }
}

#[test]
fn a_smaller_burst_keeps_the_savings_of_the_front_and_a_smaller_rate_retimes_it() {
    let (clock, [a, b]) = beside_one_by_hand(holding(5));
    let mut claim = half_ready(&a, 5, &b);
    a.set_quota(0, Quota::per_second(500).burst(2)).unwrap();
    assert_eq!(a.snapshot().quotas[0].level, 5);
    b.replenish(1);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [5, 1]);

    let claim = half_ready(&a, 2, &b);
    b.replenish(1);
    pass(1, &clock, &[&a, &b]);
    a.set_quota(0, Quota::per_second(250).burst(2)).unwrap(); // half a token is carried over
    pass(5, &clock, &[&a, &b]);
    assert!(!claim.is_woken());
    pass(1, &clock, &[&a, &b]);
    assert!(claim.is_woken(), "2 ms for the rest of the first token, 4 ms for the second");
}

#[test]
fn a_higher_rate_in_the_slower_queue_brings_the_grant_forward() {
    let (clock, [a, b]) = on_a_clock([full(5), Quota::per_hour(5).initial(0).into()]);
    let claim = pending(join([(&b, 5), (&a, 5)]));
    b.set_quota(0, Quota::per_second(1_000).burst(5)).unwrap();
    pass(5, &clock, &[&a, &b]);
    assert!(claim.is_woken());
}

#[test]
fn a_debt_charged_behind_a_held_claim_does_not_delay_it() {
    let (clock, [a, b]) = beside_one_by_hand(holding(5));
    let mut earlier = a.try_acquire(2).unwrap();
    let mut claim = half_ready(&a, 3, &b);
    let behind = pending(a.consume(1));
    earlier.settle(6);
    b.replenish(1);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [3, 1]);
    pass(1, &clock, &[&a]);
    assert!(behind.is_woken(), "it waited before the debt");
    assert_eq!(a.deficiency(), 4);
}

/// The older debt is paid before the claim, the younger one after it, also if the quota is set again meanwhile.
#[test]
fn a_claim_is_lent_the_younger_of_two_debts() {
    for is_set_again in [false, true] {
        let (clock, [a, b]) = beside_one_by_hand(full(5));
        let mut earlier = a.try_acquire(5).unwrap();
        earlier.settle(8);
        let joint = half_ready(&a, 2, &b);
        earlier.settle(10);
        b.replenish(1);
        if is_set_again {
            a.set_quota(0, one_per_milli(5)).unwrap();
        }
        pass(4, &clock, &[&a]);
        assert!(!joint.is_woken());
        pass(1, &clock, &[&a]);
        assert!(joint.is_woken());
    }
}

/// The debt stays, which was charged behind it.
#[test]
fn a_claim_that_is_dropped_behind_a_held_one_leaves_its_debt() {
    let (clock, [a, b]) = beside_one_by_hand(holding(5));
    let mut earlier = a.try_acquire(2).unwrap();
    let mut claim = half_ready(&a, 3, &b);
    let behind = pending(a.consume(1));
    earlier.settle(6);
    drop(behind);
    b.replenish(1);
    assert_eq!((costs(&mut claim), a.deficiency()), ([3, 1], 4));
    pass(6, &clock, &[&a]);
    assert_eq!((a.deficiency(), a.available()), (0, 2));
}

/// The debt comes into the window at 10, and leaves it at 20. The claims were there before it was charged.
#[test]
fn a_debt_that_leaves_the_window_lends_nothing_to_a_held_claim() {
    let (clock, [a]) = on_a_clock([Quota::new(1, 10 * MS).sliding().into()]);
    let mut earlier = a.try_acquire(1).unwrap();
    let unseen = pending(a.consume(1));
    let joint = [(); 2].map(|()| pending(join([(&a, 1)])));
    earlier.settle(5);
    pass(15, &clock, &[&a]);
    drop(unseen);
    pass(5, &clock, &[&a]);
    assert_eq!(woken(&joint), 1);
    pass(10, &clock, &[&a]);
    assert_eq!(woken(&joint), 2);
}

/// The debt is charged before the claim is held, which then is lent what is missing.
#[test]
fn a_quota_becomes_sliding_while_it_lends_to_a_held_claim() {
    let (clock, [a, b]) = on_a_clock([full(5), Quota::new(1, 100 * MS).initial(0).into()]);
    let mut earlier = a.try_acquire(5).unwrap();
    let claim = pending(join([(&a, 3), (&b, 1)]));
    pass(10, &clock, &[&a, &b]);
    earlier.settle(120);
    pass(88, &clock, &[&a, &b]);
    a.set_quota(0, Quota::new(5, 10 * MS).sliding()).unwrap();
    pass(100, &clock, &[&a, &b]);
    assert!(claim.is_woken());
    assert_eq!(a.available(), 5);
}

/// Held before or not, they come before the plain claim, for which 4 tokens are there by then: its grant may be above the
/// burst of 1, theirs may not.
#[test]
fn joint_claims_take_nothing_of_what_a_claim_behind_them_has_saved_above_the_burst() {
    for b_pauses_for in [12, 5] {
        let (clock, [a, b]) = on_a_clock([empty(1), full(3)]);
        b.pause_for(b_pauses_for * MS);
        let joint = [(); 3].map(|()| pending(join([(&a, 1), (&b, 1)])));
        let behind = pending(a.consume(5));
        pass(4, &clock, &[&a, &b]);
        b.resume();
        assert_eq!(woken(&joint), 1);
        pass(2, &clock, &[&a, &b]);
        assert_eq!(woken(&joint), 3);
        pass(4, &clock, &[&a, &b]);
        assert!(!behind.is_woken());
        pass(1, &clock, &[&a, &b]);
        assert!(behind.is_woken());
    }
}

#[test]
fn a_refund_brings_forward_a_claim_over_two_clocks() {
    let (clock, other) = (ManualClock::new(), ManualClock::new());
    let (a, b) = (limiter(&clock, full(10)), limiter(&other, full(10)));
    let mut earlier = a.try_acquire(10).unwrap();
    let claim = pending(join([(&a, 10), (&b, 1)]));
    pass(1, &clock, &[&a, &b]);
    earlier.settle(0);
    assert!(claim.is_woken());
}

#[test]
fn a_clock_that_steps_back_takes_no_readiness_away() {
    let (clock, [a, b]) = beside_one_by_hand(empty(5));
    let mut claim = half_ready(&a, 3, &b);
    pass(3, &clock, &[&a, &b]);
    clock.step_back(2 * MS);
    tick(&[&a, &b]);
    b.replenish(1);
    assert_eq!(costs(&mut claim), [3, 1]);
    assert_eq!(a.available(), 0);
}

#[test]
fn a_joint_claim_at_a_stepped_quota_passes_at_the_step() {
    let (clock, [a, b]) = on_a_clock([Quota::new(4, 10 * MS).stepped().initial(0).into(), full(5)]);
    let mut claim = pending(join([(&a, 3), (&b, 3)]));
    pass(9, &clock, &[&b, &a]);
    assert!(!claim.is_woken());
    pass(1, &clock, &[&b, &a]);
    assert_eq!(costs(&mut claim), [3, 3]);
    assert_eq!((a.available(), b.available()), (1, 2));
}

#[test]
fn a_clock_that_stepped_back_between_two_queues_grants_at_most_the_burst() {
    let (clock, [a, b]) = on_a_clock([empty(1), holding(5)]);
    clock.advance(10_000 * MS);
    assert!(a.try_acquire(1).is_ok()); // a has seen this hour, b has not
    clock.step_back(10_000 * MS);
    let joint = pending(join([(&a, 1), (&b, 1)]));
    let behind: Vec<_> = (0..100).map(|_| pending(b.consume(1))).collect();
    tick_after(&clock, &a, 10_001 * MS);
    assert!(joint.is_woken());
    assert_eq!(woken(&behind), 4);
}

#[test]
fn a_clock_that_stepped_back_before_one_limiter_was_built_grants_at_most_the_burst() {
    let (clock, [b]) = on_a_clock([holding(5)]);
    clock.advance(10_000 * MS);
    let a = limiter(&clock, Quota::manual(1).initial(0));
    clock.step_back(10_000 * MS);
    let joint = pending(join([(&a, 1), (&b, 1)]));
    let behind: Vec<_> = (0..100).map(|_| pending(b.consume(1))).collect();
    clock.advance(5_000 * MS);
    a.replenish(1);
    assert!(joint.is_woken());
    assert_eq!(woken(&behind), 4);
}

/// The timer of b is late: something happens in a, which is ready, before b is served. This must not cost b anything.
#[test]
fn events_in_a_ready_queue_do_not_delay_the_grant() {
    let nothing = |_: &Limiter, _: &mut Grant<'_>| ();
    let look = |a: &Limiter, _: &mut Grant<'_>| drop(a.snapshot());
    let settle = |_: &Limiter, grant: &mut Grant<'_>| grant.settle(1);
    let replenish = |a: &Limiter, _: &mut Grant<'_>| a.replenish(1);
    for happens in [nothing, look, settle, replenish] as [fn(&Limiter, &mut Grant<'_>); 4] {
        let (clock, [a, b]) = on_a_clock([full(100), empty(1)]);
        let mut earlier = a.try_acquire(2).unwrap();
        let joint = pending(join([(&a, 1), (&b, 1)]));
        let behind = pending(b.consume(1));
        clock.advance(2 * MS);
        happens(&a, &mut earlier);
        b.tick();
        assert!(joint.is_woken() && behind.is_woken(), "due at 1 ms and at 2 ms");
    }
}

/// The caller is delayed between its readings of one clock for two queues. The order of the readings is not known, so
/// each queue is the one that holds the claim once.
#[test]
fn a_caller_delayed_between_two_clock_readings_grants_at_most_the_burst() {
    let time = Arc::new(Mutex::new((9 * SECOND, false)));
    let shown = Arc::clone(&time);
    // It jumps by a second after its next reading, if that is set.
    let clock = ClockFn::manual(move || {
        let (now, jumps) = &mut *shown.lock().unwrap();
        let read = *now;
        *now += SECOND * u32::from(std::mem::take(jumps));
        read
    });
    let builder = Limiter::builder().quota(Quota::manual(5).initial(0)).quota(Quota::manual(1_000)).clock(clock);
    let limiters = [builder.clone().build().unwrap(), builder.build().unwrap()];
    for [held, last] in [[0, 1], [1, 0]].map(|order| order.map(|index: usize| &limiters[index])) {
        held.set_quota(0, Quota::per_second(1_000).burst(5)).unwrap();
        time.lock().unwrap().0 += SECOND;
        assert_eq!((held.available(), last.available()), (5, 0));
        time.lock().unwrap().1 = true;
        let joint = pending(join([(held, 1), (last, 1)]));
        let behind: Vec<_> = (0..100).map(|_| pending(held.consume(1))).collect();
        last.replenish(1); // the second quota is full
        assert!(joint.is_woken());
        assert_eq!(woken(&behind), 4);
        drop(behind);
        drop(joint);
        held.set_quota(0, Quota::manual(5)).unwrap();
        last.replenish(5);
        assert!(held.try_acquire(held.available()).is_ok() && last.try_acquire(last.available()).is_ok());
    }
}

#[test]
fn tokens_minted_while_a_claim_was_held_follow_the_quota_of_that_time() {
    let (clock, [a, b]) = beside_one_by_hand(Quota::per_second(1_000).burst(100).initial(1).into());
    let claim = half_ready(&a, 1, &b);
    clock.advance(5 * MS);
    a.set_quota(0, Quota::per_second(1_000_000).burst(10_000)).unwrap();
    drop(claim);
    assert_eq!(a.available(), 6);
}
