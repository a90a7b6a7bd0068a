//! The limiters of keys under a parent as values: alone, and in joint claims, in which the parent takes part.

use super::{limiter, pair, under};
use crate::fixture::*;
use tollgate::{JoinError, ReleaseError};

fn levels(limiters: &[&Limiter]) -> Vec<i64> {
    limiters.iter().map(|limiter| limiter.snapshot().quotas[0].level).collect()
}

#[test]
fn the_limiter_of_a_key_takes_from_the_parent_too_and_settles_and_releases_there() {
    let clock = ManualClock::new();
    for (key_cap, cap) in [(None, None), (None, Some(10)), (Some(10), None), (Some(10), Some(10))] {
        let global = Limiter::builder().quota(Quota::per_second(10)).clock(clock.clone());
        let global = cap.into_iter().fold(global, Builder::max_in_flight).build().unwrap();
        let keyed = under(&global, &clock, Quota::per_second(5));
        let keyed = key_cap.into_iter().fold(keyed, KeyedBuilder::max_in_flight).build().unwrap();
        let key = keyed.limiter(&1).unwrap();
        let mut grant = key.try_acquire(3).unwrap();
        assert_eq!((levels(&[&key, &global]), key.available()), (vec![2, 7], 2));
        grant.settle(1);
        assert_eq!(levels(&[&key, &global]), [4, 9]);
        grant.settle(4);
        assert_eq!(levels(&[&key, &global]), [1, 6]);
        let in_flight = [&key, &global].map(|limiter| limiter.snapshot().in_flight);
        assert_eq!(in_flight, [key_cap.map(|_| 4), cap.map(|_| 4)]);
        grant.forget();
        let too_much = if key_cap.or(cap).is_some() {
            ReleaseError::TooMuch { asked: 5, owed: 4 }
        } else {
            ReleaseError::NotCapped
        };
        assert_eq!(key.release(5), Err(too_much));
        assert_eq!(keyed.release(&1, 3).is_ok(), key_cap.or(cap).is_some());
        assert_eq!(key.release(1).is_ok(), key_cap.or(cap).is_some());
        let in_flight = [&key, &global].map(|limiter| limiter.snapshot().in_flight);
        assert_eq!(in_flight, [key_cap.map(|_| 0), cap.map(|_| 0)]);
        // The parent is the scarcer one.
        drop(global.try_acquire(6).unwrap());
        assert_eq!((key.available(), key.estimate(1)), (0, Some(100 * MILLI)));
        assert!(matches!(key.try_acquire(1), Err(TryAcquireError::Denied(denied)) if denied.by == Bound::Parent));
        let mut waiting = pending(key.consume(1));
        tick_after(&clock, &global, 100 * MILLI);
        drop(assert_ready_ok!(waiting.poll()));
        clock.advance(SECOND);
    }
}

#[test]
fn a_parent_has_no_parent_of_its_own_and_is_in_a_joint_claim_once() {
    let (clock, global, keyed) = pair(Quota::per_second(10), Quota::per_second(5));
    let key = keyed.limiter(&1).unwrap();
    let nested = KeyedLimiter::<u32>::builder().clock(clock.clone()).quota(Quota::per_second(1)).parent(&key);
    assert_eq!(nested.build().err(), Some(ConfigError::KeyUnderParent));
    for claims in [[(&key, 1), (&global, 1)], [(&global, 1), (&key, 1)]] {
        assert_eq!(try_join(claims).err(), Some(JoinError::Repeated { limiter: 1 }));
    }
}

