//! All calls, in paused time over stores in memory.

use super::{millis, node, nodes, one_node};
use crate::fixture::*;
use tollgate::{DistributedKeyedBuilder, DistributedKeyedLimiter};

#[tokio::test(start_paused = true)]
async fn waiters_of_a_key_are_served_in_order_and_at_their_instants() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(1);
    let users = [node(&store, quota), node(&store, quota)];
    let order = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let mut all = Vec::new();
    for number in 0..20 {
        let (users, order) = (users[number / 10].clone(), order.clone());
        all.push(tokio::spawn(async move {
            drop(users.consume(&1, 1).await.unwrap());
            order.lock().unwrap().push((number, began.elapsed().as_millis()));
        }));
        sleep(Duration::from_micros(1)).await;
    }
    try_join_all(all).await.unwrap();
    let order = order.lock().unwrap();
    for node in 0..2 {
        assert!(
            order.iter().filter(|(number, _)| number / 10 == node).is_sorted(),
            "each node's own queue is strictly in order"
        );
    }
    let instants: Vec<u128> = order.iter().map(|(_, at)| *at).collect();
    assert!(instants.iter().zip(0..).all(|(at, nth)| at.abs_diff(nth * 100) <= 1), "{instants:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_cancelled_during_its_request_loses_at_most_its_own_tokens() {
    let store = store_at(millis(20));
    let users = node(&store, Quota::per_hour(10));
    for _ in 0..3 {
        // The request arrives, and its answer is lost.
        assert!(timeout(millis(30), users.consume(&1, 2)).await.is_err());
        // The request does not even arrive.
        assert!(timeout(millis(10), users.consume(&1, 2)).await.is_err());
    }
    // Three times two tokens were taken. A deadline for tokens is no deadline for the network, so it does not end a
    // request.
    let began = Instant::now();
    assert_eq!(users.consume(&1, 3).within(Duration::ZERO).await.unwrap().remaining(), 1);
    assert_eq!(began.elapsed(), millis(40));
}

