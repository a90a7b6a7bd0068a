//! What callers of classes see: errors, names, removal, ceilings without a wait, runtimes, and what a limiter with
//! classes refuses.

use super::{divided, divided as limiter, hundred};
use crate::fixture::*;

#[test]
fn a_share_that_cannot_be_kept_is_refused_with_its_numbers() {
    let (limiter, _) = limiter(hundred());
    let refuse = |share| limiter.class("a", share).expect_err("refused");
    let class = String::from("a");
    let most = 1_000_000;
    assert_eq!(refuse(Share::weight(0)), ConfigError::BadWeight { class: class.clone(), weight: 0, most });
    let heavy = Share::weight(most + 1);
    assert_eq!(refuse(heavy), ConfigError::BadWeight { class: class.clone(), weight: most + 1, most });
    let manual = Quota::manual(5);
    for (share, part) in [(Share::weight(1).floor(manual), "floor"), (Share::weight(1).ceiling(manual), "ceiling")] {
        assert_eq!(refuse(share), ConfigError::ManualShare { class: class.clone(), part });
    }
    let empty = Share::weight(1).ceiling(Quota::per_second(5).burst(0));
    assert!(matches!(refuse(empty), ConfigError::BadShare { part: "ceiling", .. }));
    let rate = |tokens| Share::weight(1).floor(Quota::per_second(tokens));
    let above = |tokens| ConfigError::FloorsAboveRate { class: "a".into(), floor: Quota::per_second(tokens) };
    assert_eq!(refuse(rate(101)), above(101));
    let says = "with the floor `101/s` of class `a`, all floors exceed the rate of the limiter: lower one of them";
    assert_eq!(refuse(rate(101)).to_string(), says);
    let ceiling = Quota::per_second(49).burst(10);
    assert_eq!(refuse(rate(50).ceiling(ceiling)), ConfigError::FloorsAboveCeiling { class: class.clone(), ceiling });
    let small = rate(50).ceiling(Quota::per_second(60).burst(9));
    assert_eq!(refuse(small), ConfigError::CeilingBelowBurst { class, burst: 9, least: 10 });
    let _kept = limiter.class("b", rate(60)).expect("the rate has space for it");
    assert_eq!(refuse(rate(41)), above(41));
    let kept = limiter.class("a", rate(40)).expect("there is just enough");
    limiter.set_quota(0, Quota::per_second(50).burst(10)).expect("no ceiling is below its burst");
    assert_eq!(kept.set_share(rate(40)), Ok(()), "a floor that does not rise");
    // A token per nanosecond is not rounded: the bounds are equal.
    let whole = Quota::per_second(1_000_000_000).burst(10);
    assert!(divided(whole).0.class("a", Share::weight(1).floor(whole).ceiling(whole)).is_ok());
}

#[test]
fn floors_below_one_ceiling_are_added_up() {
    let (limiter, _) = limiter(hundred());
    let ceiling = Quota::per_second(30).burst(10);
    let outer = limiter.class("outer", Share::weight(1).ceiling(ceiling)).expect("valid");
    let rate = |tokens| Share::weight(1).floor(Quota::per_second(tokens));
    let _first = outer.class("first", rate(20)).expect("valid");
    assert_eq!(
        outer.class("second", rate(11)).unwrap_err(),
        ConfigError::FloorsAboveCeiling { class: "second".into(), ceiling }
    );
    let second = outer.class("second", rate(10)).expect("valid");
    let ceiling = Quota::per_second(29).burst(10);
    assert_eq!(
        outer.set_share(Share::weight(1).ceiling(ceiling)).unwrap_err(),
        ConfigError::FloorsAboveCeiling { class: "outer".into(), ceiling }
    );
    drop(second);
    assert!(outer.set_share(Share::weight(1).ceiling(ceiling)).is_ok(), "the floor of a dropped class does not count");
}

