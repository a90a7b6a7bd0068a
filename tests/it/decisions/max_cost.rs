//! `max_cost`: no call with a larger cost is granted or waits, and no grant is charged more.

use super::*;

/// A burst of 100 tokens, and at most 10 for a call.
fn bounded(change: fn(Builder) -> Builder) -> Fixture {
    Fixture::built(change(Limiter::builder().quota(Quota::new(1, MILLI).burst(100)).max_cost(10)))
}

fn too_large(cost: u64) -> ConsumeError {
    crate::fixture::too_large(cost, 10, Bound::MaxCost)
}

fn too_large_at_once(cost: u64) -> TryAcquireError {
    TryAcquireError::TooLarge { cost, most: 10, by: Bound::MaxCost, quota_name: None }
}

#[test]
fn a_cost_above_it_is_refused_whether_the_tokens_are_there_or_not() {
    let Fixture { limiter, clock } =
        &Fixture::built(Limiter::builder().quota(Quota::new(1, NANO).burst(6_400)).max_cost(10));
    for round in 0..30 {
        for cost in [11, 100, 1 << 40, u64::MAX] {
            assert_eq!(limiter.try_acquire(cost).map(drop), Err(too_large_at_once(cost)), "round {round}");
            assert_eq!(assert_ready_err!(spawn(limiter.consume(cost)).poll()), too_large(cost));
            assert!(limiter.consume(cost).try_now().is_err());
            assert_eq!(limiter.blocking_consume(cost).map(drop), Err(too_large(cost)));
            assert_eq!(limiter.estimate(cost), None);
        }
        // A limiter that grants tokens at this pace lets claims pass without the lock, if it has no such bound.
        for _ in 0..10 {
            assert!(limiter.try_acquire(10).is_ok());
            clock.advance(100 * NANO);
        }
    }
    limiter.pause_for(MILLI);
    let _waiting = pending(limiter.consume(10));
    assert_eq!(assert_ready_err!(spawn(limiter.consume(11)).poll()), too_large(11));
    let says = "a cost of 11 can never be granted, the most is 10 (`max_cost`): ask for less at a time";
    assert_eq!(too_large(11).to_string(), says);
}

#[test]
fn it_holds_for_classes_and_joint_claims() {
    let Fixture { limiter, .. } = &bounded(Builder::classes);
    let class = limiter.class("a", Share::weight(1)).unwrap();
    assert_eq!(class.try_acquire(11).map(drop), Err(too_large_at_once(11)));
    assert_eq!(assert_ready_err!(spawn(class.consume(11)).poll()), too_large(11));
    let Fixture { limiter: other, .. } = &bounded(|builder| builder);
    let error = assert_ready_err!(spawn(join([(limiter, 1), (other, 11)])).poll());
    assert!(error.to_string().contains("`max_cost`"), "{error}");
    assert!(try_join([(limiter, 1), (other, 11)]).is_err());
    assert!(try_join([(limiter, 11), (other, 1)]).is_err());
    assert_eq!((limiter.available(), other.available()), (100, 100));
    let mut grant = class.try_acquire(10).unwrap();
    for _ in 0..2 {
        grant.settle(11);
        assert_eq!((grant.cost(), limiter.available()), (10, 90));
    }
}

#[test]
fn a_grant_that_is_settled_for_more_is_charged_no_more() {
    let Fixture { limiter, .. } = &bounded(|builder| builder.max_in_flight(50));
    let mut grant = limiter.try_acquire(4).unwrap();
    grant.settle(u64::MAX);
    assert_eq!((grant.cost(), limiter.available(), limiter.deficiency()), (10, 40, 0));
    grant.grow(u64::MAX);
    assert_eq!(grant.cost(), 10);
    grant.settle(3);
    assert_eq!((grant.cost(), limiter.available()), (3, 47));
    // Growth that waits is a claim of its own.
    assert_ready_ok!(spawn(grant.grow_within(10)).poll());
    assert_eq!(assert_ready_err!(spawn(grant.grow_within(11)).poll()), too_large(11));
    grant.settle(20);
    assert_eq!(grant.cost(), 13, "what it costs already");
}

