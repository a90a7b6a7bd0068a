//! Windows that slide: what comes back when, what is refused, and where they are not possible.

use super::*;

fn sliding(amount: u64) -> Quota {
    Quota::new(amount, 320 * NANO).sliding()
}

#[test]
fn all_goes_at_once_and_comes_back_a_period_after_it_went() {
    let fixture = Fixture::new(sliding(60));
    fixture.pass(5 * NANO);
    let _grant = fixture.take(60);
    let mut waiting = [fixture.enter(1), fixture.enter(60)];
    // A slot of ten nanoseconds ends at the tenth.
    assert_eq!(fixture.denied(1).retry_after, Some(965 * NANO), "behind both");
    fixture.pass(324 * NANO);
    waiting.iter_mut().for_each(waits);
    fixture.pass(NANO);
    let _first = served(&mut waiting[0]);
    fixture.pass(319 * NANO);
    waits(&mut waiting[1]);
    fixture.pass(NANO);
    assert_eq!(served(&mut waiting[1]).remaining(), 0);
}

/// From the latest end, a refund of the first grant would let the second come back with it.
#[test]
fn a_refund_comes_out_of_the_oldest_end_and_counts_for_one_period() {
    let fixture = Fixture::new(sliding(20));
    let mut first = fixture.take(12);
    fixture.pass(100 * NANO);
    let mut second = fixture.take(8);
    second.settle(0);
    assert_eq!(fixture.limiter.available(), 8);
    fixture.pass(220 * NANO);
    assert_eq!(fixture.limiter.available(), 12, "the rest of the first grant, as if it were the second");
    let _third = fixture.take(12);
    first.settle(0);
    assert_eq!(fixture.limiter.available(), 0, "its tokens are back already");
    fixture.pass(100 * NANO);
    assert_eq!(fixture.limiter.available(), 8);
}

#[test]
fn a_claim_for_more_than_the_amount_is_refused() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100)).quota(sliding(7)).quota(sliding(5)));
    let refused = ConsumeError::TooLarge { cost: 6, most: 5, by: Some(Bound::Quota(2)), quota_name: None };
    assert_eq!(assert_ready_err!(spawn(fixture.limiter.consume(6)).poll()), refused);
    assert_eq!(assert_ready_err!(spawn(fixture.limiter.consume(6).within(DAY)).poll()), refused);
    assert_eq!(fixture.limiter.estimate(6), None);
    let at_once = TryAcquireError::TooLarge { cost: 6, most: 5, by: Bound::Quota(2), quota_name: None };
    assert_eq!(fixture.limiter.try_acquire(6).unwrap_err(), at_once);
}

#[test]
fn a_claim_that_waits_when_the_amount_falls_below_it_is_granted_alone() {
    let fixture = Fixture::new(sliding(9));
    let _first = fixture.take(2);
    fixture.pass(100 * NANO);
    let _second = fixture.take(2);
    let mut waiting = [fixture.enter(8), fixture.enter(1)];
    fixture.limiter.set_quota(0, sliding(3)).unwrap();
    fixture.pass(319 * NANO);
    waits(&mut waiting[0]);
    fixture.pass(NANO);
    let _alone = served(&mut waiting[0]);
    fixture.pass(319 * NANO);
    waits(&mut waiting[1]);
    fixture.pass(NANO);
    let _next = served(&mut waiting[1]);
}

#[test]
fn another_kind_of_quota_keeps_the_level_and_another_window_what_is_in_it() {
    let fixture = Fixture::new(Quota::new(1, MILLI).burst(10));
    let _grant = fixture.take(4);
    fixture.limiter.set_quota(0, sliding(20)).unwrap();
    assert_eq!(fixture.level(), 6, "the other 14 count as granted now");
    fixture.limiter.set_quota(0, sliding(23)).unwrap();
    assert_eq!(fixture.level(), 9);
    fixture.pass(320 * NANO);
    assert_eq!(fixture.level(), 23);
    let _grant = fixture.take(13);
    fixture.limiter.set_quota(0, Quota::new(4, 160 * NANO).sliding()).unwrap();
    assert_eq!(fixture.level(), -9);
    fixture.pass(160 * NANO);
    assert_eq!(fixture.level(), 4);
    fixture.limiter.set_quota(0, one_per_milli(64_000)).unwrap();
    for _ in 0..10 {
        fixture.pass(MILLI);
        drop(fixture.take(1));
    }
    assert_eq!(fixture.level(), 4);
}

#[test]
fn a_sliding_quota_is_refused_where_no_window_is_counted() {
    let quota = sliding(9);
    let error = |setting| ConfigError::SlidingUnsupported { quota: 0, quota_name: None, setting };
    assert_eq!(Limiter::builder().quota(quota).classes().build().unwrap_err(), error("classes"));
    assert_eq!(Bucket::new(quota, Duration::ZERO).unwrap_err(), error("Bucket"));
    let classes = Limiter::builder().quota(one_per_milli(9)).classes().build().unwrap();
    assert_eq!(classes.set_quota(0, quota).unwrap_err(), error("classes"));
    for (part, share) in
        [("floor", tollgate::Share::weight(1).floor(quota)), ("ceiling", tollgate::Share::weight(1).ceiling(quota))]
    {
        let reason = Box::new(error(part));
        let refused = classes.class("batch", share).unwrap_err();
        assert_eq!(refused, ConfigError::BadShare { class: "batch".to_owned(), part, reason });
    }
    let burst = Limiter::builder().quota_named("minute", quota.burst(9)).build().unwrap_err();
    assert_eq!(burst, ConfigError::SlidingBurst { quota: 0, quota_name: Some("minute"), burst: 9, amount: 9 });
    for text in [burst.to_string(), error("classes").to_string()] {
        assert!(text.contains("is sliding"), "{text}");
    }
}

#[test]
fn neither_a_parent_nor_a_store_counts_windows() {
    let error = |setting| ConfigError::SlidingUnsupported { quota: 0, quota_name: None, setting };
    let builder = || KeyedLimiter::<u64>::builder().quota(Quota::per_second(9));
    let parent = Limiter::new(sliding(9)).unwrap();
    assert_eq!(builder().parent(&parent).build().unwrap_err(), error("parent"));
    let parent = Limiter::new(one_per_milli(9)).unwrap();
    let _keys = builder().parent(&parent).build().unwrap();
    assert_eq!(parent.set_quota(0, sliding(9)).unwrap_err(), error("parent"));
    assert_eq!(
        Limiter::builder()
            .quota(sliding(9))
            .distributed(tollgate::distributed::MemoryStore::new())
            .build()
            .unwrap_err(),
        error("distributed")
    );
}