#[test]
fn names_are_unique_among_the_classes_of_one_parent_while_they_live() {
    let (limiter, _) = limiter(hundred());
    let a = limiter.class("a", Share::weight(1)).expect("free");
    assert_eq!(limiter.class("a", Share::weight(1)).unwrap_err(), ConfigError::DuplicateClass { class: "a".into() });
    let nested = a.class("a", Share::weight(1)).expect("free in another class");
    assert_eq!((nested.name(), nested.parent().map(|parent| parent.name())), ("a", Some("a")));
    drop(a);
    assert!(limiter.class("a", Share::weight(1)).is_err(), "a class keeps the class around it");
    drop(nested);
    assert!(limiter.class("a", Share::weight(1)).is_ok());
    let mut deep = limiter.class("deep", Share::weight(1)).expect("free");
    for _ in 1..16 {
        deep = deep.class("deep", Share::weight(1)).expect("not too deep");
    }
    assert_eq!(
        deep.class("d", Share::weight(1)).unwrap_err(),
        ConfigError::ClassTooDeep { class: "d".into(), most: 16 }
    );
}

#[test]
fn a_removed_class_turns_its_waiters_and_callers_away_and_keeps_no_tokens() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let outer = limiter.class("outer", Share::weight(1)).expect("valid");
    let class = outer.class("class", Share::weight(1)).expect("valid");
    let other = limiter.class("other", Share::weight(1)).expect("valid");
    let mut giant = pending(class.consume(35));
    let mut behind = pending(outer.consume(10));
    let mut elsewhere = spawn(other.consume(7));
    tick_after(&clock, &limiter, Duration::from_millis(105));
    assert_pending!(elsewhere.poll());
    outer.remove();
    assert!(giant.is_woken() && behind.is_woken());
    assert_eq!(assert_ready_err!(giant.poll()), ConsumeError::Closed);
    assert_eq!(assert_ready_err!(behind.poll()), ConsumeError::Closed);
    assert_eq!(class.try_acquire(1).unwrap_err(), TryAcquireError::Closed);
    assert_eq!(assert_ready_err!(spawn(class.consume(1)).poll()), ConsumeError::Closed);
    assert_eq!(assert_ready_err!(spawn(class.consume(0)).poll()), ConsumeError::Closed);
    assert_eq!(class.class("x", Share::weight(1)).unwrap_err(), ConfigError::ClassRemoved { class: "x".into() });
    assert_eq!(class.set_share(Share::weight(2)).unwrap_err(), ConfigError::ClassRemoved { class: "class".into() });
    // Ten tokens had been set aside for the giant, and have come back.
    assert_eq!(assert_ready_ok!(elsewhere.poll()).cost(), 7);
    assert_eq!(limiter.available(), 3);
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
    let again = limiter.class("outer", Share::weight(1)).expect("the name is free");
    assert_eq!(assert_ready_ok!(spawn(again.consume(1)).poll()).cost(), 1);
}

#[test]
fn closing_the_limiter_closes_its_classes() {
    let (limiter, _) = limiter(hundred().initial(0));
    let class = limiter.class("a", Share::weight(1)).expect("valid");
    let mut waiting: Vec<_> = (0..100).map(|_| pending(class.consume(3))).collect();
    let mut own = pending(limiter.consume(1));
    limiter.close();
    for claim in &mut waiting {
        assert_eq!(assert_ready_err!(claim.poll()), ConsumeError::Closed);
    }
    assert_eq!(assert_ready_err!(own.poll()), ConsumeError::Closed);
    assert_eq!(class.try_acquire(1).unwrap_err(), TryAcquireError::Closed);
    assert_eq!(limiter.snapshot().waiting_tokens, 0);
}