#[test]
fn a_limiter_that_would_grant_nothing_is_not_built() {
    let builder = Limiter::builder().quota(Quota::per_second(1));
    assert_eq!(builder.max_cost(0).build().err(), Some(ConfigError::ZeroMaxCost));
}

mod keys {
    use super::*;
    use tollgate::{KeyedBuilder, KeyedLimiter, ManualClock};

    fn users(change: impl Fn(KeyedBuilder<u32>) -> KeyedBuilder<u32>) -> KeyedLimiter<u32> {
        let builder = KeyedLimiter::builder().quota(Quota::per_second(100)).clock(ManualClock::new());
        change(builder).build().unwrap()
    }

    #[test]
    fn a_cost_above_it_is_refused_for_each_key() {
        let ranked = |builder: KeyedBuilder<u32>| builder.top(Duration::from_secs(1));
        let capped = |builder: KeyedBuilder<u32>| builder.max_in_flight(50);
        for users in [
            users(|builder| builder.max_cost(10)),
            users(|builder| ranked(builder).max_cost(10)),
            users(|builder| capped(builder).max_cost(10)),
            users(|builder| builder.dry_run().max_cost(10)),
        ] {
            // The key is new, then in memory, then has a queue.
            for _ in 0..2 {
                for cost in [11, 100, 1 << 40, u64::MAX] {
                    assert_eq!(users.try_acquire(&1, cost).map(drop), Err(too_large_at_once(cost)));
                    assert_eq!(assert_ready_err!(spawn(users.consume(&1, cost)).poll()), too_large(cost));
                    assert_eq!(users.estimate(&1, cost), None);
                }
                drop(users.try_acquire(&1, 3).unwrap());
            }
            let mut grant = users.try_acquire(&2, 4).unwrap();
            grant.settle(&2, u64::MAX);
            assert_eq!(grant.cost(), 10);
            users.pause_for(&1, Duration::from_secs(1));
            let _waiting = pending(users.consume(&1, 10));
            assert_eq!(assert_ready_err!(spawn(users.consume(&1, 11)).poll()), too_large(11));
        }
    }

    #[test]
    fn keys_obey_that_of_their_parent() {
        for has_classes in [false, true] {
            let clock = ManualClock::new();
            let parent = Limiter::builder().quota(Quota::per_second(100)).max_cost(10).clock(clock.clone());
            let parent = if has_classes { parent.classes() } else { parent }.build().unwrap();
            let users =
                KeyedLimiter::builder().quota(Quota::per_second(100)).clock(clock).parent(&parent).build().unwrap();
            for _ in 0..2 {
                let refused = TryAcquireError::TooLarge { cost: 11, most: 10, by: Bound::Parent, quota_name: None };
                assert_eq!(users.try_acquire(&1, 11).map(drop), Err(refused));
                let refused = ConsumeError::TooLarge { cost: 11, most: 10, by: Some(Bound::Parent), quota_name: None };
                assert_eq!(assert_ready_err!(spawn(users.consume(&1, 11)).poll()), refused);
                drop(users.try_acquire(&1, 1).unwrap());
            }
            let mut grant = users.try_acquire(&2, 4).unwrap();
            grant.settle(&2, 50);
            assert_eq!((grant.cost(), parent.available()), (50, 88), "it is bounded in the parent alone");
        }
    }

    #[test]
    fn a_parent_is_charged_no_more_than_the_key() {
        for has_waited in [false, true] {
            let (parent, clock) = built(Limiter::builder().quota(Quota::per_second(100)));
            let users = KeyedLimiter::builder().quota(Quota::per_second(10)).max_cost(10).clock(clock.clone());
            let users = users.parent(&parent).build().unwrap();
            let mut grant = users.try_acquire(&1, 4).unwrap();
            if has_waited {
                drop(spawn(users.consume(&1, 10)).poll());
            }
            grant.settle(&1, u64::MAX);
            assert_eq!((grant.cost(), parent.available()), (10, 90));
        }
    }
}
