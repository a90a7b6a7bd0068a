//! Joint claims with classes of limiters: examples with instants computed by hand, in milliseconds.

use super::timeline::{Setup, Timeline, any, any_class, class, divided, divided_by, setup, setup_beside};
use super::{MS, limiter, on_a_clock, tick};
use crate::fixture::*;

/// The turn of the joint claim comes at once: nothing else waits. It stands aside until 50, in time for its own 5 tokens.
#[test]
fn a_class_passes_its_joint_claim_until_that_is_due() {
    let Setup { requests, a, b, mut timeline, .. } = setup();
    timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
    timeline.many("b", &b, 7, 1);
    timeline.until(200);
    assert_eq!(timeline.log(), "b0 10, b1 20, b2 30, b3 40, b4 50, joint 100, b5 110, b6 120");
}

/// The class of the joint claim is charged 3 tokens at its turn, at 10. So b has 3 tokens before a has its next one; and
/// both pass the joint claim until 70.
#[test]
fn a_turn_is_charged_and_claims_of_all_classes_pass() {
    let Setup { requests, a, b, mut timeline, .. } = setup();
    timeline.many("b", &b, 6, 1);
    timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 3)]);
    timeline.many("a", &a, 4, 1);
    timeline.until(200);
    let log = "b0 10, b1 20, b2 30, b3 40, a0 50, b4 60, a1 70, joint 100, b5 110, a2 120, a3 130";
    assert_eq!(timeline.log(), log);
}

/// The second joint claim over the same limiters comes into the queue of its class when the first is granted. What is behind
/// it there passes until then.
#[test]
fn the_second_joint_claim_of_a_set_waits_for_the_first_outside_of_the_class() {
    let Setup { requests, a, b, mut timeline, .. } = setup();
    timeline.joint("first", [(any(&requests), 1), (any_class(&a), 1)]);
    timeline.plain("between", &a, 1);
    timeline.joint("second", [(any(&requests), 1), (any_class(&a), 1)]);
    timeline.plain("behind", &a, 1);
    timeline.many("b", &b, 3, 1);
    timeline.until(250);
    assert_eq!(timeline.log(), "between 10, b0 20, behind 30, b1 40, b2 50, first 100, second 200");
    assert_eq!(a.snapshot().waiting_tasks, 0);
}

/// Classes of two limiters: each joint claim has its turns, then both are granted at one instant, in their order.
#[test]
fn classes_of_two_limiters_in_opposite_orders() {
    let clock = ManualClock::new();
    let (one, two) = (divided(&clock), divided(&clock));
    let [a, b] = ["a", "b"].map(|name| class(&one, name, 1));
    let [c, d] = ["c", "d"].map(|name| class(&two, name, 1));
    let mut timeline = Timeline::new(&clock, [&one, &two]);
    timeline.many("a", &a, 2, 2);
    timeline.many("d", &d, 2, 2);
    timeline.joint("ac", [(any_class(&a), 2), (any_class(&c), 4)]);
    timeline.joint("db", [(any_class(&d), 4), (any_class(&b), 2)]);
    timeline.until(400);
    assert_eq!(timeline.log(), "a0 20, d0 20, a1 40, d1 40, ac 80, db 120");
}

/// A claim above the burst has its first installments in turn, like any claim; only the last one waits for the others.
/// It was set aside 10 at 100 and 10 at 300, and b had its turns between. From 310 on only 5 tokens are missing.
#[test]
fn a_joint_claim_above_the_burst_is_paid_in_installments() {
    let Setup { requests, tokens, a, b, mut timeline, .. } = setup_beside(Quota::per_second(1));
    timeline.joint("giant", [(any(&requests), 1), (any_class(&a), 25)]);
    timeline.many("b", &b, 3, 10);
    timeline.until(1_200);
    assert_eq!(timeline.log(), "b0 200, b1 400, b2 500, giant 1000");
    assert_eq!((tokens.snapshot().granted, tokens.available()), (55, 10));
}