/// Requests and tokens of a tenant under one limit of all: the claim costs 1 + 4 there.
#[test]
fn keys_under_one_parent_add_their_costs_there() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_second(10).burst(6));
    let [requests, tokens] = [2, 8].map(|burst| under(&global, &clock, Quota::per_second(burst)).build().unwrap());
    let (request, token) = (requests.limiter(&1).unwrap(), tokens.limiter(&1).unwrap());
    let mut grants = try_join([(&request, 1), (&token, 4)]).unwrap();
    assert_eq!(levels(&[&request, &token, &global]), [1, 4, 1]);
    let Err(JoinError::Refused { limiter: 0, error: TryAcquireError::Denied(denied) }) =
        try_join([(&request, 1), (&token, 1)])
    else {
        panic!("granted by a parent with one token")
    };
    assert_eq!((denied.by, denied.retry_after), (Bound::Parent, Some(100 * MILLI)));
    grants[1].settle(1);
    assert_eq!(levels(&[&request, &token, &global]), [1, 7, 4]);
    let refused = join([(&request, 1), (&token, 4)]).within(50 * MILLI).now_or_never().unwrap().err();
    let too_late =
        ConsumeError::TooLate { estimate: 100 * MILLI, allowed: 50 * MILLI, by: Bound::Parent, quota_name: None };
    assert_eq!(refused, Some(JoinError::Refused { limiter: 0, error: too_late }));
    let mut waiting = pending(join([(&request, 1), (&token, 4)]));
    tick_after(&clock, &global, 99 * MILLI);
    assert_pending!(waiting.poll());
    tick_after(&clock, &global, MILLI);
    assert!(waiting.is_woken());
    drop(assert_ready_ok!(waiting.poll()));
    assert_eq!(levels(&[&global]), [0]);
}

/// A joint claim waits for its turn behind the key's older claim, which waits for the parent. Later claims of the key pass it
/// until the limiters hold it; dropped, it leaves all three as they were.
#[test]
fn claims_of_a_key_and_joint_claims_pass_each_other_as_in_any_limiter() {
    let (clock, global, keyed) = pair(Quota::per_second(10).burst(1).initial(0), Quota::per_second(100).burst(10));
    let other = limiter(&clock, Quota::per_second(2).burst(1).initial(0));
    let key = keyed.limiter(&1).unwrap();
    let mut older = pending(key.consume(1));
    let mut joint = pending(join([(&key, 1), (&other, 1)]));
    let dropped = pending(join([(&key, 1), (&other, 1)]));
    let mut later: Vec<_> = (0..5).map(|_| pending(key.consume(1))).collect();
    drop(dropped);
    let mut log = Vec::new();
    for tenth in 1..=7 {
        tick_after(&clock, &global, 100 * MILLI);
        key.tick();
        other.tick();
        if older.is_woken() && older.poll().is_ready() {
            log.push((tenth, "older"));
        }
        if joint.is_woken() && joint.poll().is_ready() {
            log.push((tenth, "joint"));
        }
        later.retain_mut(|claim| {
            let waits = !claim.is_woken() || claim.poll().is_pending();
            if !waits {
                log.push((tenth, "later"));
            }
            waits
        });
    }
    let [older, joint, later] = ["older", "joint", "later"];
    assert_eq!(log, [(1, older), (2, later), (3, later), (4, later), (5, joint), (6, later), (7, later)]);
    assert_eq!((key.snapshot().waiting_tasks, global.snapshot().granted), (0, 7));
}

#[test]
fn a_joint_claim_that_the_parent_holds_back_is_given_up_and_ends_with_it() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::per_second(5));
    let (key, other) = (keyed.limiter(&1).unwrap(), limiter(&clock, Quota::per_second(5)));
    global.pause_for(HOUR);
    let mut waiting = pending(join([(&other, 1), (&key, 1)]).within(2 * HOUR));
    global.pause_for(10 * HOUR);
    clock.advance(2 * HOUR);
    let Poll::Ready(Err(JoinError::Refused { limiter: 1, error: ConsumeError::TimedOut { by, .. } })) = waiting.poll()
    else {
        panic!("it does not time out")
    };
    assert_eq!(by, Bound::ParentPause);
    let mut waiting = pending(join([(&other, 1), (&key, 1)]));
    global.close();
    let closed = JoinError::Refused { limiter: 1, error: ConsumeError::Closed };
    assert_eq!(assert_ready!(waiting.poll()).err(), Some(closed));
    assert_eq!(levels(&[&other]), [5]);
}

