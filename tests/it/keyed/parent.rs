//! A parent limiter of all keys: a claim takes from both or neither, and keys take turns in the parent.

mod drivers;
mod joined;
mod queue;

use crate::fixture::*;
use tollgate::ReleaseError;

/// A keyed limiter with the parent `global`, on its clock.
fn under(global: &Limiter, clock: &ManualClock, quota: Quota) -> KeyedBuilder<u32> {
    KeyedLimiter::builder().quota(quota).clock(clock.clone()).parent(global)
}

fn limiter(clock: &ManualClock, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap()
}

/// A parent limiter and the keys under it.
fn pair(parent: Quota, key: Quota) -> (ManualClock, Limiter, KeyedLimiter<u32>) {
    let clock = ManualClock::new();
    let global = limiter(&clock, parent);
    let keyed = under(&global, &clock, key).build().unwrap();
    (clock, global, keyed)
}

#[test]
fn a_grant_takes_from_both_and_a_refusal_from_neither() {
    let (clock, global, keyed) = pair(Quota::per_second(10).burst(5), Quota::per_second(1).burst(3));
    drop(keyed.try_acquire(&1, 3).unwrap());
    assert_eq!((keyed.available(&1), global.available()), (0, 2));
    // The key refuses, and the parent keeps its tokens.
    let refusal = denied(keyed.try_acquire(&1, 1));
    assert_eq!((refusal.by, refusal.remaining, refusal.retry_after), (Bound::Quota(0), 0, Some(SECOND)));
    assert_eq!(global.available(), 2);
    // The parent refuses, and the key keeps its tokens.
    let refusal = denied(keyed.try_acquire(&2, 3));
    assert_eq!((refusal.by, refusal.remaining, refusal.retry_after), (Bound::Parent, 2, Some(100 * MILLI)));
    assert_eq!(keyed.available(&2), 2, "as much as the parent has");
    clock.advance(SECOND);
    assert_eq!((keyed.available(&1), keyed.available(&2), global.available()), (1, 3, 5));
    drop(keyed.try_acquire(&2, 3).unwrap());
    drop(keyed.try_acquire(&3, 2).unwrap());
    assert_eq!(denied(keyed.try_acquire(&3, 1)).by, Bound::Parent);
    assert_eq!(keyed.snapshot().keys, 3, "a key that was refused before it took anything is not kept");
}

#[test]
fn without_a_quota_a_key_that_does_not_wait_takes_no_memory() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_second(10).burst(1_000));
    let keyed = KeyedLimiter::builder().clock(clock.clone()).parent(&global).max_keys(2).build().unwrap();
    for key in 0..500 {
        assert_eq!(keyed.try_acquire(&key, 1).unwrap().remaining(), (1 << 48) - 1);
        drop(keyed.consume(&key, 1).now_or_never().unwrap().unwrap());
    }
    assert_eq!((keyed.snapshot().keys, keyed.snapshot().granted, global.available()), (0, 1_000, 0));
    assert_eq!(denied(keyed.try_acquire(&1, 1)).by, Bound::Parent);
    // No claim is too large for a key without a quota up to the largest that there is: the parent decides.
    for (cost, by) in [(1 << 48, Bound::Parent), ((1 << 48) + 1, Bound::Quota(0))] {
        let refusal = keyed.try_acquire(&1, cost).map(drop);
        assert!(matches!(refusal, Err(TryAcquireError::TooLarge { by: seen, .. }) if seen == by), "{refusal:?}");
    }
    // A key that waits has its queue as ever.
    let claims: Vec<_> = (0..2).map(|_| task::spawn(keyed.consume(&1, 1))).collect();
    let mut claims = claims.into_iter().map(|mut claim| (claim.poll().is_pending(), claim));
    let (mut first, mut second) = (claims.next().unwrap(), claims.next().unwrap());
    assert!(first.0 && second.0 && keyed.snapshot().keys == 1);
    tick_after(&clock, &global, 100 * MILLI);
    assert!(first.1.poll().is_ready() && second.1.poll().is_pending());
}

