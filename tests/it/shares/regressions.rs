//! Defects that a review of the first version found, and what the classes promise instead.

use super::{divided as limiter, hundred};
use crate::fixture::*;

fn floor(tokens: u64) -> Share {
    Share::weight(1).floor(Quota::per_second(tokens))
}

fn denied(class: &Class, cost: u64) -> (Bound, Option<u128>) {
    let Err(TryAcquireError::Denied(denied)) = class.try_acquire(cost) else { panic!("{cost} was granted") };
    (denied.by, denied.retry_after.map(|wait| wait.as_millis()))
}

#[test]
fn a_giant_is_estimated_at_the_rate_and_at_its_share() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    let alone = a.estimate(1 << 20).expect("a clock can tell").as_secs();
    assert_eq!(alone, (1 << 20) / 100);
    let slow = limiter.class("slow", Share::weight(1).ceiling(Quota::per_second(10).burst(10))).expect("valid");
    assert_eq!(slow.estimate(1 << 20).expect("a clock can tell").as_secs(), (1 << 20) / 10);
    let _other = pending(b.consume(1 << 20));
    let share = a.estimate(1 << 19).expect("a clock can tell").as_secs();
    assert!(share.abs_diff((1 << 20) / 100) <= 1, "{share} seconds at half the rate");
    // All that waits is an upper bound: the giant of the other class is through by then.
    let all = a.estimate(1 << 21).expect("a clock can tell").as_secs();
    assert!(all.abs_diff(3 * (1 << 20) / 100) <= 1, "{all}");
    assert_eq!(a.estimate(1 << 48), None, "beyond the end of time");
    // The tokens that the giant was given in the meantime are waited for by nobody.
    tick_after(&clock, &limiter, Duration::from_secs(1_000));
    let later = [(a.estimate(1 << 21), 1 << 21), (b.estimate(1 << 20), 1 << 20), (limiter.estimate(1 << 20), 1 << 20)];
    for (later, tokens) in later {
        let later = later.expect("a clock can tell").as_secs();
        assert!(later.abs_diff(((1 << 20) + tokens) / 100 - 1_000) <= 1, "{later}");
    }
}

#[test]
fn a_limiter_with_a_cap_and_no_quota_shares_its_cap() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().max_in_flight(100).classes().clock(clock.clone()).build().expect("valid");
    let free = limiter.class("free", Share::weight(1)).expect("valid");
    let slow = limiter.class("slow", Share::weight(1).ceiling(Quota::per_second(10).burst(40))).expect("valid");
    let first = slow.try_acquire(30).expect("the ceiling has 40");
    assert_eq!(first.remaining(), 70);
    assert_eq!(denied(&slow, 20), (Bound::Ceiling, Some(1_000)));
    let second = free.try_acquire(70).expect("the cap has 70");
    assert_eq!(denied(&free, 1), (Bound::InFlight, None));
    let mut waiting = pending(slow.clone().consume_owned(12));
    drop(second);
    assert!(!waiting.is_woken(), "the ceiling has 10");
    tick_after(&clock, &limiter, Duration::from_millis(200));
    assert_eq!(assert_ready_ok!(waiting.poll()).cost(), 12);
    drop(first);
}

#[test]
fn a_denial_says_when_all_that_waits_could_have_been_served() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    assert_eq!(denied(&a, 3), (Bound::Quota(0), Some(30)));
    let giant = pending(a.consume(35));
    for _ in 0..2 {
        assert_eq!(denied(&b, 6), (Bound::Queue, Some(410)));
    }
    clock.advance(Duration::from_millis(150));
    assert_eq!(denied(&b, 6), (Bound::Queue, Some(260)));
    drop(giant);
    assert_eq!(b.try_acquire(10).expect("what was set aside has come back").cost(), 10);
}

/// Both a class and the class around it are made and dropped: the ceiling of the inner one goes on.
#[test]
fn a_nested_class_made_anew_has_no_new_burst() {
    let (limiter, clock) = limiter(hundred());
    let ceiling = Share::weight(1).ceiling(Quota::per_minute(1).burst(5));
    for round in 0..5 {
        let outer = limiter.class("outer", Share::weight(1)).expect("free");
        let inner = outer.class("inner", ceiling).expect("free");
        assert_eq!(inner.snapshot().ceiling_level, Some(if round == 0 { 5 } else { 3 }), "round {round}");
        clock.advance(Duration::from_millis(100));
        if round == 0 {
            assert!(inner.try_acquire(2).is_ok());
        }
        if round == 3 {
            outer.remove();
        }
    }
}

#[test]
fn a_class_whose_classes_are_gone_can_have_a_floor() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let outer = limiter.class("outer", Share::weight(1)).expect("valid");
    let inner = outer.class("inner", Share::weight(1)).expect("valid");
    assert_eq!(outer.set_share(floor(50)), Err(ConfigError::FloorWithClasses { class: "outer".into() }));
    drop(inner);
    outer.set_share(floor(50)).expect("no class is in it");
    let refused = outer.class("inner", Share::weight(1)).expect_err("it has a floor");
    assert_eq!(refused, ConfigError::FloorWithClasses { class: "outer".into() });
    let other = limiter.class("other", Share::weight(1_000)).expect("valid");
    let own: Vec<_> = (0..100).map(|_| pending(outer.consume(1))).collect();
    let _others: Vec<_> = (0..100).map(|_| pending(other.consume(1))).collect();
    tick_after(&clock, &limiter, Duration::from_millis(400));
    let served = woken(&own);
    assert!((19..=21).contains(&served), "{served} of 40 at a floor of half the rate");
    assert!(matches!(limiter.class("third", floor(51)), Err(ConfigError::FloorsAboveRate { .. })));
}

