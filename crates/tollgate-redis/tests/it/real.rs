//! Limiters over a real Redis, in real time.

use super::nodes::limiter;
use super::saturate::saturate;
use super::server::{Server, open_store};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::{ConsumeError, DistributedKeyedLimiter, Quota};

/// The number of round trips and the speed are tested in paused time: `tests/it/fleet.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_one_burst_and_one_rate_to_the_token() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_second(2_000).burst(100);
    let mut limiters = Vec::new();
    let mut stores = Vec::new();
    for _ in 0..4 {
        let store = open_store(&server.url(), "tenant:42").await;
        limiters.push(limiter(&store, quota));
        stores.push(store);
    }
    let began = Instant::now();
    let granted = saturate(&limiters, 50, 4_000).await;
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    let total: u64 = granted.iter().sum();
    println!("{granted:?} of {most}");
    assert!(total <= most, "{granted:?}: {total} of {most}");
    assert!(granted.iter().all(|tokens| *tokens > 0), "{granted:?}");
    // Each limiter was granted the tokens that its store has counted.
    for (tokens, store) in granted.iter().zip(&stores) {
        let snapshot = store.snapshot();
        assert!(
            snapshot.round_trips > 0 && *tokens <= snapshot.granted && snapshot.nodes <= 4,
            "{tokens}, {snapshot:?}"
        );
    }
}

/// The store's last answer said until when all tokens are promised. (That nothing is asked is tested in paused time:
/// `tests/it/distributed/within.rs`. Here the nodes renew their allowances meanwhile.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_on_an_exhausted_quota_is_refused_at_once_with_the_known_wait() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_hour(3_600).burst(10);
    let store = open_store(&server.url(), "exhausted").await;
    let (one, other) = (limiter(&store, quota), limiter(&store, quota));
    drop(one.consume(10).await.unwrap());
    let waiting = tokio::spawn(async move { one.wait(100).await });
    while store.snapshot().granted < 110 {
        sleep(Duration::from_millis(1)).await;
    }
    let first = other.clone();
    let first = tokio::spawn(async move { first.wait(1).await });
    while store.snapshot().granted < 111 {
        sleep(Duration::from_millis(1)).await;
    }
    let error = other.wait(5).within(Duration::from_secs(60)).await.unwrap_err();
    let ConsumeError::TooLate { estimate, .. } = error else { panic!("{error}") };
    // 100 tokens of the one node and one of this node come first; a slow machine may have taken a while to ask.
    assert!((Duration::from_secs(60)..=Duration::from_secs(106)).contains(&estimate), "{estimate:?}");
    // Nor for a key, of which the first call asks.
    let keys = DistributedKeyedLimiter::builder(open_store(&server.url(), "keys").await).quota(quota).build().unwrap();
    keys.consume(&1, 10).await.unwrap();
    let limiter = keys.limiter(&1).unwrap();
    let waiter = tokio::spawn(async move { limiter.wait(50).await });
    while keys.snapshot().store.granted < 60 {
        sleep(Duration::from_millis(1)).await;
    }
    let error = keys.consume(&1, 1).within(Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(error, ConsumeError::TooLate { .. }), "{error}");
    [first, waiting, waiter].iter().for_each(|task| task.abort());
}