#[test]
fn a_ceiling_refuses_at_once_and_says_when_to_come_back() {
    let (limiter, clock) = limiter(hundred());
    let class = limiter.class("a", Share::weight(1).ceiling(Quota::per_second(20).burst(4))).expect("valid");
    assert_eq!(class.available(), 4);
    assert_eq!(
        class.try_acquire(5).unwrap_err(),
        TryAcquireError::TooLarge { cost: 5, most: 4, by: Bound::Ceiling, quota_name: Some("a") }
    );
    assert_eq!(class.try_acquire(3).expect("there").cost(), 3);
    let Err(TryAcquireError::Denied(denied)) = class.try_acquire(2) else { panic!("the ceiling has 1") };
    assert_eq!((denied.by, denied.remaining), (Bound::Ceiling, 1));
    assert_eq!(denied.retry_after, Some(Duration::from_millis(50)));
    assert!(limiter.try_acquire(7).is_ok(), "the limiter has tokens for other callers");
    let Err(TryAcquireError::Denied(denied)) = class.try_acquire(2) else { panic!("neither has 2") };
    assert_eq!(denied.by, Bound::Quota(0));
    clock.advance(Duration::from_millis(50));
    assert!(class.try_acquire(2).is_ok());
    let snapshot = class.snapshot();
    assert_eq!((snapshot.served, snapshot.ceiling_level, snapshot.is_held), (5, Some(0), false));
}

#[test]
fn a_ceiling_is_changed_and_takes_a_debt_as_a_quota_does() {
    let (limiter, clock) = limiter(hundred());
    let ceiling = |rate, burst| Share::weight(1).ceiling(Quota::per_second(rate).burst(burst));
    let class = limiter.class("a", ceiling(20, 4)).expect("valid");
    class.set_share(ceiling(10, 3)).expect("valid");
    let mut grant = class.try_acquire(3).expect("there");
    clock.advance(150 * MILLI);
    assert_eq!(class.available(), 1);
    clock.advance(SECOND);
    grant.settle(5);
    assert_eq!(class.available(), 1);
}

#[test]
fn max_waiting_bounds_a_class_apart_from_the_others() {
    let (limiter, _) = limiter(hundred().initial(0));
    let class = limiter.class("a", Share::weight(1).max_waiting(2)).expect("valid");
    let _waiting: Vec<_> = (0..2).map(|_| pending(class.consume(1))).collect();
    assert_eq!(assert_ready_err!(spawn(class.consume(1)).poll()), ConsumeError::QueueFull { waiting: 2 });
    assert_pending!(spawn(limiter.consume(1)).poll());
}

#[test]
fn max_waiting_bounds_all_classes_together() {
    let builder = Limiter::builder().quota(hundred().initial(0)).max_waiting(2).classes();
    let limiter = builder.clock(ManualClock::new()).build().expect("valid");
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    let _waiting = [pending(a.consume(1)), pending(b.consume(1))];
    for class in [a.clone(), b.clone()] {
        assert_eq!(assert_ready_err!(spawn(class.consume(1)).poll()), ConsumeError::QueueFull { waiting: 2 });
    }
}

/// A debt is in flight already, while it waits to be paid.
#[test]
fn a_debt_that_waits_leaves_less_of_the_cap_to_other_classes() {
    let builder = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(10).classes();
    let limiter = builder.clock(ManualClock::new()).build().expect("valid");
    let [light, heavy] = [1, 1_000].map(|weight| limiter.class(weight.to_string(), Share::weight(weight)).unwrap());
    let mut grant = light.try_acquire(5).expect("the cap has 10");
    let _waiting = pending(light.consume(8));
    grant.settle(8);
    assert!(heavy.try_acquire(3).is_err(), "8 are in flight");
    assert_eq!(heavy.try_acquire(1).expect("the cap has 2").remaining(), 1);
}

