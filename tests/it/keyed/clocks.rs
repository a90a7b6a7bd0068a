//! Clocks that step back, and clocks that panic.

use super::manual;
use crate::fixture::*;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// So fast, and with such a fraction, that a packed level of 8 bytes can be read for only 2.3 seconds.
const FAST: Quota = Quota::per_second(999_999_937).burst(10_000);

/// A map of one shard. A waiter of `b` has seen a time that is `ahead`, and is gone. The table is as full as it may
/// be before it is swept.
fn after_a_step_back(quota: Quota, ahead: Duration, back: Duration) -> KeyedLimiter<&'static str> {
    let (keyed, clock) = manual(|it| it.quota(quota).shards(1));
    clock.advance(seconds(5));
    drop(keyed.try_acquire(&"b", quota.capacity()).unwrap());
    let waiting = pending(keyed.consume(&"b", 1 << 40));
    for key in ["u", "v", "w", "x", "y"] {
        drop(keyed.try_acquire(&key, 1).unwrap());
    }
    clock.advance(ahead);
    drop(waiting);
    clock.step_back(back);
    keyed
}

/// A quota that is set for a key counts from the time that the map has seen.
#[test]
fn a_key_that_gets_a_quota_of_its_own_is_not_given_the_same_time_twice() {
    // A burst that does not fit into 8 bytes with its fractions.
    let slow = Quota::per_day(1_000_003);
    let keyed = after_a_step_back(Quota::per_hour(5), seconds(10), seconds(7));
    keyed.set_quota_for(&"a", slow).unwrap();
    // The space for the key was found in a sweep, which has learned the time of `b`.
    assert_eq!(keyed.available(&"a"), 5);
    keyed.set_quota_for(&"a", FAST).unwrap();
    assert_eq!(keyed.available(&"a"), 5);
}

#[test]
fn a_new_key_after_a_large_step_back_is_not_in_debt() {
    let keyed = after_a_step_back(FAST, seconds(12), seconds(12));
    drop(keyed.try_acquire(&"new", 1).unwrap());
    assert_eq!((keyed.available(&"new"), keyed.deficiency(&"new")), (10_000, 0));
}

/// No time passes while a clock catches up, and the time that passed before is not undone.
#[test]
fn a_clock_that_stepped_back_refuses_no_new_key_while_a_key_is_without_debt() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1)).max_keys(1));
    drop(keyed.try_acquire(&"a", 1).unwrap());
    clock.advance(seconds(3_600));
    assert_eq!(keyed.available(&"b"), 1);
    clock.step_back(seconds(3_600));
    assert_eq!(keyed.available(&"a"), 1);
    drop(keyed.try_acquire(&"b", 1).unwrap());
    assert_eq!(keyed.snapshot().keys, 1);
}

/// Pauses one key, or all keys; the key has a waiter or none.
#[test]
fn pauses_after_the_clock_stepped_back_count_from_where_it_was() {
    let paused = |pause: fn(&KeyedLimiter<&'static str>, Duration), has_waiter: bool| {
        let (keyed, clock) = manual(|it| it.quota(Quota::per_second(5)).shards(1));
        drop(keyed.try_acquire(&"a", 5).unwrap());
        let waiting = has_waiter.then(|| pending(keyed.consume(&"a", 2)));
        tick_after(&clock, &keyed, seconds(60));
        assert!(keyed.available(&"a") >= 3, "the map has seen this time");
        clock.step_back(seconds(5));
        pause(&keyed, seconds(3));
        assert_eq!(keyed.available(&"a"), 0);
        clock.advance(seconds(8) - Duration::from_nanos(1));
        assert!(keyed.try_acquire(&"a", 1).is_err());
        clock.advance(Duration::from_nanos(1));
        drop(waiting);
        assert_eq!(keyed.available(&"a"), 5);
    };
    for has_waiter in [false, true] {
        paused(|keyed, pause| keyed.pause_for(&"a", pause), has_waiter);
        paused(|keyed, pause| keyed.pause_all_for(pause), has_waiter);
    }
}