#[test]
fn a_quota_as_large_as_that_of_no_quota_still_refuses() {
    let clock = ManualClock::new();
    let quota = Quota::new(1 << 24, NANO).burst(1 << 48);
    let keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    drop(keyed.try_acquire(&1, 1 << 48).unwrap());
    assert!(keyed.try_acquire(&1, 1).is_err());
    clock.advance(NANO);
    assert!(keyed.try_acquire(&1, 1 << 24).is_ok());
}

#[test]
fn a_refusal_tells_what_of_the_parent_refused() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(10)).max_in_flight(2).clock(clock.clone());
    let global = builder.build().unwrap();
    let keyed = under(&global, &clock, Quota::per_second(10)).build().unwrap();
    let too_late = |key| match task::spawn(keyed.consume(&key, 1).within(Duration::ZERO)).poll().map(|it| it.map(drop))
    {
        Poll::Ready(Err(ConsumeError::TooLate { by, .. })) => by,
        other => panic!("{other:?}"),
    };
    let held = keyed.try_acquire(&1, 2).unwrap();
    let by_cap = denied(keyed.try_acquire(&2, 1));
    assert_eq!((by_cap.by, by_cap.quota_name()), (Bound::ParentInFlight, None));
    assert!(by_cap.to_string().starts_with("denied by the in-flight cap of the parent limiter"), "{by_cap}");
    drop(held);
    // The cap has place for one token more, and a claim of two waits for it.
    let held = global.try_acquire(1).unwrap();
    let waiting = pending(global.consume(2));
    assert_eq!(denied(keyed.try_acquire(&2, 1)).by, Bound::ParentQueue);
    drop((waiting, held));
    global.pause_for(SECOND);
    let by_pause = denied(keyed.try_acquire(&2, 1));
    assert_eq!((by_pause.by, by_pause.retry_after), (Bound::ParentPause, Some(SECOND)));
    assert!(by_pause.to_string().contains("a pause of the parent limiter"), "{by_pause}");
    assert_eq!(too_late(2), Bound::ParentPause);
    assert_eq!(too_late(1), Bound::ParentPause, "of a key that has given tokens already");
    clock.advance(SECOND);
    drop(global.try_acquire(2).unwrap());
    assert!([2, 3].iter().all(|key| keyed.try_acquire(key, 1).is_ok()), "the parent is free again");
}

#[test]
fn the_hint_of_a_denial_holds_for_both() {
    let (clock, _global, keyed) = pair(Quota::per_second(2).burst(4), Quota::per_second(1).burst(3));
    for cost in 1..=3 {
        for (ahead, other) in [(3, 1), (1, 3), (2, 2)] {
            drop(keyed.try_acquire(&1, ahead).unwrap());
            drop(keyed.try_acquire(&2, other).unwrap());
            if let Err(TryAcquireError::Denied(denial)) = keyed.try_acquire(&1, cost).map(drop) {
                let wait = denial.retry_after.expect("the denial has a retry_after");
                assert_eq!(keyed.estimate(&1, cost), Some(wait));
                clock.advance(wait - Duration::from_nanos(1));
                assert!(keyed.try_acquire(&1, cost).is_err(), "no shorter wait helps");
                clock.advance(Duration::from_nanos(1));
                assert!(keyed.try_acquire(&1, cost).is_ok(), "this one does");
            }
            clock.advance(10 * SECOND);
        }
    }
}