/// With the drivers of a runtime: each tenant joins its requests with its tokens, both under one limit of all tenants.
#[tokio::test(start_paused = true)]
async fn ten_tenants_joined_under_one_parent_keep_their_own_rates() {
    for has_classes in [false, true] {
        let global = Limiter::builder().quota(Quota::per_second(1_000).burst(20));
        let global = if has_classes { global.classes() } else { global }.build().unwrap();
        let keyed =
            |rate| KeyedLimiter::<u32>::builder().quota(Quota::per_second(rate).burst(5)).parent(&global).build();
        let (requests, tokens) = (keyed(10).unwrap(), keyed(40).unwrap());
        let granted: Vec<_> = (0..10).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let mut tasks = JoinSet::new();
        for (tenant, granted) in (0..10).zip(&granted) {
            let (request, token) = (requests.limiter(&tenant).unwrap(), tokens.limiter(&tenant).unwrap());
            for _ in 0..3 {
                let (request, token, granted) = (request.clone(), token.clone(), Arc::clone(granted));
                tasks.spawn(async move {
                    loop {
                        drop(join([(&request, 1), (&token, 4)]).await.unwrap());
                        granted.fetch_add(1, Relaxed);
                    }
                });
            }
            // One more claims from its tokens alone, now and then.
            tasks.spawn(async move {
                loop {
                    sleep(SECOND).await;
                    drop(token.consume(1).await.unwrap());
                }
            });
        }
        sleep(20 * SECOND).await;
        let least = granted.iter().map(|granted| granted.load(Relaxed)).min().unwrap();
        // 40 tokens a second, less one each second, in claims of 4.
        assert!(least >= 20 * 39 / 4 * 97 / 100, "{least} claims in 20 s");
        tasks.shutdown().await;
    }
}

#[test]
fn a_grant_does_not_grow_beyond_the_cap_of_the_parent() {
    let clock = ManualClock::new();
    let global = Limiter::builder().quota(Quota::per_second(100)).max_in_flight(10).clock(clock.clone());
    let global = global.build().unwrap();
    let key = under(&global, &clock, Quota::per_second(100)).build().unwrap().limiter(&1).unwrap();
    let mut grant = key.try_acquire(6).unwrap();
    let refused = grant.grow_within(5).now_or_never().expect("its own grant holds the tokens");
    assert_eq!(refused, Err(too_large(5, 4, Bound::ParentInFlight)));
    grant.grow_within(4).now_or_never().unwrap().unwrap();
    assert_eq!(global.snapshot().in_flight, Some(10));
}

/// A claim behind the joint one in the parent's queue is on a runtime that does not serve the key yet.
#[test]
fn the_runtimes_that_serve_the_parent_serve_the_other_queues_of_a_joint_claim() {
    let began = std::time::Instant::now();
    let global = Limiter::new(Quota::new(1, 50 * MILLI).burst(1).initial(0)).unwrap();
    let keyed = KeyedLimiter::<u32>::builder().quota(Quota::per_second(100)).parent(&global).build().unwrap();
    let other = Limiter::builder().quota(Quota::new(1, 150 * MILLI).burst(1).initial(0));
    let other = other.clock(ClockFn::moving(move || began.elapsed())).build().unwrap();
    let key = keyed.limiter(&1).unwrap();
    let (idle, driven) = (alone(), alone());
    let mut first = spawn(global.consume(1));
    driven.block_on(async { assert_pending!(first.poll()) });
    let mut stalled = spawn(join([(&key, 1), (&other, 1)]));
    idle.block_on(async { assert_pending!(stalled.poll()) });
    let mut behind = spawn(global.consume(1));
    driven.block_on(async {
        assert_pending!(behind.poll());
        let is_served = async {
            while !behind.is_woken() {
                sleep(10 * MILLI).await;
            }
        };
        timeout(60 * SECOND, is_served).await.expect("this runtime serves the other queue too");
    });
}

/// The parent has a class for each key. In whichever order a claim names the keys, it has its turn in the same class.
#[test]
fn joint_claims_over_the_same_keys_are_granted_in_the_order_of_arrival() {
    for light in [1, 2] {
        let clock = ManualClock::new();
        let global = Limiter::builder().quota(Quota::per_second(10).burst(2).initial(0)).classes();
        let global = global.clock(clock.clone()).build().unwrap();
        let keyed = under(&global, &clock, Quota::per_second(1_000));
        let keyed = keyed.weight_by(move |key| if *key == light { 1 } else { 100 }).build().unwrap();
        let [one, two, busy] = [1, 2, 9].map(|key| keyed.limiter(&key).unwrap());
        let _others: Vec<_> = (0..400).map(|_| pending(busy.consume(1))).collect();
        let light = if light == 1 { &one } else { &two };
        let heavy = if std::ptr::eq(light, &one) { &two } else { &one };
        // It has taken more than its share for a while.
        let mut served = pending(light.consume(1));
        while !served.is_woken() {
            tick_after(&clock, &global, 100 * MILLI);
        }
        drop(assert_ready_ok!(served.poll()));
        let mut first = pending(join([(light, 1), (heavy, 1)]));
        let mut second = pending(join([(heavy, 1), (light, 1)]));
        while !second.is_woken() {
            tick_after(&clock, &global, 100 * MILLI);
        }
        assert!(first.is_woken(), "passed by a younger claim over the same keys");
        drop((assert_ready_ok!(first.poll()), assert_ready_ok!(second.poll())));
    }
}