#[test]
fn a_claim_with_a_deadline_waits_behind_a_joint_claim_that_is_paid_in_part() {
    let Setup { clock, requests, tokens, a, .. } = setup_beside(Quota::per_second(1));
    let (requests_any, a_any) = (any(&requests), any_class(&a));
    let _giant = pending(join([(&requests_any, 1), (&a_any, 25)]));
    tick_after(&clock, &tokens, 100 * MS);
    let _behind = pending(a.consume(1).within(HOUR));
}

/// The joint claim leaves at each of its stages; the claims behind it get what it leaves, and no more.
#[test]
fn a_joint_claim_is_cancelled_at_each_stage() {
    // Before its turn, aside, held, and granted but not seen: with 5 tokens of 100 per second and a request at 100.
    for (at, log) in [
        (0, "b0 10, b1 20, b2 30, b3 40, b4 50, b5 60, b6 70"),
        (30, "b0 10, b1 20, b2 30, b3 40, b4 50, b5 60, b6 70"),
        // Held since 50: the two tokens minted since are there at once.
        (75, "b0 10, b1 20, b2 30, b3 40, b4 50, b5 75, b6 75"),
    ] {
        let Setup { requests, tokens, a, b, mut timeline, .. } = setup();
        timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
        timeline.many("b", &b, 7, 1);
        timeline.until(at);
        timeline.cancel("joint");
        timeline.until(200);
        assert_eq!(timeline.log(), log, "cancelled at {at}");
        assert_eq!((requests.available(), tokens.snapshot().granted), (1, 7), "cancelled at {at}");
    }
}

/// A giant that leaves when it had all its turns gives back what was set aside for it, up to the shadow level.
#[test]
fn a_joint_claim_above_the_burst_gives_back_what_was_set_aside() {
    let Setup { requests, tokens, a, mut timeline, .. } = setup_beside(Quota::per_second(1));
    timeline.joint("giant", [(any(&requests), 1), (any_class(&a), 25)]);
    timeline.until(260);
    assert_eq!(tokens.snapshot().granted, 0);
    timeline.cancel("giant");
    assert_eq!(tokens.available(), 10, "20 were set aside, 6 were in the bucket, and the burst is 10");
    assert_eq!(tokens.snapshot().granted, 0);
}

/// Granted in both limiters, and dropped before its caller saw that: both get their tokens back.
#[test]
fn a_joint_claim_that_nobody_saw_granted_is_refunded() {
    let Setup { clock, requests, tokens, a, .. } = setup();
    let (requests_any, a_any) = (any(&requests), any_class(&a));
    let claim = pending(join([(&requests_any, 1), (&a_any, 5)]));
    clock.advance(100 * MS);
    tick(&[&requests, &tokens]);
    assert!(claim.is_woken());
    drop(claim);
    assert_eq!((requests.available(), tokens.available()), (1, 10));
    assert_eq!((tokens.snapshot().granted, tokens.snapshot().refunded), (5, 5));
}

#[test]
fn a_class_is_removed_with_a_joint_claim_at_each_stage() {
    for (at, ahead) in [(0, 1), (0, 0), (30, 0), (75, 0)] {
        let Setup { requests, tokens, a, b, mut timeline, .. } = setup();
        timeline.many("ahead", &a, ahead, 10);
        timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
        timeline.many("b", &b, 7, 1);
        timeline.until(at);
        a.remove();
        timeline.look();
        assert!(timeline.log().contains(&format!("!joint {at}")), "{}", timeline.log());
        timeline.until(200);
        assert!(timeline.waiting.is_empty(), "{}", timeline.log());
        assert_eq!((requests.available(), tokens.snapshot().granted), (1, 7), "removed at {at}");
    }
}