#[test]
fn a_claim_that_waits_is_divided_anew_by_a_smaller_ceiling_around_its_class() {
    let (limiter, clock) = limiter(hundred());
    let ceiling = |burst| Share::weight(1).ceiling(Quota::per_second(50).burst(burst));
    let outer = limiter.class("outer", ceiling(10)).expect("valid");
    let inner = outer.class("inner", Share::weight(1)).expect("valid");
    inner.try_acquire(10).expect("all of both").forget();
    let waiting = pending(inner.consume(10));
    outer.set_share(ceiling(5)).expect("no floor is below it");
    tick_after(&clock, &limiter, Duration::from_millis(200));
    assert!(waiting.is_woken(), "two installments of 5, at once when they are there");
}

#[test]
fn service_by_floor_is_counted_by_installment() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let a = limiter.class("a", floor(10)).expect("valid");
    let b = limiter.class("b", Share::weight(1)).expect("valid");
    let giant = pending(a.consume(40));
    let _others: Vec<_> = (0..100).map(|_| pending(b.consume(1))).collect();
    tick_after(&clock, &limiter, Duration::from_secs(1));
    assert!(giant.is_woken());
    let snapshot = a.snapshot();
    assert_eq!(snapshot.served, 40);
    // At 10 per second the floor alone gives one installment of 10 at the beginning, and one in the second after it.
    assert!((10..=20).contains(&snapshot.served_by_floor), "{}", snapshot.served_by_floor);
}

/// `settle` can charge 2^48 tokens at a time; a ceiling in debt stays in debt.
#[test]
fn a_ceiling_never_becomes_rich_by_debts() {
    let (limiter, _) = limiter(Quota::manual(1 << 60));
    let a = limiter.class("a", Share::weight(1).ceiling(Quota::per_second(1).burst(1))).expect("valid");
    let mut grant = a.try_acquire(1).expect("there");
    for _ in 0..16_400 {
        grant.grow(1 << 48);
        limiter.replenish(1 << 48);
    }
    for _ in 0..16_400 {
        grant = a.try_acquire(0).expect("nothing");
        grant.grow(1 << 48);
        limiter.replenish(1 << 48);
    }
    assert!(a.snapshot().ceiling_level.is_some_and(|level| level < -(1 << 61)), "{:?}", a.snapshot());
}

#[test]
fn counters_of_a_class_stand_still_at_their_end() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().max_in_flight(1 << 48).classes().clock(clock.clone()).build().expect("valid");
    let ceiling = Quota::new(1 << 48, Duration::from_nanos(1)).burst(1 << 48);
    let a = limiter.class("a", Share::weight(1).ceiling(ceiling)).expect("valid");
    for _ in 0..65_537 {
        drop(a.try_acquire(1 << 48).expect("the cap and the ceiling are free"));
        clock.advance(Duration::from_nanos(1));
    }
    assert_eq!(a.snapshot().served, u64::MAX);
}

/// During a pause the bucket is full, and loses the fraction of a token that came with the last one.
#[test]
fn within_accepts_no_claim_that_a_pause_makes_late_by_a_nanosecond() {
    let nanos = Duration::from_nanos;
    let (limiter, clock) = limiter(Quota::new(3, nanos(160)).burst(4).initial(3));
    let class = limiter.class("class", Share::weight(1)).expect("valid");
    clock.advance(nanos(54));
    limiter.pause_for(nanos(260));
    let _before = pending(class.consume(4));
    assert_eq!(class.estimate(5), Some(nanos(527)));
    let late = spawn(class.consume(5).within(nanos(526))).poll();
    assert!(matches!(late, std::task::Poll::Ready(Err(ConsumeError::TooLate { .. }))), "{late:?}");
}

/// What is set aside for claims of many installments, and comes back when they leave, lets one burst pass, however late the
/// limiter was served in between.
#[test]
fn giants_that_leave_after_a_late_timer_let_one_burst_pass() {
    let (limiter, clock) = limiter(Quota::per_second(1).burst(10).initial(0));
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    let first = limiter.class("first", Share::weight(1_000)).expect("valid");
    let giant = pending(a.consume(1_000));
    tick_after(&clock, &limiter, 200 * SECOND);
    let other = pending(b.consume(1_000));
    (0..20).for_each(|_| tick_after(&clock, &limiter, 10 * SECOND));
    let claims = [(); 2].map(|()| pending(first.consume(10)));
    drop((giant, other));
    limiter.tick();
    assert_eq!(woken(&claims), 1);
}

/// A joint claim that is to hold the limiter later takes none of the tokens that a giant was due before.
#[test]
fn a_giant_beside_a_joint_claim_loses_nothing_to_a_late_timer() {
    let (limiter, clock) = limiter(Quota::per_second(1).burst(10).initial(0));
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    let slow = Limiter::builder().quota(Quota::new(1, 100 * SECOND).burst(1).initial(0)).classes().clock(clock.clone());
    let slow = slow.build().expect("valid").class("slow", Share::weight(1)).expect("valid");
    let giant = pending(a.consume(1_000));
    let _joint = pending(join([(&b, 5), (&slow, 1)]));
    tick_after(&clock, &limiter, 200 * SECOND);
    assert!(a.snapshot().served >= 180, "{} tokens", a.snapshot().served);
    assert!(!giant.is_woken());
}