#[tokio::test(start_paused = true)]
async fn within_is_kept_on_every_path_of_a_claim() {
    let store = store_at(millis(5));
    let users = node(&store, Quota::per_second(10).burst(1));
    let began = Instant::now();
    drop(users.consume(&1, 1).within(millis(10)).await.unwrap());
    assert_eq!(began.elapsed(), millis(10));
    // The cached reply counts from the answer; the limiter sends one more request, and its claim enters the queue.
    drop(users.consume(&1, 1).within(millis(200)).await.unwrap());
    assert!((105..=115).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    let began = Instant::now();
    assert!(users.consume(&1, 3).within(millis(250)).await.is_err());
    assert!(began.elapsed() <= millis(250), "{:?}", began.elapsed());
    // Another node has to send a request first.
    let began = Instant::now();
    let refused = node(&store, Quota::per_second(10).burst(1)).consume(&1, 1).within(millis(1)).await.unwrap_err();
    assert!(matches!(refused, ConsumeError::TooLate { .. }), "{refused}");
    assert_eq!(began.elapsed(), millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_one_without_a_wait_finds_the_tokens() {
    let store = store_at(millis(20));
    let users = node(&store, Quota::per_second(10));
    let limiter = users.limiter(&1).unwrap();
    let waiting = tokio::spawn(async move { limiter.consume(1).await.map(drop) });
    sleep(millis(10)).await;
    // While the first claim's request is in flight.
    let hasty = users.consume(&1, 5).within(millis(10)).await.unwrap_err();
    assert!(matches!(hasty, ConsumeError::TimedOut { .. }), "{hasty}");
    waiting.await.unwrap().unwrap();
    assert_eq!(users.available(&1), 0);
    sleep(millis(41)).await;
    drop(users.consume(&1, 5).within(Duration::ZERO).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn settlements_are_paid_also_by_removed_keys() {
    let (_store, [one, two]) = nodes(Quota::per_second(10));
    let mut grant = one.consume(&1, 1).await.unwrap();
    sleep(millis(100)).await;
    grant.settle(31);
    assert_eq!((grant.cost(), one.snapshot().keys), (31, 1));
    drop(grant);
    // The key's limiter has sent the debt to the store, where other nodes see it. The limiter is not removed before
    // that.
    sleep(millis(1_000)).await;
    let refused = two.consume(&1, 1).within(millis(10)).await.unwrap_err();
    assert!(matches!(refused, ConsumeError::TooLate { .. }), "{refused}");
    assert_eq!(one.snapshot().keys, 1);
    // 31 tokens of a burst of 10: paid after 2.1 s. Later tokens are available to all nodes.
    sleep(millis(3_500)).await;
    assert_eq!(one.snapshot().keys, 0);
    assert!(two.consume(&1, 10).within(Duration::ZERO).await.is_ok());
    let mut refund = two.consume(&3, 8).await.unwrap();
    refund.settle(2);
    assert_eq!(refund.cost(), 2);
}

#[tokio::test(start_paused = true)]
async fn keys_have_quotas_and_names_of_their_own() {
    let store = MemoryStore::new();
    let by_plan = |key: &(bool, u32)| Quota::per_hour(if key.0 { 50 } else { 2 });
    let build = || {
        let name = |key: &(bool, u32)| format!("{}-{}", key.0, key.1);
        DistributedKeyedLimiter::builder_by(store.clone(), name).quota_by(by_plan).build().unwrap()
    };
    let (one, two) = (build(), build());
    let quotas = (one.quotas(&(true, 1)), one.quotas(&(false, 1)));
    assert_eq!(quotas, (Quota::per_hour(50).into(), Quota::per_hour(2).into()));
    drop(one.consume(&(true, 1), 30).await.unwrap());
    assert_eq!(two.consume(&(true, 1), 20).within(millis(1)).await.unwrap().remaining(), 0);
    drop(one.consume(&(false, 1), 2).await.unwrap());
    assert!(two.consume(&(false, 1), 1).within(millis(1)).await.is_err());
}

/// However stores and keys are named.
#[tokio::test(start_paused = true)]
async fn no_two_keys_of_different_stores_share_a_quota() {
    let store = MemoryStore::new();
    let users = |name: &str| {
        let builder = DistributedKeyedLimiter::<String>::builder(store.beside(name));
        builder.quota(Quota::per_hour(10)).build().unwrap()
    };
    let spelled = [("a", "b:c"), ("a:b", "c"), ("a", ":b:c"), ("a:", "b:c"), ("", "a:b:c"), ("1", "1:1"), ("1:1", "1")];
    for (name, key) in spelled {
        drop(users(name).consume(&key.to_owned(), 10).within(Duration::ZERO).await.unwrap());
    }
    let plain =
        |name: &str| Limiter::builder().quota(Quota::per_hour(10)).distributed(store.beside(name)).build().unwrap();
    for name in ["a:b:c", "1:a:b:c", "3:a:b:c", ":a:b:c", "0::a:b:c"] {
        drop(timeout(millis(1_000), plain(name).consume(10)).await.expect("the tokens are its own").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn the_limiter_of_a_key_is_a_node_of_its_store() {
    let (_store, users) = one_node(Quota::per_second(10));
    let limiter = users.limiter(&1).unwrap();
    drop(limiter.consume(6).await.unwrap());
    drop(users.consume(&1, 4).await.unwrap());
    let began = Instant::now();
    let plain = Limiter::new(Quota::per_second(1_000)).unwrap();
    drop(tollgate::join([(&limiter, 1), (&plain, 1)]).await.unwrap());
    assert_eq!(began.elapsed(), millis(100));
    // The limiter is kept for as long as a handle exists.
    sleep(millis(10_000)).await;
    assert_eq!(users.snapshot().keys, 1);
    drop(limiter);
    sleep(millis(2_000)).await;
    assert_eq!(users.snapshot().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_all_callers() {
    let (_store, users) = one_node(Quota::per_hour(1));
    drop(users.consume(&1, 1).await.unwrap());
    let waiting = users.clone();
    let waiting = tokio::spawn(async move { waiting.consume(&1, 1).await.map(drop) });
    sleep(millis(10)).await;
    assert_eq!((users.snapshot().keys_waiting, users.snapshot().waiting_tasks), (1, 1));
    users.close();
    assert_eq!(waiting.await.unwrap(), Err(ConsumeError::Closed));
    assert!(matches!(users.consume(&2, 1).await, Err(ConsumeError::Closed)));
    assert!(matches!(users.try_acquire(&2, 1), Err(TryAcquireError::Closed)));
    assert!(users.is_closed() && users.snapshot().closed);
    assert!(matches!(users.limiter(&3).unwrap().consume(1).await, Err(ConsumeError::Closed)));
}

/// Also for a key with a cached reply, and a thread whose key finds no place for a limiter.
#[tokio::test(start_paused = true)]
async fn a_closed_limiter_shows_no_tokens_and_refuses_threads() {
    let builder = DistributedKeyedLimiter::builder(MemoryStore::new()).quota(Quota::per_hour(5)).max_keys(1);
    let users: DistributedKeyedLimiter<u64> = builder.build().unwrap();
    drop(users.consume(&1, 1).await.unwrap());
    let _only = users.limiter(&2).unwrap();
    assert_eq!((users.available(&1), users.estimate(&1, 5)), (4, Some(Duration::from_secs(720))));
    users.close();
    assert_eq!((users.available(&1), users.estimate(&1, 5), users.reported_quotas(&1)[0].available), (0, None, 0));
    let refusal = users.blocking_consume(&1, 1).map(drop);
    assert_eq!(refusal, Err(ConsumeError::Closed));
}

#[tokio::test(start_paused = true)]
async fn bad_settings_are_errors() {
    let store = MemoryStore::new();
    let builder = || DistributedKeyedLimiter::<u64>::builder(store.clone());
    let said = |builder: DistributedKeyedBuilder<u64>| builder.build().map(drop).unwrap_err();
    let quota = Quota::per_second(10);
    assert_eq!(said(builder()), ConfigError::NoQuota);
    assert_eq!(said(builder().quota(Quota::manual(1))), QuotaError::KeyedManual.into());
    assert_eq!(said(builder().quota(quota.initial(3))), QuotaError::KeyedInitial { initial: 3, burst: 10 }.into());
    let named = said(builder().quota_named("day", Quota::manual(1)));
    assert_eq!(named, ConfigError::BadQuota { quota: 0, quota_name: Some("day"), reason: QuotaError::KeyedManual });
    let beyond = Quota::new((1 << 61) - 1, millis(1_000));
    assert_eq!(said(builder().quota(beyond)), QuotaError::DistributedInexact.into());
    assert_eq!(said(builder().quota(quota).max_keys(0)), ConfigError::NoKeys);
    assert_eq!(said(builder().quota(quota).quota_by(move |_| quota)), ConfigError::QuotaAndQuotaBy);
    assert_eq!(said(builder().quota(quota).quota(quota)), ConfigError::SetTwice { setting: "quota" });
    let outside = builder().quota(quota);
    let outside = std::thread::spawn(move || outside.build().map(drop));
    assert_eq!(outside.join().unwrap(), Err(ConfigError::DistributedOutsideRuntime));
    let users = builder().quota(quota).build().unwrap();
    let refused = users.consume(&1, 1 << 60).await.unwrap_err();
    assert_eq!(refused, too_large(1 << 60, 10, Bound::Quota(0)));
    assert_eq!(users.consume(&1, 0).await.unwrap().cost(), 0);
    assert_eq!(store.asks(), 0);
}

#[tokio::test(start_paused = true)]
async fn queues_are_bounded_by_max_waiting() {
    let store = MemoryStore::new();
    let builder = DistributedKeyedLimiter::builder(store).quota(Quota::per_hour(1)).max_waiting(1);
    let users = builder.build().unwrap();
    drop(users.consume(&1, 1).await.unwrap());
    let waiting = users.clone();
    let waiting = tokio::spawn(async move { waiting.consume(&1, 1).await.map(drop) });
    sleep(millis(1)).await;
    assert!(matches!(users.consume(&1, 1).await, Err(ConsumeError::QueueFull { waiting: 1 })));
    assert!(matches!(users.blocking_consume(&1, 1), Err(ConsumeError::QueueFull { waiting: 1 })));
    assert_eq!(users.snapshot().refused, 2);
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn outside_of_a_runtime_a_claim_is_refused() {
    let (_store, users) = one_node(Quota::per_hour(1));
    let outside = std::thread::spawn(move || {
        let answer = format!("{:?}", tokio_test::task::spawn(users.consume(&1, 1)).poll());
        (answer, users)
    });
    let (answer, users) = outside.join().unwrap();
    assert!(answer.contains("NoRuntime"), "{answer}");
    drop(users.consume(&1, 1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn surplus_tokens_go_to_the_limiter_of_the_key_up_to_its_allowance() {
    let (_store, users) = one_node(Quota::per_hour(100));
    let mut grant = users.consume(&1, 30).await.unwrap();
    // The tokens it may keep: the twenty that it is denied now, and has later.
    assert!(users.try_acquire(&1, 20).is_err());
    sleep(millis(1)).await;
    drop(users.try_acquire(&1, 20).unwrap());
    let before = users.available(&1);
    grant.settle(23);
    assert_eq!((grant.cost(), users.available(&1)), (23, before + 7));
    grant.settle(21);
    assert_eq!((grant.cost(), users.available(&1)), (21, before + 9));
    grant.settle(0);
    assert_eq!((grant.cost(), users.available(&1)), (0, 20), "no more than the limiter may keep");
}

#[tokio::test(start_paused = true)]
async fn keys_with_a_limiter_and_all_grants_are_counted() {
    let (_store, users) = one_node(Quota::per_second(10));
    drop(users.consume(&1, 4).await.unwrap());
    assert_eq!((users.snapshot().keys, users.available(&1)), (0, 6));
    assert_eq!(users.reported_quotas(&1)[0].available, 6);
    let limiter = users.limiter(&1).unwrap();
    drop(limiter.consume(1).await.unwrap());
    let snapshot = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.granted, snapshot.refused), (1, 5, 0));
    drop(limiter);
    sleep(millis(5_000)).await;
    let snapshot = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.granted), (0, 5), "the grants of a removed limiter still count");
    assert!(users.try_acquire(&1, 1 << 50).is_err());
    assert_eq!(users.snapshot().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_a_key_of_this_node() {
    let (_store, users) = one_node(Quota::per_second(10));
    let began = Instant::now();
    users.pause_for(&1, millis(5_000));
    sleep(millis(3_000)).await;
    assert!(users.try_acquire(&1, 1).is_err());
    drop(users.consume(&2, 1).await.unwrap());
    assert_eq!(began.elapsed(), millis(3_000));
    assert!(users.consume(&1, 1).within(millis(10)).await.is_err());
    drop(users.consume(&1, 1).await.unwrap());
    assert!(began.elapsed() >= millis(5_000), "the pause outlives an unused limiter");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_serves_its_key_on_this_node() {
    let (_store, users) = one_node(Quota::per_second(10));
    let began = Instant::now();
    [1, 2].iter().for_each(|key| users.pause_for(key, millis(60_000)));
    let claims = [1, 2].map(|key| {
        let users = users.clone();
        tokio::spawn(async move {
            drop(users.consume(&key, 1).await.unwrap());
            Instant::now()
        })
    });
    sleep(millis(1_000)).await;
    users.resume(&1);
    users.resume(&4);
    sleep(millis(1_000)).await;
    assert!(users.try_acquire(&2, 1).is_err(), "it is paused still");
    drop(users.consume(&5, 1).await.unwrap());
    assert!(users.snapshot().keys < 3, "claims that need no limiter make none");
    assert!(began.elapsed() < millis(3_000), "{:?}", began.elapsed());
    sleep(millis(1_000)).await;
    users.resume(&2);
    for (claim, at) in claims.into_iter().zip([1_000, 3_000]) {
        let waited = (claim.await.unwrap() - began).as_millis();
        assert!((at..at + 500).contains(&waited), "{waited} instead of {at} ms");
    }
}

/// A thread waits in the queue of the key's limiter. The limiter's tasks run on the runtime on which the keyed limiter
/// was built.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_waits_for_a_distributed_key() {
    let (_store, users) = one_node(Quota::per_second(100).burst(4));
    let blocked = std::thread::spawn(move || {
        let granted: u64 = (0..6).map(|_| users.blocking_consume(&1, 1).unwrap().cost()).sum();
        let late = users.blocking_consume_within(&1, 4, millis(10)).map(drop);
        (granted, late)
    });
    let (granted, late) = tokio::task::spawn_blocking(|| blocked.join().unwrap()).await.unwrap();
    assert_eq!(granted, 6);
    assert!(matches!(late, Err(ConsumeError::TooLate { .. } | ConsumeError::TimedOut { .. })), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_on_a_key_with_a_bad_quota_are_refused() {
    let quota_by = |key: &u32| if *key == 0 { Quota::manual(17) } else { Quota::per_second(9) };
    let keyed = DistributedKeyedLimiter::builder(MemoryStore::new()).quota_by(quota_by).build().unwrap();
    let at_once = keyed.try_acquire(&0, 1).map(drop).unwrap_err();
    assert!(matches!(at_once, TryAcquireError::BadQuota(_)), "{at_once}");
    let waits = keyed.consume(&0, 1).await.map(drop).unwrap_err();
    assert!(waits.to_string().contains("manual") && at_once.to_string().contains("manual"), "{waits}");
    assert_eq!((keyed.available(&0), keyed.estimate(&0, 1)), (0, None));
    assert!(keyed.limiter(&0).is_err());
    keyed.pause_for(&0, Duration::from_secs(1));
    assert_eq!(keyed.snapshot().refused, 2);
    assert!(keyed.consume(&7, 9).await.is_ok());
}