#[test]
fn a_limiter_with_classes_is_closed_with_a_joint_claim() {
    for at in [0, 30, 75] {
        let Setup { requests, tokens, a, b, mut timeline, .. } = setup();
        timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
        timeline.joint("behind", [(any(&requests), 1), (any_class(&a), 5)]);
        timeline.many("b", &b, 9, 1);
        timeline.until(at);
        tokens.close();
        timeline.look();
        assert!(timeline.waiting.is_empty(), "{}", timeline.log());
        timeline.until(200);
        assert_eq!(requests.available(), 1);
    }
}

/// A pause of the limiter with classes, and of the other one: the claim is granted in both at the end.
#[test]
fn a_pause_delays_the_joint_claim_in_both() {
    for which in [0, 1] {
        let Setup { requests, tokens, a, b, mut timeline, .. } = setup();
        timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
        timeline.many("b", &b, 4, 1);
        timeline.until(75);
        [&requests, &tokens][which].pause_for(Duration::from_millis(125));
        timeline.until(400);
        assert!(timeline.log().ends_with("joint 200"), "{}", timeline.log());
    }
}

/// While the request is out of reach, the class gets its tokens; and the claim is held in time again.
#[test]
fn a_slower_quota_sets_the_held_claim_aside_again() {
    let Setup { requests, a, b, mut timeline, .. } = setup();
    timeline.joint("joint", [(any(&requests), 1), (any_class(&a), 5)]);
    timeline.many("b", &b, 30, 1);
    timeline.until(60);
    // 0.6 of the request are there; the rest takes 400 ms.
    requests.set_quota(0, Quota::per_second(1).burst(1)).unwrap();
    timeline.look();
    timeline.until(1_000);
    let log = timeline.log();
    assert!(log.contains("b4 50, b5 60, b6 70"), "{log}");
    assert!(log.ends_with("b29 300, joint 460"), "{log}");
}

/// A class takes no turns ahead while other limiters have no tokens: it would get as many tokens at once later. Each claim is
/// in a set of its own: the claims of one set have their turns one after another anyway.
#[test]
fn turns_are_not_saved_up() {
    let clock = ManualClock::new();
    let by_hand = [(); 30].map(|()| limiter(&clock, Quota::manual(100).initial(0)));
    let tokens = divided(&clock);
    let (a, b) = (class(&tokens, "a", 1), class(&tokens, "b", 1));
    let mut timeline = Timeline::new(&clock, [&by_hand[0], &tokens]);
    for (index, by_hand) in by_hand.iter().enumerate() {
        timeline.joint(format!("a{index}"), [(any(by_hand), 1), (any_class(&a), 1)]);
    }
    timeline.until(1_000);
    timeline.many("b", &b, 40, 1);
    by_hand.iter().for_each(|by_hand| by_hand.replenish(100));
    timeline.look();
    timeline.until(1_200);
    let of = |name: &str| timeline.log.iter().filter(|entry| entry.starts_with(name)).count();
    assert_eq!((of("a"), of("b")), (10, 20), "b took the burst of 10; each had half of the 20 tokens since");
}

/// On different clocks a queue holds its part without knowing an instant, but only after the claim had all its turns. The
/// second claim has its turn before the first, and does not wait for it elsewhere.
#[test]
fn queues_on_different_clocks_hold_nothing_before_the_last_turn() {
    let (clock, other) = (ManualClock::new(), ManualClock::new());
    let tokens = divided(&clock);
    let plain = limiter(&other, Quota::per_second(1_000).burst(100));
    let (a, c) = (class(&tokens, "a", 1), class(&tokens, "c", 1));
    let mut timeline = Timeline::new(&clock, [&plain, &tokens]);
    timeline.many("a", &a, 2, 5);
    timeline.joint("first", [(any(&plain), 1), (any_class(&a), 1)]);
    timeline.joint("second", [(any(&plain), 1), (any_class(&c), 1)]);
    for _ in 0..30 {
        other.advance(5 * MS);
        timeline.until(timeline.now + 5);
    }
    assert_eq!(timeline.log(), "second 10, a0 60, a1 110, first 120");
}

