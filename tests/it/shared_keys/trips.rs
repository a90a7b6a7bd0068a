//! Which calls send requests to the stores, and which do not.

use super::{millis, node, nodes, one_node};
use crate::fixture::*;

#[tokio::test(start_paused = true)]
async fn a_key_with_one_call_costs_one_round_trip_and_no_memory() {
    let (store, users) = one_node(Quota::per_second(10));
    for key in 0..5_000 {
        let grant = users.consume(&key, 3).within(millis(100)).await.unwrap();
        assert_eq!((grant.cost(), grant.remaining()), (3, 7));
    }
    let snapshot = users.snapshot();
    assert_eq!((store.asks(), snapshot.store.round_trips, snapshot.store.granted), (5_000, 5_000, 15_000));
    assert_eq!((snapshot.keys, snapshot.store.returned, snapshot.store.nodes), (0, 0, 0));
    sleep(millis(60_000)).await;
    assert_eq!(store.asks(), 5_000, "no request is sent for a key without calls");
    // A later call finds that the other keys need not be remembered.
    for key in 10_000..15_000 {
        drop(users.consume(&key, 1).await.unwrap());
    }
    assert!(users.snapshot().cached <= 5_000 + 512 * 8, "{:?}", users.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_locally_until_tokens_can_be_available() {
    let (store, [one, two]) = nodes(Quota::per_minute(1).burst(2));
    drop(one.consume(&7, 2).await.unwrap());
    assert_eq!(store.asks(), 1);
    let began = Instant::now();
    for tries in 0..3_000_u64 {
        // A node that was granted the last tokens knows that without a request; another node sends one.
        for node in [&one, &two] {
            let refused = node.consume(&7, 1).within(millis(10)).await.unwrap_err();
            let left = millis(60_000) - began.elapsed();
            assert_eq!(refused, too_late(left, millis(10)));
            let Err(TryAcquireError::Denied(denied)) = node.try_acquire(&7, 1) else { panic!("the bucket is empty") };
            assert_eq!((denied.retry_after, denied.remaining, denied.by), (Some(left), 0, Bound::Quota(0)));
            assert_eq!(node.estimate(&7, 1), Some(left));
        }
        assert_eq!(store.asks(), 2, "after {tries} tries");
        sleep(millis(10)).await;
    }
    assert_eq!((one.snapshot().spared, two.snapshot().spared), (6_000, 5_999));
    assert_eq!((two.snapshot().keys, two.snapshot().cached), (0, 1));
    // A caller that retries after `retry_after` is served, with one request.
    sleep(millis(60_000) - began.elapsed()).await;
    drop(two.consume(&7, 1).within(millis(10)).await.unwrap());
    assert_eq!(store.asks(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_takes_no_tokens() {
    let (_store, [one, two]) = nodes(Quota::per_second(10).burst(10));
    drop(one.consume(&1, 10).await.unwrap());
    for _ in 0..500 {
        assert!(two.consume(&1, 8).within(millis(100)).await.is_err());
        sleep(millis(1)).await;
    }
    // Half a second's tokens are available, and five more come in another half.
    let began = Instant::now();
    drop(one.consume(&1, 5).await.unwrap());
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(one.consume(&1, 5).await.unwrap());
    assert_eq!(began.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_storm_on_empty_keys_sends_one_request_per_possible_token() {
    let (store, users) = one_node(Quota::per_second(2).burst(4));
    let (mut granted, mut tries) = (0, 0);
    for _ in 0..2_000 {
        for key in 0..50 {
            granted += u64::from(users.consume(&key, 1).within(Duration::ZERO).await.is_ok());
            tries += 1;
        }
        sleep(millis(5)).await;
    }
    // Ten seconds: each key had its burst and its rate, except for the token that is about to come.
    assert!((50 * 23..=50 * 24).contains(&granted), "{granted}");
    assert!(store.asks() <= granted + 50, "{} requests for {granted} tokens in {tries} tries", store.asks());
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_has_a_lease_that_is_returned_when_it_is_idle() {
    let (store, users) = one_node(Quota::per_second(1_000).burst(500));
    for _ in 0..5_000 {
        drop(users.consume(&1, 1).await.unwrap());
        drop(users.consume(&2, 1).await.unwrap());
        sleep(millis(2)).await;
    }
    let snapshot = users.snapshot();
    assert_eq!(snapshot.keys, 2);
    assert!(snapshot.kept > 0 && snapshot.store.round_trips <= 10_000 / 20, "{snapshot:?}");
    sleep(millis(3_000)).await;
    let snapshot = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.kept), (0, 0));
    assert_eq!(snapshot.store.granted - snapshot.store.returned, 10_000, "{snapshot:?}");
    let asks = store.asks();
    sleep(millis(600_000)).await;
    assert_eq!(store.asks(), asks, "an idle node sends no requests");
}

#[tokio::test(start_paused = true)]
async fn try_acquire_finds_tokens_when_it_comes_again() {
    let (_store, users) = one_node(Quota::per_second(10));
    assert!(matches!(users.try_acquire(&1, 3), Err(TryAcquireError::Denied(denied)) if denied.retry_after.is_none()));
    sleep(millis(1)).await;
    assert_eq!(users.available(&1), 3);
    assert_eq!(users.try_acquire(&1, 3).unwrap().cost(), 3);
    assert!(matches!(
        users.try_acquire(&1, 6),
        Err(TryAcquireError::TooLarge { cost: 6, most: 5, by: Bound::Quota(0), quota_name: None })
    ));
    // No calls for a long time: the lease goes back.
    assert!(users.try_acquire(&2, 5).is_err());
    sleep(millis(5_000)).await;
    assert_eq!((users.snapshot().keys, users.available(&2)), (0, 0));
    drop(users.consume(&2, 10).within(Duration::ZERO).await.unwrap());
}

/// Such calls never wait for an answer, and still get all the tokens: at worst with a request per token, not per try.
#[tokio::test(start_paused = true)]
async fn callers_that_never_wait_get_all_tokens() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(200).burst(40);
    let nodes = [node(&store, quota), node(&store, quota)];
    store.set_latency(millis(1));
    let (mut granted, mut tries) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < millis(5_000) {
        for node in &nodes {
            tries += 1;
            granted += u64::from(node.consume(&1, 1).within(Duration::ZERO).await.is_ok());
        }
        sleep(Duration::from_micros(300)).await;
    }
    assert!((900..=1_040).contains(&granted), "{granted}");
    assert!(store.asks() <= granted + 20, "{} requests for {granted} tokens in {tries} tries", store.asks());
}

/// With many keys, replies that no longer apply are discarded, and no others.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_locally_also_after_many_keys() {
    let (store, users) = one_node(Quota::per_hour(1));
    for key in 0..100 {
        drop(users.consume(&key, 1).await.unwrap());
    }
    sleep(millis(5_000)).await;
    for key in 1_000..11_000 {
        drop(users.consume(&key, 1).await.unwrap());
    }
    assert_eq!(store.asks(), 10_100);
    for key in 0..100 {
        assert!(users.consume(&key, 1).within(millis(1)).await.is_err());
    }
    assert_eq!(store.asks(), 10_100);
}

/// Half of a burst is the most that a limiter may keep: for a larger claim the store is requested directly.
#[tokio::test(start_paused = true)]
async fn large_claims_request_what_they_can_get() {
    let (store, users) = one_node(Quota::per_second(100).burst(10));
    for _ in 0..20 {
        drop(users.consume(&1, 9).within(Duration::ZERO).await.unwrap());
        sleep(millis(90)).await;
    }
    assert_eq!((store.asks(), users.snapshot().keys), (20, 0));
}

/// A limiter with a request in flight is not removed, however long that takes: otherwise its tokens would never be
/// found.
#[tokio::test(start_paused = true)]
async fn try_acquire_finds_tokens_over_a_slow_connection_too() {
    let store = store_at(millis(300));
    let users = node(&store, Quota::per_second(10));
    assert!(users.try_acquire(&1, 3).is_err());
    sleep(millis(650)).await;
    assert_eq!(users.try_acquire(&1, 3).unwrap().cost(), 3);
}

/// Each key has a store of its own, so their number does not matter.
#[tokio::test(start_paused = true)]
async fn a_key_for_which_a_claim_waits_for_long_costs_few_requests() {
    const KEYS: u64 = 500;
    let (_, users) = one_node(Quota::per_minute(1));
    // The first token of each key is there.
    for grants in [0, KEYS] {
        assert_eq!(users.snapshot().store.round_trips, grants);
        let waiting: JoinSet<_> = (0..KEYS).map(|key| users.consume(&key, 1)).collect();
        waiting.join_all().await.into_iter().for_each(|granted| drop(granted.unwrap()));
    }
    let requests = users.snapshot().store.round_trips;
    println!("{requests} requests for {KEYS} grants");
    assert!(requests <= 20 * KEYS, "{requests} requests for {KEYS} grants");
}

#[tokio::test(start_paused = true)]
async fn a_key_with_rare_calls_needs_no_limiter() {
    let (store, users) = one_node(Quota::per_second(100));
    for _ in 0..40 {
        drop(users.consume(&1, 1).await.unwrap());
        assert_eq!(users.snapshot().keys, 0);
        sleep(millis(200)).await;
    }
    assert_eq!(store.asks(), 40);
}

/// The limiter knows better. A reply cached beside it would outlive the limiter.
#[tokio::test(start_paused = true)]
async fn a_reply_for_a_key_that_has_a_limiter_is_not_cached() {
    let store = store_at(millis(5));
    let users = node(&store, Quota::per_second(10));
    let asking = users.clone();
    let asking = tokio::spawn(async move { drop(asking.consume(&1, 1).await.unwrap()) });
    sleep(millis(1)).await;
    assert_eq!(users.snapshot().cached, 1);
    let limiter = users.limiter(&1).unwrap();
    asking.await.unwrap();
    assert_eq!((users.snapshot().cached, users.snapshot().keys), (0, 1));
    drop(limiter);
}

/// Another node was promised tokens when the store replied, and has returned them since.
#[tokio::test(start_paused = true)]
async fn a_claim_in_time_is_not_refused_by_what_was_promised_to_others() {
    let (_store, [one, two]) = nodes(Quota::per_second(100).burst(20));
    drop(one.consume(&1, 20).await.unwrap());
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.consume(&1, 20).await.map(drop) }
    });
    sleep(millis(1)).await;
    assert!(two.consume(&1, 1).within(millis(15)).await.is_err(), "200 ms are promised");
    waiting.abort();
    sleep(millis(1)).await;
    _ = two.consume(&1, 1).within(millis(15)).await.expect("a token comes in 8 ms");
}