/// The claim that is picked does not fit under the cap, but that of another class does, which comes first.
#[test]
fn a_claim_that_fits_under_the_cap_is_granted_before_a_larger_one_of_a_lighter_class() {
    let builder = Limiter::builder().quota(Quota::per_second(1_000).burst(3)).max_in_flight(12).classes();
    let clock = ManualClock::new();
    let limiter = builder.clock(clock.clone()).build().expect("valid");
    let [light, heavy] = [1, 1_000].map(|weight| limiter.class(weight.to_string(), Share::weight(weight)).unwrap());
    let _held = [3, 2].map(|cost| {
        clock.advance(3 * MILLI);
        light.try_acquire(cost).expect("they are there")
    });
    let _waiting = pending(light.consume(10));
    tick_after(&clock, &limiter, 20 * MILLI);
    assert!(spawn(heavy.consume(2)).poll().is_ready());
}

#[test]
fn a_limiter_without_classes_makes_none() {
    let plain = Limiter::new(hundred()).expect("valid");
    assert_eq!(plain.class("a", Share::weight(1)).unwrap_err(), ConfigError::NoClasses);
}

/// A class made and dropped in a loop must not gain an installment each time. That it gains no burst of its ceiling is in
/// `regressions.rs`.
#[test]
fn a_class_made_anew_takes_over_what_it_was_served_ahead() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let steady = limiter.class("steady", Share::weight(1)).expect("valid");
    let waiting: Vec<_> = (0..300).map(|_| pending(steady.consume(1))).collect();
    let mut gained = 0;
    let mut hopper: Option<Spawn<ConsumeOwned<Class>>> = None;
    for _ in 0..200 {
        if hopper.as_ref().is_none_or(Spawn::is_woken) {
            gained += u64::from(hopper.take().is_some_and(|mut claim| claim.poll().is_ready()));
            let class = limiter.class("hopper", Share::weight(1)).expect("the former one was dropped");
            let claim = pending(class.consume_owned(10));
            hopper = Some(claim);
        }
        tick_after(&clock, &limiter, Duration::from_millis(10));
    }
    // 200 tokens were granted: half of them to each, 10 at a time. Without a memory the hopper would have had all.
    assert!((9..=10).contains(&gained), "{gained}");
    drop((waiting, hopper));
}

#[tokio::test(start_paused = true)]
async fn drivers_of_a_runtime_serve_the_classes_on_schedule() {
    let limiter = Limiter::builder().quota(hundred().initial(0)).classes().build().expect("valid");
    let a = limiter.class("a", Share::weight(3)).expect("valid");
    let b = limiter.class("b", Share::weight(1)).expect("valid");
    let begun = tokio::time::Instant::now();
    let tasks: Vec<_> = [&a, &a, &a, &b, &a, &a, &a, &b]
        .into_iter()
        .map(|class| {
            let class = class.clone();
            tokio::spawn(async move {
                let _grant = class.consume_owned(1).await.expect("granted");
                tokio::time::Instant::now()
            })
        })
        .collect();
    let mut instants = Vec::new();
    for task in tasks {
        instants.push((task.await.expect("no panic") - begun).as_millis());
    }
    assert_eq!(instants, [10, 30, 40, 20, 50, 70, 80, 60]);
}

#[test]
fn a_thread_waits_in_a_class() {
    let limiter = Limiter::builder().quota(Quota::per_second(10_000).burst(1)).classes().build().expect("valid");
    let class = limiter.class("a", Share::weight(1)).expect("valid");
    for _ in 0..20 {
        assert_eq!(class.blocking_consume(1).expect("granted").cost(), 1);
    }
}

#[test]
fn a_thread_under_a_ceiling_takes_from_it_too() {
    let (limiter, _clock) = limiter(hundred());
    let class = limiter.class("a", Share::weight(1).ceiling(Quota::per_hour(1).burst(3))).expect("valid");
    assert_eq!(class.blocking_consume(2).expect("there").cost(), 2);
    assert_eq!(class.snapshot().ceiling_level, Some(1));
}

