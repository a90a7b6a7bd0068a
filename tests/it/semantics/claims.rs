//! Costs, the queue, cancellation, and refusals.

use super::*;

#[test]
fn cost_zero_is_granted_at_once_and_touches_nothing() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5)).max_in_flight(1).max_waiting(1));
    let _waiting = fixture.enter(1);
    fixture.limiter.pause_for(DAY);
    let before = fixture.limiter.snapshot();
    assert_eq!(fixture.limiter.try_acquire(0).unwrap().cost(), 0);
    assert_eq!(fixture.take(0).cost(), 0);
    let _within = assert_ready_ok!(spawn(fixture.limiter.consume(0).within(Duration::ZERO)).poll());
    assert_eq!(fixture.limiter.snapshot(), before);
}

#[test]
fn try_now_grants_what_is_there_and_otherwise_does_nothing() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(6).initial(6)).max_in_flight(4));
    let grant = fixture.limiter.consume(3).try_now().unwrap();
    assert_eq!((grant.cost(), grant.remaining(), fixture.limiter.snapshot().in_flight), (3, 1, Some(3)));
    let before = fixture.limiter.snapshot();
    let claim = fixture.limiter.consume(2).try_now().unwrap_err();
    assert_eq!(fixture.limiter.snapshot(), before);
    let mut second = spawn(claim);
    waits(&mut second);
    // Nothing passes a claim that waits.
    assert!(fixture.limiter.clone().consume_owned(1).try_now().is_err());
    drop(grant);
    let _second = served(&mut second);
    let _third = fixture.limiter.clone().consume_owned(1).try_now().unwrap();
    fixture.limiter.close();
    let mut closed = spawn(fixture.limiter.consume(1).try_now().unwrap_err());
    assert_eq!(assert_ready_err!(closed.poll()), ConsumeError::Closed);
}

#[test]
fn try_now_takes_no_more_than_a_claim_can() {
    let fixture = Fixture::new(Quota::per_second(1).burst(1 << 50));
    drop(fixture.limiter.consume(1 << 48).try_now().unwrap());
    for cost in [(1 << 48) + 1, 1 << 49, u64::MAX] {
        let claim = fixture.limiter.consume(cost).try_now().unwrap_err();
        assert!(matches!(assert_ready_err!(spawn(claim).poll()), ConsumeError::TooLarge { .. }), "{cost}");
    }
    assert_eq!(fixture.limiter.available(), 3 << 48);
}

#[test]
fn try_now_in_a_class_takes_its_tokens_from_the_limiter() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5).initial(5)).classes());
    let plain = fixture.limiter.class("plain", Share::weight(1)).unwrap();
    let under_a_ceiling = Share::weight(1).ceiling(one_per_milli(1).initial(1));
    let slow = fixture.limiter.class("slow", under_a_ceiling).unwrap();
    drop(plain.consume(2).try_now().unwrap());
    assert_eq!(fixture.limiter.available(), 3);
    // It comes back although the tokens are there, and is granted at once.
    let claim = slow.consume(1).try_now().unwrap_err();
    assert_eq!(fixture.limiter.available(), 3);
    drop(assert_ready_ok!(spawn(claim).poll()));
    assert_eq!(fixture.limiter.available(), 2);
}