#[test]
fn a_ceiling_is_charged_at_the_turn() {
    let (clock, [fast]) = on_a_clock([Quota::per_second(1_000).burst(100).into()]);
    let tokens = divided(&clock);
    let ceiling = Share::weight(1).ceiling(Quota::per_second(20).burst(2).initial(0));
    let (a, b) = (tokens.class("a", ceiling).unwrap(), class(&tokens, "b", 1));
    let mut timeline = Timeline::new(&clock, [&fast, &tokens]);
    for index in 0..4 {
        timeline.joint(format!("a{index}"), [(any(&fast), 1), (any_class(&a), 1)]);
    }
    timeline.until(30);
    assert!(a.snapshot().is_held);
    timeline.many("b", &b, 3, 1);
    timeline.until(300);
    assert_eq!(timeline.log(), "b0 30, b1 30, b2 30, a0 50, a1 100, a2 150, a3 200");
}

/// The in-flight cap of a limiter with classes holds all classes back, as for any claim in service.
#[test]
fn the_cap_of_a_limiter_with_classes_holds_the_joint_claim() {
    let (clock, [plain]) = on_a_clock([Quota::per_second(1_000).burst(100).into()]);
    let builder = Limiter::builder().quota(Quota::per_second(100).burst(10)).max_in_flight(6).classes();
    let tokens = builder.clock(clock.clone()).build().unwrap();
    let a = class(&tokens, "a", 1);
    let (plain_any, a_any) = (any(&plain), any_class(&a));
    let first = assert_ready_ok!(spawn(join([(&plain_any, 1), (&a_any, 4)])).poll());
    let mut second = pending(join([(&plain_any, 1), (&a_any, 4)]));
    clock.advance(1_000 * MS);
    tick(&[&plain, &tokens]);
    assert_pending!(second.poll());
    assert_eq!(tokens.snapshot().in_flight, Some(4));
    drop(first);
    let grants = assert_ready_ok!(second.poll());
    assert_eq!(tokens.snapshot().in_flight, Some(4));
    drop(grants);
    assert_eq!(tokens.snapshot().in_flight, Some(0));
}

/// What was set aside for a claim above the burst is in flight from the grant on, and not before.
#[test]
fn a_joint_claim_above_the_burst_is_in_flight_once_it_is_granted() {
    let (clock, [requests]) = on_a_clock([Quota::per_second(1).burst(1).initial(0).into()]);
    let builder = Limiter::builder().quota(Quota::per_second(100).burst(10).initial(0)).max_in_flight(30).classes();
    let tokens = builder.clock(clock.clone()).build().unwrap();
    let (requests_any, a_any) = (any(&requests), any_class(&class(&tokens, "a", 1)));
    let mut giant = pending(join([(&requests_any, 1), (&a_any, 25)]));
    for _ in 0..99 {
        clock.advance(10 * MS);
        tick(&[&requests, &tokens]);
        assert_eq!(tokens.snapshot().in_flight, Some(0));
    }
    let beside = pending(tokens.consume(6));
    clock.advance(110 * MS);
    tick(&[&requests, &tokens]);
    assert_eq!(tokens.snapshot().in_flight, Some(25));
    assert!(!beside.is_woken(), "25 and 6 are more than the cap of 30");
    drop(assert_ready_ok!(giant.poll()));
    assert!(beside.is_woken());
    assert_eq!(tokens.snapshot().in_flight, Some(6));
}

