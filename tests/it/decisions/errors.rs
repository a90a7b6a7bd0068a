//! Errors: their texts and their sizes.

use super::*;
use std::error::Error;
use tokio_test::assert_ready_err;
use tollgate::{ConfigError, ConsumeError, Refused, ReleaseError};

/// Asserts that the text contains each of `words`, and that it fits into a sentence.
#[track_caller]
fn says(error: impl Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{text}` should contain `{word}`");
    }
    assert!(!text.ends_with('.') && !text.contains('\n'), "`{text}` must fit into another sentence");
}

#[test]
fn errors_of_consume_name_their_values_and_say_what_to_do() {
    says(ConsumeError::TooLarge { cost: 17, most: 5 }, &["17", "5", "ask for less"]);
    says(ConsumeError::Closed, &["closed"]);
    says(ConsumeError::QueueFull { waiting: 23 }, &["23", "max_waiting"]);
    says(too_late(21 * MILLI, 20 * MILLI), &["quota 0", "21ms", "20ms", "later"]);
    says(ConsumeError::TimedOut { waited: 20 * MILLI }, &["20ms"]);
    says(ConsumeError::NoRuntime, &["tokio runtime", "blocking_consume", "replenisher()"]);
}

#[test]
fn errors_of_try_acquire_name_their_values_and_say_what_to_do() {
    says(TryAcquireError::TooLarge { cost: 17, most: 5 }, &["17", "5", "consume"]);
    says(TryAcquireError::Closed, &["closed"]);
    let stand = Stand::built(Limiter::builder().quota(one_per_milli(9).initial(4)).max_in_flight(8));
    says(TryAcquireError::Denied(stand.denied(7)), &["quota 0", "4 tokens", "retry after 3ms"]);
    says(stand.denied(7), &["quota 0", "4 tokens", "retry after 3ms"]);
    stand.limiter.pause_for(5 * MILLI);
    says(stand.denied(1), &["pause", "retry after 5ms"]);
    let _line = stand.enter(1);
    says(stand.denied(2), &["queue", "0 tokens", "retry after 5ms"]);
    let capped = Stand::built(Limiter::builder().quota(one_per_milli(9).initial(4)).max_in_flight(2));
    let _held = capped.take(2);
    says(capped.denied(1), &["in-flight cap", "0 tokens", "replenished or released"]);
}

#[test]
fn a_named_quota_is_named_also_where_the_refusal_is_repeated() {
    let minute = one_per_milli(4).initial(1);
    let builder = Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("minute", minute).max_in_flight(5);
    let stand = Stand::built(builder);
    for _ in 0..3 {
        let denied = stand.denied(2);
        assert_eq!((denied.by, denied.quota_name()), (Bound::Quota(1), Some("minute")));
        says(denied, &["quota `minute`", "1 token", "retry after 1ms"]);
    }
    stand.limiter.pause_for(5 * MILLI);
    assert_eq!(stand.denied(1).quota_name(), None, "a pause has no quota");
    let unnamed = Stand::built(
        Limiter::builder().quota(one_per_milli(9).initial(1)).quota_named("m", one_per_milli(9).initial(9)),
    );
    assert_eq!((unnamed.denied(2).by, unnamed.denied(2).quota_name()), (Bound::Quota(0), None));
}

#[test]
fn a_claim_that_would_be_too_late_names_the_quota_that_it_would_wait_for() {
    let minute = one_per_milli(4).initial(1);
    let stand = Stand::built(Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("minute", minute));
    let refusal = |cost, allowed| {
        let error = assert_ready_err!(spawn(stand.limiter.consume(cost).within(allowed)).poll());
        (error, Refused::from(error).by(), Refused::from(error).quota_name())
    };
    let (error, by, name) = refusal(3, MILLI);
    assert_eq!((by, name), (Some(Bound::Quota(1)), Some("minute")));
    says(error, &["quota `minute`", "2ms", "1ms"]);
    // Behind waiters it is the quota that would grant it last, and not the queue.
    let _line = stand.enter(2);
    let (error, by, name) = refusal(8, MILLI);
    assert_eq!((by, name), (Some(Bound::Quota(1)), Some("minute")));
    says(error, &["quota `minute`", "9ms"]);
    stand.limiter.pause_for(20 * MILLI);
    let (error, by, name) = refusal(1, MILLI);
    assert_eq!((by, name), (Some(Bound::Pause), None));
    says(error, &["a pause", "20ms"]);
}

#[cfg(feature = "keyed")]
#[test]
fn a_refusal_by_the_parent_names_the_quota_of_the_parent() {
    use tollgate::KeyedLimiter;
    let stand = Stand::built(
        Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("upstream", one_per_milli(3).initial(3)),
    );
    let builder = KeyedLimiter::builder().quota(one_per_milli(5).initial(5)).clock(stand.clock.clone());
    let users = builder.parent(&stand.limiter).build().unwrap();
    let denied = |key: u8, cost| match users.try_acquire(&key, cost) {
        Err(TryAcquireError::Denied(denied)) => denied,
        other => panic!("{other:?}"),
    };
    let _taken = users.try_acquire(&1, 3).unwrap();
    // The key has enough tokens, the parent has not.
    let by_parent = denied(2, 2);
    assert_eq!((by_parent.by, by_parent.quota_name()), (Bound::Parent, Some("upstream")));
    says(by_parent, &["quota `upstream` of the parent limiter", "retry after 2ms"]);
    let too_late = |key: u8, cost| {
        let late = assert_ready_err!(spawn(users.consume(&key, cost).within(Duration::ZERO)).poll());
        (Refused::from(late).by().unwrap(), Refused::from(late).quota_name(), late)
    };
    let (by, name, late) = too_late(2, 2);
    assert_eq!((by, name), (Bound::Parent, Some("upstream")));
    says(late, &["quota `upstream` of the parent limiter", "2ms"]);
    // Neither has enough, and the parent's wait is longer.
    stand.limiter.set_quota("upstream", Quota::new(1, 10 * MILLI).burst(3)).unwrap();
    let by_both = denied(1, 3);
    assert_eq!((by_both.by, by_both.quota_name()), (Bound::Parent, Some("upstream")));
    assert_eq!(too_late(1, 3).0, Bound::Parent);
    // Only the key lacks tokens.
    stand.limiter.replenish(3);
    let by_key = denied(1, 3);
    assert_eq!((by_key.by, by_key.quota_name()), (Bound::Quota(0), None));
    assert_eq!(too_late(1, 3).0, Bound::Quota(0));
}

#[cfg(feature = "keyed")]
#[test]
fn a_quota_of_a_key_is_named_whether_callers_wait_for_the_key_or_not() {
    use tollgate::KeyedLimiter;
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(2));
    let users = builder.clock(tollgate::ManualClock::new()).build().unwrap();
    let denied = || match users.try_acquire(&1, 1) {
        Err(TryAcquireError::Denied(denied)) => (denied.by, denied.quota_name()),
        other => panic!("{other:?}"),
    };
    let too_late = || {
        let late = Refused::from(assert_ready_err!(spawn(users.consume(&1, 1).within(Duration::ZERO)).poll()));
        (late.by().unwrap(), late.quota_name())
    };
    let _taken = users.try_acquire(&1, 2).unwrap();
    assert_eq!(denied(), (Bound::Quota(1), Some("day")), "the key is a packed level");
    assert_eq!(too_late(), (Bound::Quota(1), Some("day")), "the key is a packed level");
    let mut waiting = tokio_test::task::spawn(users.consume(&1, 1));
    assert!(waiting.poll().is_pending());
    assert_eq!(denied(), (Bound::Queue, None), "the key has a queue");
    assert_eq!(too_late(), (Bound::Quota(1), Some("day")), "the key has a queue");
    drop(waiting);
    assert_eq!(denied(), (Bound::Quota(1), Some("day")), "the queue is empty again");
    users.set_quota([("hour", Quota::per_hour(1)), ("day", Quota::per_day(2))]).unwrap();
    assert_eq!(denied().1, Some("day"));
}

#[test]
fn errors_of_release_name_their_values_and_say_what_to_do() {
    says(ReleaseError::TooMuch { asked: 17, owed: 5 }, &["17", "5", "forgotten"]);
    says(ReleaseError::NotCapped, &["max_in_flight"]);
}

#[test]
fn errors_of_configuration_name_the_field_and_say_what_to_write_instead() {
    let refused = |builder: Builder| builder.build().unwrap_err();
    let quota = |quota: Quota| refused(Limiter::builder().quota(Quota::per_second(1)).quota(quota));
    says(refused(Limiter::builder()), &["quota", ".quota(Quota::per_second(100))"]);
    says(quota(Quota::per_second(0)), &["quota 1", "amount", "0", "at least 1"]);
    says(quota(Quota::new(1, Duration::ZERO)), &["quota 1", "period", "0ns", "1 ns"]);
    says(quota(Quota::new(1, Duration::MAX)), &["quota 1", "period", "584 years"]);
    says(quota(Quota::per_second(1).burst(0)), &["quota 1", "burst of 0", "between 1 and"]);
    says(quota(Quota::manual(0)), &["quota 1", "burst of 0"]);
    says(quota(Quota::per_second(1 << 62)), &["quota 1", "burst of 4611686018427387904", "2305843009213693952"]);
    says(quota(Quota::per_second(7).burst(3).stepped()), &["quota 1", "7", "3", "raise the burst to 7"]);
    says(quota(Quota::per_second(7).initial(9)), &["quota 1", "9", "at most 7"]);
    says(refused(Limiter::builder().quota(Quota::per_second(1)).max_in_flight(0)), &["max_in_flight is 0", "1"]);
    let twice = Limiter::builder().quota_named("api", Quota::per_second(1)).quota_named("api", Quota::per_hour(1));
    says(refused(twice), &["`api`", "its own name"]);
    let limiter = Limiter::new(Quota::per_second(1)).unwrap();
    says(limiter.set_quota(3, Quota::per_second(1)).unwrap_err(), &["quota 3", "1", "from 0"]);
    says(limiter.set_quota("web", Quota::per_second(1)).unwrap_err(), &["`web`", "quota_named"]);
    says(limiter.set_max_in_flight(1).unwrap_err(), &["max_in_flight"]);
    says("100 each s".parse::<Quota>().unwrap_err(), &["`100 each s`", "100/s, burst 20"]);
}

#[test]
fn a_denial_is_the_source_of_its_error_and_converts_into_it() {
    let stand = Stand::new(one_per_milli(9));
    let denied = stand.denied(2);
    assert_eq!(TryAcquireError::from(denied), stand.limiter.try_acquire(2).unwrap_err());
    let boxed: Box<dyn Error + Send + Sync> = stand.limiter.try_acquire(2).unwrap_err().into();
    assert!(boxed.downcast_ref::<TryAcquireError>().is_some());
}

#[test]
fn refusals_are_small_plain_values() {
    fn plain<T: Copy + Send + Sync + Eq + std::fmt::Debug + Error + 'static>(most: usize) {
        assert!(size_of::<T>() <= most, "{} takes {} bytes", std::any::type_name::<T>(), size_of::<T>());
    }
    plain::<ConsumeError>(64);
    plain::<TryAcquireError>(48);
    plain::<Denied>(48);
    plain::<ReleaseError>(24);
    fn shared<T: Clone + Send + Sync + Eq + std::fmt::Debug + Error + 'static>() {}
    shared::<ConfigError>();
}
