use super::*;
use crate::Quota;

const MILLI: u64 = 1_000_000;

const HUNDRED: Quota = Quota::per_second(100).burst(20);

/// The answer to a request that was sent at `asked` came at `at`, in nanoseconds.
fn cached(quota: Quota, answer: LeaseGrant, at: u64, asked: u64) -> (QuotaTerms, CachedReply) {
    let (terms, mut cached) = (QuotaTerms::of(&quota).unwrap(), CachedReply::nothing(asked));
    cached.record_answer(&terms, &answer, at, asked);
    (terms, cached)
}

#[test]
fn tokens_minted_since_the_reply_are_expected_to_the_nanosecond() {
    let answer = LeaseGrant { remaining: 3, ..LeaseGrant::default() };
    let (terms, cached) = cached(HUNDRED, answer, 5 * MILLI, 0);
    assert_eq!([3, 4, 20].map(|cost| cached.earliest(&terms, cost)), [0, 15 * MILLI, 175 * MILLI]);
    assert_eq!(cached.remaining(), 3);
}

#[test]
fn tokens_promised_to_others_come_first() {
    let (terms, cached) = cached(HUNDRED, LeaseGrant { queued_before: 7, ..LeaseGrant::default() }, 0, 0);
    assert_eq!((cached.earliest(&terms, 1), cached.remaining()), (80 * MILLI, 0));
}

#[test]
fn other_nodes_may_return_tokens_at_once() {
    for (queued_before, nodes, at) in [(0, 0, 10), (0, 1, 0), (7, 1, 0)] {
        let (terms, cached) = cached(HUNDRED, LeaseGrant { queued_before, nodes, ..LeaseGrant::default() }, 0, 0);
        assert_eq!(cached.not_before(&terms, 1) / MILLI, at, "{queued_before} {nodes}");
    }
}

#[test]
fn the_lower_bounds_count_from_the_request_and_the_retry_from_the_reply() {
    let (terms, cached) = cached(HUNDRED, LeaseGrant::default(), 50 * MILLI, 40 * MILLI);
    let instants = [cached.earliest(&terms, 1), cached.minted(&terms, 1), cached.not_before(&terms, 1)];
    assert_eq!(instants, [60 * MILLI, 20 * MILLI, 20 * MILLI]);
}

#[test]
fn a_store_that_reports_more_than_a_period_of_progress_breaks_nothing() {
    for phase in [1 << 40, u64::MAX] {
        let (terms, cached) = cached(HUNDRED, LeaseGrant { phase, ..LeaseGrant::default() }, 0, 0);
        assert!((1..=10 * MILLI).contains(&cached.earliest(&terms, 1)));
    }
}

#[test]
fn steps_come_at_the_ends_of_the_stores_periods() {
    // 300 ms of the period have passed.
    let answer = LeaseGrant { remaining: 1, phase: 300_000, ..LeaseGrant::default() };
    let (terms, cached) = cached(Quota::per_second(5).stepped(), answer, 0, 0);
    assert_eq!([2, 7].map(|cost| cached.earliest(&terms, cost)), [700 * MILLI, 1_700 * MILLI]);
}

#[test]
fn a_reply_is_stale_once_the_bucket_is_full_and_not_before() {
    let (_, cached) = cached(Quota::per_second(10).burst(20), LeaseGrant::default(), 0, 0);
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