#[test]
fn closing_the_global_limiter_closes_all_keys() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::per_second(1).burst(1));
    drop(keyed.try_acquire(&1, 1).unwrap());
    // One claim waits for its key, one in the parent's queue, one behind that.
    let mut claims: Vec<_> = [1, 2, 2].iter().map(|key| pending(keyed.consume(key, 1))).collect();
    global.close();
    for claim in &mut claims {
        assert!(claim.is_woken());
        let Poll::Ready(Err(error)) = claim.poll() else { panic!("the limiter is closed") };
        assert_eq!(error, ConsumeError::Closed);
    }
    assert_eq!(keyed.try_acquire(&9, 1).map(drop), Err(TryAcquireError::Closed));
    assert!(keyed.snapshot().closed);
    let late = under(&global, &clock, Quota::per_second(1).burst(1)).build().unwrap();
    assert_eq!(late.try_acquire(&9, 1).map(drop), Err(TryAcquireError::Closed));
}

#[test]
fn closing_the_keyed_limiter_leaves_the_queue_of_the_parent() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::per_second(1).burst(1));
    drop(global.try_acquire(1).unwrap());
    let mut claims: Vec<_> = [1, 2, 2].iter().map(|key| pending(keyed.consume(key, 1))).collect();
    let mut behind = pending(global.consume(1));
    keyed.close();
    for claim in &mut claims {
        assert!(matches!(claim.poll(), Poll::Ready(Err(ConsumeError::Closed))));
    }
    assert_eq!(global.snapshot().waiting_tasks, 1);
    tick_after(&clock, &global, SECOND);
    assert!(behind.is_woken() && behind.poll().is_ready());
}

#[test]
fn a_pause_and_a_new_quota_of_the_global_limiter_time_all_keys_anew() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::per_second(10).burst(5));
    global.pause_for(10 * SECOND);
    assert_eq!(denied(keyed.try_acquire(&1, 1)).retry_after, Some(10 * SECOND));
    let mut claims: Vec<_> = [1, 2, 1].iter().map(|key| pending(keyed.consume(key, 1))).collect();
    tick_after(&clock, &keyed, 10 * SECOND);
    assert_eq!(woken(&claims), 1);
    global.set_quota(0, Quota::per_second(10).burst(1)).unwrap();
    tick_after(&clock, &keyed, 100 * MILLI);
    assert_eq!(woken(&claims), 2);
    tick_after(&clock, &keyed, 100 * MILLI);
    assert!(claims.iter_mut().all(|claim| claim.is_woken() && claim.poll().is_ready()));
}

#[test]
fn tokens_in_flight_are_released_in_both() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(100)).max_in_flight(3).clock(clock.clone());
    let global = builder.build().unwrap();
    for cap in [None, Some(2)] {
        let builder = under(&global, &clock, Quota::per_second(100));
        let keyed = if let Some(cap) = cap { builder.max_in_flight(cap) } else { builder }.build().unwrap();
        let held = keyed.try_acquire(&1, 2).unwrap();
        assert_eq!(global.snapshot().in_flight, Some(2));
        let refusal = denied(keyed.try_acquire(&2, 2));
        assert_eq!((refusal.by, refusal.retry_after, refusal.remaining), (Bound::ParentInFlight, None, 1));
        let mut waiting = pending(keyed.consume(&2, 2));
        drop(held);
        assert!(waiting.is_woken());
        let Poll::Ready(Ok(mut grant)) = waiting.poll() else { panic!("the token was released") };
        grant.settle(&2, 1);
        assert_eq!(global.snapshot().in_flight, Some(1));
        grant.forget();
        assert_eq!(global.snapshot().in_flight, Some(1));
        assert_eq!(keyed.release(&2, 2), Err(ReleaseError::TooMuch { asked: 2, owed: 1 }));
        if cap.is_some() {
            assert!(keyed.release(&7, 1).is_err(), "that key has no tokens in flight");
        } else {
            assert_eq!(global.snapshot().in_flight, Some(1));
        }
        keyed.release(&2, 1).unwrap();
        assert_eq!(global.snapshot().in_flight, Some(0));
        clock.advance(SECOND);
    }
}

