use super::*;
use crate::Quota;

const MILLI: u64 = 1_000_000;

fn cached(terms: &QuotaTerms, left: u64, behind: u64, part: u64, at: u64) -> CachedReply {
    let mut cached = CachedReply::nothing(at);
    cached.record_answer(
        terms,
        &LeaseGrant { remaining: left, queued_before: behind, phase: part, ..LeaseGrant::default() },
        at,
        0,
    );
    cached
}

#[test]
fn tokens_minted_since_the_reply_are_expected_to_the_nanosecond() {
    let terms = QuotaTerms::of(&Quota::per_second(100).burst(20), 0).unwrap();
    let cached = cached(&terms, 3, 0, 0, 5 * MILLI);
    assert_eq!(cached.earliest(&terms, 3), 0);
    assert_eq!(cached.earliest(&terms, 4), 15 * MILLI);
    assert_eq!(cached.earliest(&terms, 20), 175 * MILLI);
    assert_eq!(cached.remaining(), 3);
}

#[test]
fn tokens_promised_to_others_come_first() {
    let terms = QuotaTerms::of(&Quota::per_second(100).burst(20), 0).unwrap();
    let cached = cached(&terms, 0, 7, 0, 0);
    assert_eq!(cached.earliest(&terms, 1), 80 * MILLI);
    assert_eq!(cached.remaining(), 0);
}

#[test]
fn other_nodes_may_return_tokens_at_once() {
    let terms = QuotaTerms::of(&Quota::per_second(100).burst(20), 0).unwrap();
    for (owed, nodes, at) in [(0, 0, 10), (0, 1, 0), (7, 1, 0)] {
        let mut cached = CachedReply::nothing(0);
        let answer = LeaseGrant { queued_before: owed, nodes, ..LeaseGrant::default() };
        cached.record_answer(&terms, &answer, 0, 0);
        assert_eq!(cached.not_before(&terms, 1) / MILLI, at, "{owed} {nodes}");
    }
}

#[test]
fn the_lower_bounds_count_from_the_request_and_the_retry_from_the_reply() {
    let terms = QuotaTerms::of(&Quota::per_second(100).burst(20), 0).unwrap();
    let mut cached = CachedReply::nothing(0);
    cached.record_answer(&terms, &LeaseGrant::default(), 50 * MILLI, 40 * MILLI);
    let instants = [cached.earliest(&terms, 1), cached.minted(&terms, 1), cached.not_before(&terms, 1)];
    assert_eq!(instants, [60 * MILLI, 20 * MILLI, 20 * MILLI]);
}

#[test]
fn a_store_that_reports_more_than_a_period_of_progress_breaks_nothing() {
    let terms = QuotaTerms::of(&Quota::per_second(100).burst(20), 0).unwrap();
    for phase in [1 << 40, u64::MAX] {
        let mut cached = CachedReply::nothing(0);
        cached.record_answer(&terms, &LeaseGrant { phase, ..LeaseGrant::default() }, 0, 0);
        assert!((1..=10 * MILLI).contains(&cached.earliest(&terms, 1)));
    }
}

#[test]
fn steps_come_at_the_ends_of_the_stores_periods() {
    let terms = QuotaTerms::of(&Quota::per_second(5).stepped(), 0).unwrap();
    // 300 ms of the period have passed.
    let cached = cached(&terms, 1, 0, 300_000, 0);
    assert_eq!(cached.earliest(&terms, 2), 700 * MILLI);
    assert_eq!(cached.earliest(&terms, 7), 1_700 * MILLI);
}

#[test]
fn a_reply_is_stale_once_the_bucket_is_full_and_not_before() {
    let terms = QuotaTerms::of(&Quota::per_second(10).burst(20), 0).unwrap();
    let cached = cached(&terms, 0, 0, 0, 0);
    assert!(!cached.is_stale(2_000 * MILLI - 1));
    assert!(cached.is_stale(2_000 * MILLI));
}

#[test]
fn frequent_requests_are_detected() {
    let mut cached = CachedReply::nothing(0);
    assert!((1..BUSY_REQUESTS).all(|_| cached.count(0)));
    assert!(!cached.count(BUSY_WINDOW - 1));
    assert!(cached.count(BUSY_WINDOW));
}