#[test]
fn a_key_of_which_nothing_is_taken_does_not_refuse_for_the_parent() {
    let (_clock, global, keyed) = pair(Quota::per_second(10).burst(5), Quota::per_second(50));
    let [idle, key] = [1, 2].map(|key| keyed.limiter(&key).unwrap());
    drop(global.try_acquire(5).unwrap());
    let Err(JoinError::Refused { limiter, .. }) = try_join([(&idle, 0), (&key, 1)]) else { panic!("granted") };
    assert_eq!(limiter, 1);
}

/// The parent holds back the sum of the costs, and would not hold back one of them.
#[test]
fn a_claim_that_times_out_tells_what_of_the_parent_held_back_the_sum() {
    let (clock, global, keyed) = pair(Quota::per_second(10).burst(8).initial(4), Quota::per_second(10));
    let [a, b] = [1, 2].map(|key| keyed.limiter(&key).unwrap());
    let mut waiting = pending(join([(&a, 3), (&b, 3)]).within(SECOND));
    global.set_quota(0, Quota::per_hour(1).burst(8)).unwrap();
    clock.advance(SECOND);
    let Poll::Ready(Err(JoinError::Refused { error: ConsumeError::TimedOut { by, .. }, .. })) = waiting.poll() else {
        panic!("it does not time out")
    };
    assert_eq!(by, Bound::Parent);
}

/// The waiters are outside of all runtimes.
#[test]
fn a_replenisher_of_a_key_serves_the_parent_too() {
    let global = Limiter::new(Quota::new(1, 50 * MILLI).burst(1).initial(0)).unwrap();
    let keyed = KeyedLimiter::<u32>::builder().quota(Quota::per_second(100)).parent(&global).build().unwrap();
    let (key, runtime) = (keyed.limiter(&1).unwrap(), alone());
    let mut replenisher = std::pin::pin!(key.replenisher());
    runtime.block_on(async { assert_pending!(futures::poll!(&mut replenisher)) });
    let mut waiting = pending(key.consume(1));
    let mut joint = pending(join([(&key, 1)]));
    let is_served = async {
        while !waiting.is_woken() || !joint.is_woken() {
            assert!(timeout(10 * MILLI, &mut replenisher).await.is_err(), "the limiter is there");
        }
    };
    runtime.block_on(async { timeout(60 * SECOND, is_served).await }).expect("the parent is served");
    drop((assert_ready_ok!(waiting.poll()), assert_ready_ok!(joint.poll())));
}

/// The queues count up to 2^62 tokens. What the parent cannot charge the key is not charged either, nor refunded later.
#[test]
fn a_grant_costs_no_more_than_the_parent_could_charge() {
    let (_clock, global, keyed) = pair(Quota::per_second(10), Quota::per_second(50));
    let [large, small] = [1, 2].map(|key| keyed.limiter(&key).unwrap());
    let mut debt = large.try_acquire(1).unwrap();
    while debt.cost() < 1 << 61 {
        debt.grow(1 << 48);
    }
    let owed = global.deficiency();
    let mut grants: Vec<_> = (0..1 << 14)
        .map_while(|_| {
            let mut grant = small.try_acquire(0).unwrap();
            grant.settle(1 << 48);
            (grant.cost() > 0).then_some(grant)
        })
        .collect();
    for grant in &mut grants {
        grant.settle(0);
    }
    assert_eq!(global.deficiency(), owed);
}

