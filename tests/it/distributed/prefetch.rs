//! Nodes that ask for tokens ahead: `Store::prefetch`.

use super::fleet::{Fleet, HOT};
use super::nodes::{limiter, millis};
use tokio::time::{Instant, sleep};
use tollgate::distributed::MemoryStore;
use tollgate::{ConfigError, Limiter, Quota};

/// One hot quota, with a burst of 100 and 8 callers on each of 4 nodes.
#[tokio::test(start_paused = true)]
async fn a_hot_quota_needs_no_more_than_20_requests_for_1_000_tokens() {
    let figures = Fleet { prefetch: 200, ..HOT }.run().await;
    assert!(figures.trips <= 20.0 && figures.rate >= 0.99 && figures.fairness >= 0.95, "{figures:?}");
    assert!(figures.excess <= 1e-6, "{figures:?}");
}

/// The time in which the tokens of all nodes are minted, and a quarter more.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_waits_no_longer_than_for_what_the_others_were_promised() {
    for (prefetch, bound) in [(0, 125), (200, 250), (400, 500)] {
        let store = MemoryStore::new().prefetch(millis(prefetch));
        let quota = Quota::per_second(HOT.rate).burst(HOT.burst);
        for _ in 0..4 {
            let node = limiter(&store, quota);
            for _ in 0..8 {
                let node = node.clone();
                tokio::spawn(async move { while node.consume(1).await.is_ok() {} });
            }
        }
        for joins in 0..20 {
            sleep(millis(2_500 + 37 * joins)).await;
            let began = Instant::now();
            drop(limiter(&store, quota).consume(1).await.unwrap());
            assert!(began.elapsed() <= millis(bound + 1), "prefetch {prefetch}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_is_the_most() {
    let quota = Quota::per_second(10);
    let build = |millis_ahead| {
        let store = MemoryStore::new().prefetch(millis(millis_ahead));
        Limiter::builder().quota(quota).distributed(store).build().map(drop)
    };
    assert_eq!(build(1_000), Ok(()));
    let error = build(1_001).unwrap_err();
    assert_eq!(error, ConfigError::DistributedPrefetch { prefetch: millis(1_001), most: millis(1_000) });
    assert_eq!(error.to_string(), "the store's `prefetch` is 1.001s, the most is 1s: lower it");
    #[cfg(feature = "keyed")]
    {
        let store = MemoryStore::new().prefetch(millis(1_001));
        let keys = tollgate::KeyedLimiter::<u32>::builder().quota(quota).distributed(store).build();
        assert_eq!(keys.map(drop).unwrap_err(), error);
    }
}

/// Keys that are hot have limiters, which ask ahead as others do.
#[cfg(feature = "keyed")]
#[tokio::test(start_paused = true)]
async fn a_hot_key_needs_no_more_requests_than_a_limiter() {
    let store = MemoryStore::new().prefetch(millis(200));
    let quota = Quota::per_second(1_000).burst(100);
    for _ in 0..4 {
        let keys = tollgate::KeyedLimiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
        for _ in 0..8 {
            let keys = keys.clone();
            tokio::spawn(async move { while keys.consume(&"hot", 1).await.is_ok() {} });
        }
    }
    sleep(millis(8_000)).await;
    let (asks, granted) = (store.asks(), store.snapshot().granted);
    sleep(millis(10_000)).await;
    let (asks, granted) = (store.asks() - asks, store.snapshot().granted - granted);
    assert!(granted >= 9_900 && asks * 1_000 <= 20 * granted, "{asks} requests for {granted} tokens");
}