#[test]
fn new_keys_refused_by_a_full_map_do_not_affect_the_parent() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_second(1).burst(5));
    let keyed = under(&global, &clock, Quota::per_hour(1).burst(1)).max_keys(2).build().unwrap();
    assert!(keyed.try_acquire(&1, 1).is_ok() && keyed.try_acquire(&2, 1).is_ok());
    for newcomer in 3..100 {
        assert_eq!(keyed.try_acquire(&newcomer, 1).map(drop), Err(TryAcquireError::TooManyKeys { most: 2 }));
    }
    assert_eq!(global.snapshot().granted, 2, "no token was taken and refunded");
}

#[test]
fn a_key_refused_by_the_parent_frees_its_entry() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_hour(1).burst(1));
    let keyed = under(&global, &clock, Quota::per_second(1).burst(1)).max_keys(3).build().unwrap();
    drop(global.try_acquire(1).unwrap());
    // Each of them finds a token of its own, and none in the parent.
    for key in 0..1_000 {
        assert_eq!(denied(keyed.try_acquire(&key, 1)).by, Bound::Parent);
        assert!(keyed.consume(&key, 1).now_or_never().is_none());
    }
    clock.advance(3_600 * SECOND);
    assert!(keyed.try_acquire(&5_000, 1).is_ok());
}

/// Each of them has its own tokens in the same instant, and together they claim more than the positions can represent.
#[test]
fn giants_of_many_keys_do_not_overrun_the_queue_of_the_parent() {
    const GIANT: u64 = 1 << 48;
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::new(GIANT, SECOND).burst(1));
    drop(global.try_acquire(1).unwrap());
    let keys: Vec<u32> = (0..33_000).collect();
    let mut claims: Vec<_> = keys.iter().map(|key| pending(keyed.consume(key, GIANT))).collect();
    tick_after(&clock, &keyed, SECOND);
    assert!(global.try_acquire(1).is_err(), "other claims wait");
    let answers: Vec<_> = claims.iter_mut().map(|claim| claim.poll()).collect();
    let turned_away = answers.iter().filter(|answer| match answer {
        Poll::Ready(Err(ConsumeError::TooLarge { cost: GIANT, most, .. })) => *most < GIANT,
        Poll::Ready(other) => panic!("{other:?}"),
        Poll::Pending => false,
    });
    assert_eq!(turned_away.count(), 33_000 - (1 << 14), "the rest waits");
    drop(claims);
    assert_eq!((global.snapshot().waiting_tasks, global.snapshot().granted), (0, 1));
}

/// The parent is held for a joint claim. The tokens it mints meanwhile are kept up to its burst, from the instant at
/// which that claim passes, unless an unrelated call serves it in between.
#[test]
fn a_claim_cancelled_before_its_proxy_costs_the_parent_nothing() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_second(1).burst(1));
    let other = limiter(&clock, Quota::new(1, 2 * SECOND).burst(1).initial(0));
    let keyed = under(&global, &clock, Quota::per_hour(1).burst(1)).build().unwrap();
    drop(keyed.try_acquire(&1, 1).unwrap());
    let mut both = pending(join([(&global, 1), (&other, 1)]));
    let leaves = pending(keyed.consume(&1, 1));
    tick_after(&clock, &global, SECOND);
    clock.advance(3 * SECOND);
    drop(leaves);
    other.tick();
    assert!(both.is_woken() && both.poll().is_ready(), "at 2 s");
    assert_eq!(global.available(), 1, "of 3 s");
}

#[test]
fn a_key_that_withdraws_its_proxy_lets_any_number_pass() {
    let (_clock, global, keyed) = pair(Quota::per_second(1).burst(200), Quota::per_second(1).burst(200));
    drop(global.try_acquire(50).unwrap());
    let giant = pending(keyed.consume(&1, 200));
    let waiters: Vec<_> = (0..150).map(|_| pending(global.consume(1))).collect();
    drop(giant);
    assert!(waiters.iter().all(|claim| claim.is_woken()));
}