/// The claim before it waits for the key's own tokens, and the parent has enough.
#[test]
fn a_claim_that_times_out_before_its_turn_names_the_key_and_not_the_parent() {
    let (clock, _global, keyed) = pair(Quota::per_second(100), Quota::per_second(10).burst(1));
    let key = keyed.limiter(&1).unwrap();
    drop(key.try_acquire(1).unwrap());
    let _first = pending(key.consume(1));
    let mut waiting = pending(join([(&key, 1)]).within(SECOND));
    key.set_quota(0, Quota::per_hour(1).burst(1)).unwrap();
    clock.advance(SECOND);
    let Poll::Ready(Err(JoinError::Refused { error: ConsumeError::TimedOut { by, .. }, .. })) = waiting.poll() else {
        panic!("it does not time out")
    };
    assert_eq!(by, Bound::Quota(0));
}

/// A claim of `cost` in a key waits in the parent, behind `before`, while an older joint claim begins to hold the key.
fn hold_a_key_whose_claim_waits_for_the_parent(cost: u64) {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1).initial(0), Quota::per_second(1).burst(10));
    let [slow, other] = [5, 100].map(|span| limiter(&clock, Quota::new(1, span * SECOND).initial(0)));
    let key = keyed.limiter(&1).unwrap();
    let mut joint = pending(join([(&key, 1), (&slow, 1)]));
    let mut before = pending(global.consume(10));
    let mut plain = pending(key.consume(cost));
    clock.advance(4 * SECOND);
    // The review of this one serves the key too, and looks for reviews that are due there.
    drop(pending(join([(&key, 1), (&other, 1)])));
    tick_after(&clock, &slow, SECOND);
    drop(assert_ready_ok!(joint.poll()));
    for _ in 0..60 {
        tick_after(&clock, &global, SECOND);
        key.tick();
    }
    drop((assert_ready_ok!(before.poll()), assert_ready_ok!(plain.poll())));
}

/// The plain claim is ready long before the joint claim begins to hold the key, or just then.
#[test]
fn a_joint_claim_holds_a_key_whose_claim_waits_for_the_parent() {
    for cost in [1, 14] {
        to_its_end(move || hold_a_key_whose_claim_waits_for_the_parent(cost));
    }
}

#[test]
fn a_driver_sleeps_while_a_joint_claim_holds_a_key_whose_claim_waits_for_the_parent() {
    to_its_end(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let global = Limiter::new(Quota::per_second(1).burst(1).initial(0)).unwrap();
            let keyed = KeyedLimiter::<u32>::builder().quota(Quota::per_second(1).burst(10)).parent(&global);
            let key = keyed.build().unwrap().limiter(&1).unwrap();
            let slow = Limiter::new(Quota::new(1, 5 * SECOND).initial(0)).unwrap();
            let start = Instant::now();
            let joint = join([(&key, 1), (&slow, 1)]).map(|_| start.elapsed());
            let before = global.consume(10).map(|_| start.elapsed());
            let plain = key.consume(1).map(|_| start.elapsed());
            assert_eq!(tokio::join!(joint, before, plain), (5 * SECOND, 15 * SECOND, 16 * SECOND));
        });
    });
}

#[test]
fn closing_the_parent_ends_the_claims_and_the_joint_claims_of_a_key() {
    to_its_end(|| {
        for has_classes in [false, true] {
            let clock = ManualClock::new();
            let global = Limiter::builder().quota(Quota::per_second(1).initial(0)).clock(clock.clone());
            let global = if has_classes { global.classes() } else { global }.build().unwrap();
            let keyed = under(&global, &clock, Quota::per_second(1)).build().unwrap();
            let other = limiter(&clock, Quota::per_hour(1).initial(0));
            let key = keyed.limiter(&1).unwrap();
            let mut plain = pending(key.consume(1));
            let mut joint = pending(join([(&key, 1), (&other, 1)]));
            global.close();
            assert_eq!(assert_ready_err!(plain.poll()), ConsumeError::Closed);
            let closed = JoinError::Refused { limiter: 0, error: ConsumeError::Closed };
            assert_eq!(assert_ready_err!(joint.poll()), closed);
        }
    });
}