thread_local! {
    /// The number of readings before the next panic; negative if none panics.
    static READINGS: Cell<i64> = const { Cell::new(-1) };
}

/// Shows what `clock` does, and panics when the number of readings is used up.
fn failing(clock: &ManualClock) -> ClockFn {
    let clock = clock.clone();
    ClockFn::manual(move || {
        let left = READINGS.get();
        if left == 0 {
            resume_unwind(Box::new("a clock that fails"));
        }
        READINGS.set(left - 1);
        clock.now()
    })
}

/// Wherever the clock fails, the tokens of a waiter's key are not counted by one quota and stored by another.
#[test]
fn a_clock_that_fails_while_quotas_change_mints_nothing() {
    for readings in 0..10 {
        let clock = ManualClock::new();
        let builder = KeyedLimiter::builder().quota(Quota::per_day(1).burst(2)).clock(failing(&clock)).shards(1);
        let keyed: KeyedLimiter<&str> = builder.build().unwrap();
        drop(keyed.try_acquire(&"a", 2).unwrap());
        let waiting = pending(keyed.consume(&"a", 1));
        clock.advance(seconds(43_200));
        READINGS.set(readings);
        let changed = catch_unwind(AssertUnwindSafe(|| keyed.set_quota(Quota::per_hour(1).burst(100))));
        READINGS.set(-1);
        drop(waiting);
        keyed.tick();
        assert_eq!(keyed.available(&"a"), 0, "after {readings} readings");
        clock.advance(seconds(43_200));
        let have = keyed.available(&"a");
        assert!(have <= 12, "{have} after {readings} readings");
        if changed.is_ok() {
            assert_eq!(have, 12);
            return;
        }
    }
    unreachable!("a change takes a few readings");
}

/// A clock that panics from a given reading on, until `READINGS` is set again.
fn while_failing<R>(readings: i64, act: impl FnOnce() -> R) -> bool {
    READINGS.set(readings);
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(act()))).is_err();
    READINGS.set(-1);
    panicked
}

/// The key kept its entry, which nothing looked at any more, and the map stayed full.
#[test]
fn a_key_takes_no_place_whose_call_meets_a_clock_that_fails() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).max_in_flight(2).clock(failing(&clock));
    let keyed: KeyedLimiter<&str> = builder.max_keys(1).build().unwrap();
    for (call, readings) in (0..3).flat_map(|call| (0..5).map(move |readings| (call, readings))) {
        while_failing(readings, || match call {
            0 => drop(keyed.try_acquire(&"a", 1)),
            1 => assert!(spawn(keyed.consume(&"a", 1)).poll().is_ready()),
            _ => drop(keyed.blocking_consume(&"a", 1)),
        });
        clock.advance(seconds(1));
        let other = keyed.try_acquire(&"b", 1);
        drop(other.unwrap_or_else(|error| panic!("after call {call} and {readings} readings: {error}")));
        clock.advance(seconds(1));
    }
}

/// A grant is in flight for its key and in the parent limiter: both learn that it is dropped, and both serve their
/// waiters.
#[test]
fn a_grant_dropped_while_the_clock_fails_is_released_for_its_key_and_its_parent() {
    let clock = ManualClock::new();
    let above = Limiter::builder().quota(Quota::per_second(9)).max_in_flight(2).clock(failing(&clock));
    let above = above.build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(9)).max_in_flight(2).clock(failing(&clock));
    let keyed: KeyedLimiter<&str> = builder.parent(&above).build().unwrap();
    let grant = keyed.try_acquire(&"a", 2).unwrap();
    let (mut own, mut others) = (pending(keyed.consume(&"a", 1)), pending(above.consume(1)));
    assert!(!while_failing(0, || drop(grant)));
    assert!(others.is_woken() && others.poll().is_ready());
    assert!(own.is_woken() && own.poll().is_ready());
}