#[test]
fn within_follows_the_forecast_of_the_class() {
    let (limiter, clock) = limiter(hundred().initial(0));
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("valid"));
    let _giant = pending(a.consume(1_000));
    let late = |estimate, allowed, by, quota_name| ConsumeError::TooLate {
        estimate: Duration::from_millis(estimate),
        allowed: Duration::from_millis(allowed),
        by,
        quota_name,
    };
    // A ceiling that has the tokens earlier than the quota is not what makes a claim late.
    let wide = limiter.class("wide", Share::weight(1).ceiling(Quota::per_second(1_000).burst(10))).expect("valid");
    for class in [&b, &wide] {
        let refused = assert_ready_err!(spawn(class.consume(10).within(Duration::from_millis(199))).poll());
        assert_eq!(refused, late(200, 199, Bound::Quota(0), None));
    }
    let slow =
        limiter.class("slow", Share::weight(1).ceiling(Quota::per_minute(1).burst(1).initial(0))).expect("valid");
    let refused = assert_ready_err!(spawn(slow.consume(1).within(Duration::from_secs(59))).poll());
    assert_eq!(refused, late(60_000, 59_000, Bound::Ceiling, Some("slow")));
    let mut with_deadline = pending(b.clone().consume_owned(10).within(Duration::from_millis(200)));
    tick_after(&clock, &limiter, Duration::from_millis(200));
    assert_eq!(assert_ready_ok!(with_deadline.poll()).cost(), 10);
}

#[test]
fn a_grant_grows_in_its_class() {
    let (limiter, clock) = limiter(hundred());
    let a = limiter.class("a", Share::weight(1).ceiling(Quota::per_second(10).burst(4))).expect("valid");
    let b = limiter.class("b", Share::weight(1)).expect("valid");
    let mut grant = a.try_acquire(2).expect("the ceiling has 4");
    grant.grow(1);
    assert_eq!((grant.cost(), limiter.available(), b.available()), (3, 7, 7));
    assert_eq!(a.snapshot().ceiling_level, Some(1));
    {
        // The ceiling of the class holds it back, not the limiter.
        let mut growing = pending(grant.grow_within(2));
        assert_eq!((a.snapshot().waiting_tasks, b.snapshot().waiting_tasks), (1, 0));
        tick_after(&clock, &limiter, Duration::from_millis(100));
        assert_ready_ok!(growing.poll());
    }
    assert_eq!(grant.cost(), 5);
    // A future that is dropped has not grown the grant.
    let growing = pending(grant.grow_within(4));
    drop(growing);
    assert_eq!((grant.cost(), a.snapshot().waiting_tasks), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_class_has_the_verbs_of_a_limiter() {
    let quota = Quota::per_second(1_000).burst(5).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().build().expect("valid");
    let class = limiter.class("a", Share::weight(1)).expect("valid");
    let start = tokio::time::Instant::now();
    for milli in 1..=3 {
        assert_eq!(class.wait(1).await, Ok(()));
        assert_eq!(start.elapsed(), Duration::from_millis(milli));
    }
    let refusal = class.wait(100).within(Duration::from_millis(99)).await.unwrap_err();
    assert!(matches!(refusal, ConsumeError::TooLate { estimate, .. } if estimate == Duration::from_millis(100)));
    assert_eq!(class.wait(100).within(Duration::from_millis(100)).await, Ok(()));
    let refusal = class.blocking_consume_within(2, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    tokio::time::advance(Duration::from_millis(2)).await;
    let mut grant = class.clone().try_acquire_owned(2).expect("the tokens are there");
    assert!(class.clone().try_acquire_owned(1).is_err());
    grant.settle(1);
    assert_eq!((class.available(), class.limiter().available()), (1, 1));
    assert!(!class.is_closed());
    class.remove();
    assert!(class.is_closed() && !limiter.is_closed());
    assert_eq!((class.available(), limiter.available()), (0, 1));
    let other = limiter.class("b", Share::weight(1)).expect("valid");
    limiter.close();
    assert!(other.is_closed());

    let capped = Limiter::builder().max_in_flight(5).classes().build().expect("valid");
    let class = capped.class("a", Share::weight(1)).expect("valid");
    assert_eq!(class.wait(1).await, Err(ConsumeError::MustHold));
}
