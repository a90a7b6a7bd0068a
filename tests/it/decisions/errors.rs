//! Errors: their texts and their sizes.

use super::*;
use std::error::Error;
use tollgate::{Refused, ReleaseError};

/// Asserts that the text contains each of `words`, and that it fits into a sentence.
#[track_caller]
fn says(error: impl Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{text}` should contain `{word}`");
    }
    assert!(!text.ends_with('.') && !text.contains('\n'), "`{text}` must fit into another sentence");
}

/// Asserts by what a call was refused, the name of that bound, and what the text contains.
#[track_caller]
fn names(error: impl Into<Refused>, by: Bound, name: Option<&str>, words: &[&str]) {
    let refused = error.into();
    assert_eq!((refused.by(), refused.quota_name()), (Some(by), name), "{refused}");
    says(refused, words);
}

#[test]
fn errors_of_consume_name_their_values_and_say_what_to_do() {
    says(too_large(17, 5, Bound::InFlight), &["17", "5", "ask for less"]);
    says(ConsumeError::Closed, &["closed"]);
    says(ConsumeError::QueueFull { waiting: 23 }, &["23", "max_waiting"]);
    says(too_late(21 * MILLI, 20 * MILLI), &["quota 0", "21ms", "20ms", "later"]);
    let timed_out = ConsumeError::TimedOut { waited: 20 * MILLI, by: Bound::InFlight, quota_name: None };
    says(timed_out, &["after a wait of 20ms", "the in-flight cap"]);
    says(ConsumeError::NoRuntime, &["tokio runtime", "blocking_consume", "replenisher()"]);
}

#[test]
fn errors_of_try_acquire_name_their_values_and_say_what_to_do() {
    says(
        TryAcquireError::TooLarge { cost: 17, most: 5, by: Bound::Quota(0), quota_name: None },
        &["17", "5", "consume"],
    );
    says(TryAcquireError::Closed, &["closed"]);
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(4)).max_in_flight(8));
    says(TryAcquireError::Denied(fixture.denied(7)), &["quota 0", "4 tokens", "retry after 3ms"]);
    says(fixture.denied(7), &["quota 0", "4 tokens", "retry after 3ms"]);
    fixture.limiter.pause_for(5 * MILLI);
    says(fixture.denied(1), &["pause", "retry after 5ms"]);
    let _waiters = fixture.enter(1);
    says(fixture.denied(2), &["queue", "0 tokens", "retry after 5ms"]);
    let capped = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(4)).max_in_flight(2));
    let _held = capped.take(2);
    says(capped.denied(1), &["in-flight cap", "0 tokens", "replenished or released"]);
}

#[test]
fn a_named_quota_is_named_also_where_the_refusal_is_repeated() {
    let minute = one_per_milli(4).initial(1);
    let builder = Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("minute", minute).max_in_flight(5);
    let fixture = Fixture::built(builder);
    for _ in 0..3 {
        names(fixture.denied(2), Bound::Quota(1), Some("minute"), &["quota `minute`", "1 token", "retry after 1ms"]);
    }
    fixture.limiter.pause_for(5 * MILLI);
    names(fixture.denied(1), Bound::Pause, None, &[]);
    let builder = Limiter::builder().quota(one_per_milli(9).initial(1)).quota_named("m", one_per_milli(9).initial(9));
    names(Fixture::built(builder).denied(2), Bound::Quota(0), None, &[]);
}

#[test]
fn a_claim_that_would_be_too_late_names_the_quota_that_it_would_wait_for() {
    let minute = one_per_milli(4).initial(1);
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("minute", minute));
    let refusal = |cost| assert_ready_err!(spawn(fixture.limiter.consume(cost).within(MILLI)).poll());
    names(refusal(3), Bound::Quota(1), Some("minute"), &["quota `minute`", "2ms", "1ms"]);
    // Behind waiters it is the quota that would grant it last, and not the queue.
    let _waiters = fixture.enter(2);
    names(refusal(8), Bound::Quota(1), Some("minute"), &["quota `minute`", "9ms"]);
    fixture.limiter.pause_for(20 * MILLI);
    names(refusal(1), Bound::Pause, None, &["a pause", "20ms"]);
}

#[test]
fn a_cost_that_is_too_large_names_the_bound_that_allows_no_more() {
    let builder = || Limiter::builder().quota(one_per_milli(9)).quota_named("minute", one_per_milli(4));
    let uncapped = Fixture::built(builder());
    let refused = uncapped.limiter.try_acquire(5).unwrap_err();
    names(refused, Bound::Quota(1), Some("minute"), &["the most is 4 (quota `minute`)"]);
    let capped = Fixture::built(builder().max_in_flight(3));
    let refused = capped.limiter.try_acquire(5).unwrap_err();
    names(refused, Bound::InFlight, None, &["the most is 3 (the in-flight cap)"]);
    names(assert_ready_err!(spawn(capped.limiter.consume(4)).poll()), Bound::InFlight, None, &[]);
    let refused = Refused::from(assert_ready_err!(spawn(uncapped.limiter.consume(u64::MAX)).poll()));
    assert_eq!((refused.by(), refused.quota_name()), (None, None), "no claim can be so large");
}

#[test]
fn a_claim_that_timed_out_names_the_bound_that_held_it_back() {
    let timed_out = |change: fn(&Limiter)| {
        let builder =
            Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("minute", one_per_milli(4).initial(4));
        let fixture = Fixture::built(builder.max_in_flight(6));
        let _held = fixture.limiter.try_acquire(3).unwrap();
        let mut ahead = spawn(fixture.limiter.consume(2));
        let mut late = spawn(fixture.limiter.consume(1).within(3 * MILLI));
        assert!(ahead.poll().is_pending() && late.poll().is_pending());
        change(&fixture.limiter);
        fixture.clock.advance(3 * MILLI);
        assert_ready_err!(late.poll())
    };
    let slowed = timed_out(|limiter| limiter.set_quota("minute", Quota::per_minute(1)).unwrap());
    names(slowed, Bound::Quota(1), Some("minute"), &["delayed by quota `minute`"]);
    names(timed_out(|limiter| limiter.pause_for(9 * MILLI)), Bound::Pause, None, &[]);
    names(timed_out(|limiter| limiter.set_max_in_flight(4).unwrap()), Bound::InFlight, None, &[]);
}

#[test]
fn a_refusal_by_a_ceiling_names_the_class_that_has_it() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::per_second(100)).classes());
    let bulk = fixture.limiter.class("bulk", Share::weight(1).ceiling(Quota::per_minute(60).burst(2))).unwrap();
    let nightly = bulk.class("nightly", Share::weight(1).ceiling(Quota::per_second(50).burst(9))).unwrap();
    let by_bulk = |error: Refused, words: &[&str]| names(error, Bound::Ceiling, Some("bulk"), words);
    by_bulk(nightly.try_acquire(3).unwrap_err().into(), &["the most is 2 (the ceiling of class `bulk`)"]);
    let _grant = nightly.try_acquire(2).unwrap();
    for _ in 0..2 {
        by_bulk(nightly.try_acquire(1).unwrap_err().into(), &["denied by the ceiling of class `bulk`"]);
    }
    by_bulk(assert_ready_err!(spawn(nightly.consume(1).within(MILLI)).poll()).into(), &[]);
    let mut waiting = pending(nightly.consume(1).within(1_000 * MILLI));
    bulk.set_share(Share::weight(1).ceiling(Quota::per_hour(1).burst(2))).unwrap();
    fixture.clock.advance(1_000 * MILLI);
    by_bulk(assert_ready_err!(waiting.poll()).into(), &[]);
    nightly.set_share(Share::weight(1).ceiling(Quota::per_day(1))).unwrap();
    fixture.clock.advance(3_600 * 1_000 * MILLI);
    names(nightly.try_acquire(2).unwrap_err(), Bound::Ceiling, Some("bulk/nightly"), &[]);
}

#[test]
fn a_refusal_by_the_parent_names_the_quota_of_the_parent() {
    let fixture = Fixture::built(
        Limiter::builder().quota(one_per_milli(9).initial(9)).quota_named("upstream", one_per_milli(3).initial(3)),
    );
    let builder = KeyedLimiter::builder().quota(one_per_milli(5).initial(5)).clock(fixture.clock.clone());
    let users = builder.parent(&fixture.limiter).build().unwrap();
    let at_once = |key: u8, cost| users.try_acquire(&key, cost).unwrap_err();
    let too_late = |key: u8, cost| assert_ready_err!(spawn(users.consume(&key, cost).within(Duration::ZERO)).poll());
    let by_parent = |error: Refused, words: &[&str]| names(error, Bound::Parent, Some("upstream"), words);
    let _taken = users.try_acquire(&1, 3).unwrap();
    // The key has enough tokens, the parent has not.
    by_parent(at_once(2, 2).into(), &["quota `upstream` of the parent limiter", "retry after 2ms"]);
    by_parent(too_late(2, 2).into(), &["quota `upstream` of the parent limiter", "2ms"]);
    // Neither has enough, and the parent's wait is longer.
    fixture.limiter.set_quota("upstream", Quota::new(1, 10 * MILLI).burst(3)).unwrap();
    by_parent(at_once(1, 3).into(), &[]);
    by_parent(too_late(1, 3).into(), &[]);
    // Only the key lacks tokens.
    fixture.limiter.replenish(3);
    names(at_once(1, 3), Bound::Quota(0), None, &[]);
    names(too_late(1, 3), Bound::Quota(0), None, &[]);
    // More than the parent can ever grant at once.
    by_parent(at_once(3, 4).into(), &["the most is 3"]);
    // Only the parent lacks tokens, and its quota shrinks while the key waits for them.
    let _all = fixture.limiter.try_acquire(fixture.limiter.available()).unwrap();
    let mut waiting = pending(users.consume(&3, 3).within(35 * MILLI));
    fixture.limiter.set_quota("upstream", Quota::new(1, 20 * MILLI).burst(3)).unwrap();
    fixture.clock.advance(35 * MILLI);
    let late = assert_ready_err!(waiting.poll());
    by_parent(late.into(), &["delayed by quota `upstream` of the parent limiter"]);
}

#[test]
fn a_quota_of_a_key_is_named_whether_callers_wait_for_the_key_or_not() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(2));
    let users = builder.clock(tollgate::ManualClock::new()).build().unwrap();
    let denied = |by, name| names(users.try_acquire(&1, 1).unwrap_err(), by, name, &[]);
    let too_late = |by, name| {
        names(assert_ready_err!(spawn(users.consume(&1, 1).within(Duration::ZERO)).poll()), by, name, &[]);
    };
    let _taken = users.try_acquire(&1, 2).unwrap();
    // The key is a packed level.
    denied(Bound::Quota(1), Some("day"));
    too_late(Bound::Quota(1), Some("day"));
    let waiting = pending(users.consume(&1, 1));
    denied(Bound::Queue, None);
    too_late(Bound::Quota(1), Some("day"));
    drop(waiting);
    denied(Bound::Quota(1), Some("day"));
    users.set_quota([("hour", Quota::per_hour(1)), ("day", Quota::per_day(2))]).unwrap();
    denied(Bound::Quota(1), Some("day"));
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
    let named = |quota| refused(Limiter::builder().quota(Quota::per_second(1)).quota_named("day", quota));
    says(named(Quota::per_day(0)), &["quota `day`", "amount"]);
    says(named(Quota::new(1, Duration::ZERO)), &["quota `day`", "period"]);
    says(named(Quota::manual(0)), &["quota `day`", "burst of 0"]);
    says(named(Quota::per_day(7).burst(3).stepped()), &["quota `day`", "raise the burst to 7"]);
    says(named(Quota::per_day(7).initial(9)), &["quota `day`", "at most 7"]);
    let day = Limiter::builder().quota_named("day", Quota::per_day(1)).build().unwrap();
    says(day.set_quota(0, Quota::per_day(0)).unwrap_err(), &["quota `day`", "amount"]);
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
    let fixture = Fixture::new(one_per_milli(9));
    let denied = fixture.denied(2);
    assert_eq!(TryAcquireError::from(denied), fixture.limiter.try_acquire(2).unwrap_err());
    let boxed: Box<dyn Error + Send + Sync> = fixture.limiter.try_acquire(2).unwrap_err().into();
    assert!(boxed.downcast_ref::<TryAcquireError>().is_some());
}

#[test]
fn refusals_are_small_plain_values() {
    fn plain<T: Copy + Send + Sync + Eq + std::fmt::Debug + Error + 'static>(most: usize) {
        assert!(size_of::<T>() <= most, "{} takes {} bytes", std::any::type_name::<T>(), size_of::<T>());
    }
    plain::<ConsumeError>(64);
    plain::<TryAcquireError>(56);
    plain::<Denied>(48);
    plain::<ReleaseError>(24);
    fn shared<T: Clone + Send + Sync + Eq + std::fmt::Debug + Error + 'static>() {}
    shared::<ConfigError>();
}

#[test]
fn a_burst_that_was_never_set_is_called_the_amount() {
    let error = Limiter::new(Quota::per_second(u64::MAX)).unwrap_err();
    says(
        error,
        &["burst of 18446744073709551615", "which is the amount unless `burst` sets it", "2305843009213693952"],
    );
}

/// `&String` is what a program has that reads its names from a file.
#[test]
fn names_are_taken_from_any_kind_of_text() {
    let name = String::from("minute");
    let builder = Limiter::builder().quota_named(&name, one_per_milli(4)).quota_named("day", Quota::per_day(9));
    let limiter = builder.classes().build().unwrap();
    let class = limiter.class(&name, Share::weight(1)).unwrap().class(name, Share::weight(1)).unwrap();
    assert_eq!((class.name(), class.parent().unwrap().name()), ("minute", "minute"));
}