#[test]
fn refusals_of_joint_claims_with_classes() {
    let Setup { requests, tokens, a, b, .. } = setup();
    a.set_share(Share::weight(1).max_waiting(1)).unwrap();
    let refused = assert_ready_err!(spawn(join([(&a, 1), (&b, 1)])).poll());
    assert_eq!(refused, JoinError::Repeated { limiter: 1 });
    let [requests_any, tokens_any, a_any] = [any(&requests), any(&tokens), any_class(&a)];
    assert_eq!(try_join([(&tokens_any, 1), (&a_any, 1)]).unwrap_err(), JoinError::Repeated { limiter: 1 });
    let refused = try_join([(&requests_any, 0), (&a_any, 1)]).unwrap_err();
    assert!(matches!(refused, JoinError::Refused { limiter: 1, error: TryAcquireError::Denied(_) }), "{refused:?}");
    let waiting = pending(join([(&requests_any, 1), (&a_any, 1)]));
    let refused = assert_ready_err!(spawn(join([(&requests_any, 1), (&a_any, 1)])).poll());
    assert_eq!(refused, JoinError::Refused { limiter: 1, error: ConsumeError::QueueFull { waiting: 1 } });
    assert!(a.estimate(1).is_none(), "it also depends on the requests");
    drop(waiting);
    assert!(a.estimate(1).is_some());
    let refused = spawn(join([(&requests_any, 1), (&a_any, 9)]).within(50 * MS)).poll().map(|it| it.unwrap_err());
    assert!(matches!(refused, Poll::Ready(JoinError::Refused { limiter: 0, error: ConsumeError::TooLate { .. } })));
    a.remove();
    let refused = assert_ready_err!(spawn(join([(&requests_any, 1), (&a_any, 1)])).poll());
    assert_eq!(refused, JoinError::Refused { limiter: 1, error: ConsumeError::Closed });
}

#[test]
fn tokens_that_are_there_are_granted_at_once() {
    let (clock, [requests]) = on_a_clock([Quota::per_second(10).burst(1).into()]);
    let tokens = divided_by(&clock, Quota::per_second(100).burst(10));
    let capped = tokens.class("capped", Share::weight(1).ceiling(Quota::per_second(10).burst(4))).unwrap();
    let (requests_any, capped_any) = (any(&requests), any_class(&capped));
    assert!(try_join([(&requests_any, 1), (&capped_any, 5)]).is_err(), "the burst of the ceiling is 4");
    assert_eq!((requests.available(), tokens.available()), (1, 10));
    let [request, mut spent] = try_join([(&requests_any, 1), (&capped_any, 3)]).unwrap();
    assert_eq!((request.cost(), spent.cost(), tokens.available(), capped.available()), (1, 3, 7, 1));
    spent.settle(1);
    assert_eq!((tokens.available(), capped.available()), (9, 3), "a refund goes to the quotas and to ceilings");
    let grants: [Grant<'_, Class>; 1] = assert_ready_ok!(spawn(join([(&capped, 1)])).poll());
    assert_eq!(grants[0].cost(), 1);
    let b = class(&tokens, "b", 1);
    let mut stream = assert_ready_ok!(spawn(reserve([(&b, 2)])).poll());
    stream.count(0, 5);
    assert_eq!(tokens.available(), 3);
}

#[tokio::test(start_paused = true)]
async fn drivers_of_a_runtime_grant_in_both() {
    let requests = Limiter::new(Quota::per_second(10).burst(1).initial(0)).unwrap();
    let tokens = Limiter::builder().quota(Quota::per_second(100).burst(10).initial(0)).classes().build().unwrap();
    let (a, b) = (class(&tokens, "a", 1), class(&tokens, "b", 1));
    let start = tokio::time::Instant::now();
    let busy = tokio::spawn(async move {
        for _ in 0..20 {
            b.wait(1).await.unwrap();
        }
        start.elapsed()
    });
    let (requests_any, a_any) = (any(&requests), any_class(&a));
    for round in 1..=3 {
        let [_request, spent] = join([(&requests_any, 1), (&a_any, 5)]).await.unwrap();
        assert_eq!(spent.cost(), 5);
        assert_eq!(start.elapsed(), Duration::from_millis(100 * round));
    }
    assert_eq!(join([(&a_any, 2), (&requests_any, 1)]).await.unwrap().map(|grant| grant.cost()), [2, 1]);
    assert_eq!(start.elapsed(), Duration::from_millis(400));
    assert!(busy.await.unwrap() <= Duration::from_millis(400));
}