#[test]
fn an_estimate_counts_tokens_lost_in_the_parent_until_the_key_is_ready() {
    let (clock, _global, keyed) = pair(Quota::per_second(1).burst(10), Quota::new(1, 10 * SECOND).burst(20));
    drop(keyed.try_acquire(&1, 9).unwrap());
    // The key has 11 tokens, and 15 in 40 s. By then the parent has 10, which it has from the ninth second on.
    assert_eq!(keyed.estimate(&1, 15), Some(45 * SECOND));
    let claim = pending(keyed.consume(&1, 15));
    // No timer is late.
    for wait in [40 * SECOND, 5 * SECOND - NANO, NANO] {
        assert!(!claim.is_woken());
        tick_after(&clock, &keyed, wait);
    }
    assert!(claim.is_woken());
}

#[test]
fn a_cost_above_the_parents_maximum_is_too_large_for_every_key() {
    let (_clock, _global, keyed) = pair(Quota::per_second(1).burst(5), Quota::per_hour(1).burst(8));
    drop(keyed.try_acquire(&1, 4).unwrap());
    let refusal = denied(keyed.try_acquire(&1, 5));
    assert_eq!((refusal.by, refusal.retry_after), (Bound::Quota(0), Some(3_600 * SECOND)));
    let too_large = |cost, most, by| Err(TryAcquireError::TooLarge { cost, most, by, quota_name: None });
    assert_eq!(keyed.try_acquire(&1, 6).map(drop), too_large(6, 5, Bound::Parent));
    keyed.set_quota(Quota::per_hour(1).burst(3)).unwrap();
    assert_eq!(keyed.try_acquire(&1, 4).map(drop), too_large(4, 3, Bound::Quota(0)));
}

#[test]
fn within_counts_the_wait_in_the_parent_to_the_nanosecond() {
    let (_clock, global, keyed) = pair(Quota::per_second(1).burst(1), Quota::per_second(9));
    drop(global.try_acquire(1).unwrap());
    let claim = |allowed| task::spawn(keyed.consume(&1, 1).within(allowed)).poll().map(|answer| answer.map(drop));
    let too_late =
        ConsumeError::TooLate { estimate: SECOND, allowed: SECOND - NANO, by: Bound::Parent, quota_name: None };
    assert_eq!(claim(SECOND - NANO), Poll::Ready(Err(too_late)));
    assert_eq!(claim(SECOND), Poll::Pending);
    assert_eq!(claim(2 * SECOND), Poll::Pending);
}

#[test]
fn within_names_the_quota_of_the_key_that_is_slower_than_the_parent() {
    let (_clock, _global, keyed) = pair(Quota::per_second(9), Quota::per_second(1).burst(1));
    drop(keyed.try_acquire(&1, 1).unwrap());
    // A claim has waited for the key: it has a queue of its own.
    drop(pending(keyed.consume(&1, 1)));
    let claim = |allowed| task::spawn(keyed.consume(&1, 1).within(allowed)).poll().map(|answer| answer.map(drop));
    let (estimate, allowed) = (SECOND, SECOND - NANO);
    let too_late = ConsumeError::TooLate { estimate, allowed, by: Bound::Quota(0), quota_name: None };
    assert_eq!(claim(allowed), Poll::Ready(Err(too_late)));
    assert_eq!(claim(estimate), Poll::Pending);
}

#[test]
fn a_key_that_is_paused_goes_to_the_end_of_the_queue_of_its_parent() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(1).initial(0), Quota::per_second(1));
    let [mut paused, mut other] = [&1, &2].map(|key| pending(keyed.consume(key, 1)));
    keyed.pause_for(&1, MILLI);
    tick_after(&clock, &global, MILLI);
    keyed.tick();
    tick_after(&clock, &global, SECOND);
    drop(assert_ready_ok!(other.poll()));
    assert!(paused.poll().is_pending());
    tick_after(&clock, &global, SECOND);
    drop(assert_ready_ok!(paused.poll()));
}