/// The actual cost of a grant counts for its key and in the parent limiter, or for neither.
#[test]
fn a_clock_that_fails_while_a_grant_is_settled_settles_it_everywhere_or_nowhere() {
    for (readings, actual) in (0..9).flat_map(|readings| [(readings, 1), (readings, 8)]) {
        let clock = ManualClock::new();
        let above = Limiter::builder().quota(Quota::per_second(9)).clock(failing(&clock)).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(9)).clock(failing(&clock));
        let keyed: KeyedLimiter<&str> = builder.parent(&above).build().unwrap();
        let mut grant = keyed.try_acquire(&"a", 4).unwrap();
        let cost = if while_failing(readings, || grant.settle(&"a", actual)) { 4 } else { actual };
        let (key, parent) = (keyed.available(&"a"), above.available());
        assert_eq!((grant.cost(), key, parent), (cost, 9 - cost, 9 - cost), "after {readings}");
    }
}

#[test]
fn a_pause_during_which_the_clock_fails_leaves_the_only_place_to_another_key() {
    for readings in 0..2 {
        let builder = KeyedLimiter::builder().quota(Quota::per_hour(1)).clock(failing(&ManualClock::new()));
        let keyed: KeyedLimiter<&str> = builder.max_keys(1).build().unwrap();
        assert!(while_failing(readings, || keyed.pause_for(&"a", seconds(1))), "after {readings}");
        drop(keyed.try_acquire(&"b", 1).unwrap());
    }
}

/// The waiters of all keys learn that the limiter is closed.
#[test]
fn a_clock_that_fails_while_a_limiter_is_closed_leaves_no_waiter_behind() {
    for readings in 0..9 {
        let clock = ManualClock::new();
        let builder = KeyedLimiter::builder().quota(Quota::per_hour(1)).clock(failing(&clock)).shards(2);
        let keyed: KeyedLimiter<u8> = builder.build().unwrap();
        let keys = [1, 2, 3, 4];
        keys.iter().for_each(|key| drop(keyed.try_acquire(key, 1).unwrap()));
        let mut waiting = keys.each_ref().map(|key| pending(keyed.consume(key, 1)));
        assert!(!while_failing(readings, || keyed.close()));
        assert!(waiting.iter_mut().all(|claim| claim.is_woken() && claim.poll().is_ready()), "after {readings}");
    }
}

/// Both limiters read one clock, and a grant without waiting reads it once for both.
#[test]
fn a_limiter_that_began_after_its_parent_has_a_time_of_its_own() {
    let clock = ManualClock::new();
    let all = Limiter::builder().quota(Quota::per_second(1_000)).clock(clock.clone()).build().unwrap();
    clock.advance(Duration::from_millis(400));
    let builder = KeyedLimiter::builder().quota(Quota::per_second(5).stepped()).clock(clock.clone());
    let keyed: KeyedLimiter<&str> = builder.parent(&all).build().unwrap();
    // The key is stored with the first grant. From then on its grants take the shortest way.
    for cost in [1, 4] {
        drop(keyed.try_acquire(&"a", cost).unwrap());
    }
    clock.advance(Duration::from_millis(999));
    assert!(keyed.try_acquire(&"a", 1).is_err(), "its first second is not over");
    clock.advance(Duration::from_millis(1));
    for left in (0..5).rev() {
        assert_eq!(keyed.try_acquire(&"a", 1).unwrap().remaining(), left);
    }
    // To before it began, and after its parent did.
    clock.step_back(Duration::from_millis(1_200));
    assert!(keyed.try_acquire(&"a", 1).is_err());
    clock.advance(Duration::from_millis(2_199));
    assert!(keyed.try_acquire(&"a", 1).is_err());
    clock.advance(Duration::from_millis(1));
    assert!(keyed.try_acquire(&"a", 5).is_ok());
}

/// Such a clock is read under a shard's lock, and keys may run ahead of it.
#[test]
fn a_key_keeps_its_rate_by_the_processors_clock() {
    let clock = tollgate::clock::QuantaClock::new();
    let quota = Quota::per_second(1_000).burst(100_000);
    let keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let began = clock.now();
    let granted = (0..200_000).filter(|_| keyed.try_acquire(&"a", 1).is_ok()).count();
    let most = 100_000 + 1_000 * (clock.now() - began).as_secs() + 1_000;
    assert!((100_000..=most).contains(&(granted as u64)), "{granted} of {most}");
}