/// The keys have plain claims that are due before the instants of their joint claims. The pause has the claim over all three
/// reviewed as of now, past the instants of the two others.
#[test]
fn two_reviews_of_joint_claims_that_are_both_late_end() {
    for pauses in [false, true] {
        to_its_end(move || {
            let slow = Quota::new(1, 10 * SECOND).burst(if pauses { 2 } else { 1 }).initial(0);
            let (clock, global, keyed) = pair(slow, Quota::per_second(1).burst(1));
            let other = limiter(&clock, slow);
            let keys = [1, 2].map(|key| keyed.limiter(&key).unwrap());
            let mut joint = keys.each_ref().map(|key| pending(join([(key, 1)])));
            let mut plain = keys.each_ref().map(|key| pending(key.consume(9)));
            let all = pending(join([(&keys[0], 1), (&keys[1], 1), (&other, 1)]));
            clock.advance(25 * SECOND);
            if pauses {
                other.pause_for(Duration::ZERO);
                global.tick();
            }
            drop(all);
            joint.iter_mut().for_each(|joint| drop(assert_ready_ok!(joint.poll())));
            assert!(plain.iter_mut().all(|claim| claim.poll().is_pending()));
        });
    }
}

/// From 5 s on the key mints the tokens of the joint claim.
#[test]
fn a_claim_of_a_key_does_not_pass_a_joint_claim_that_holds_the_key() {
    let (clock, _global, keyed) = pair(Quota::per_second(10), Quota::per_second(1).burst(5));
    let slow = limiter(&clock, Quota::new(1, 10 * SECOND).initial(0));
    let key = keyed.limiter(&1).unwrap();
    let mut joint = pending(join([(&key, 5), (&slow, 1)]));
    tick_after(&clock, &slow, 6 * SECOND);
    let mut plain = pending(key.consume(1));
    tick_after(&clock, &key, 3 * SECOND);
    assert!(plain.poll().is_pending());
    tick_after(&clock, &slow, SECOND);
    drop(assert_ready_ok!(joint.poll()));
    assert!(plain.poll().is_pending());
    tick_after(&clock, &key, SECOND);
    drop(assert_ready_ok!(plain.poll()));
}

/// From 5 s on the key mints the tokens of the joint claim. Its plain claim has no place in the parent's queue then, or is
/// found not to be ready.
#[test]
fn a_claim_of_a_key_leaves_the_parent_once_a_joint_claim_holds_the_key() {
    for is_late in [false, true] {
        let (clock, global, keyed) = pair(Quota::per_second(10), Quota::per_second(1).burst(5));
        let slow = limiter(&clock, Quota::new(1, 10 * SECOND).initial(0));
        let key = keyed.limiter(&1).unwrap();
        let _joint = pending(join([(&key, 5), (&slow, 1)]));
        clock.advance(4_900 * MILLI);
        drop(global.try_acquire(10).unwrap());
        let mut plain = pending(key.consume(5));
        let mut behind = pending(global.consume(1));
        if is_late {
            tick_after(&clock, &global, 500 * MILLI)
        } else {
            tick_after(&clock, &key, 100 * MILLI)
        }
        drop(assert_ready_ok!(behind.poll()));
        assert!(plain.poll().is_pending());
    }
}

/// The first installment of the joint claim comes back, but the bucket has no more space than without it.
#[test]
fn a_key_takes_tokens_beside_those_that_are_set_aside_for_a_joint_claim() {
    let clock = ManualClock::new();
    let global = Limiter::builder().quota(Quota::per_second(10)).classes().clock(clock.clone()).build().unwrap();
    let key = under(&global, &clock, Quota::per_second(100)).build().unwrap().limiter(&1).unwrap();
    let class = AnyLimiter::from(global.class("large", Share::weight(1)).unwrap());
    let slow = AnyLimiter::from(limiter(&clock, Quota::per_hour(1).initial(0)));
    let joint = pending(join([(&class, 15), (&slow, 1)]));
    tick_after(&clock, &global, SECOND);
    let mut claim = spawn(key.consume(10));
    if claim.poll().is_pending() {
        drop(assert_ready_ok!(claim.poll()));
    }
    drop(joint);
    assert_eq!(global.available(), 0);
}

#[test]
fn a_claim_of_nothing_does_not_wait_for_a_parent_in_debt() {
    for has_classes in [false, true] {
        let clock = ManualClock::new();
        let global = Limiter::builder().quota(Quota::per_second(10)).clock(clock.clone());
        let global = if has_classes { global.classes() } else { global }.build().unwrap();
        let key = under(&global, &clock, Quota::per_second(5)).build().unwrap().limiter(&1).unwrap();
        global.try_acquire(10).unwrap().settle(30);
        drop(key.consume(0).within(Duration::ZERO).now_or_never().unwrap().unwrap());
    }
}
