//! Limiters over a real Redis, in real time.

use super::nodes::limiter;
use super::saturate::saturate;
use super::server::{Server, open_store};
use std::time::{Duration, Instant};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Quota};

/// The number of round trips and the speed are tested in paused time: `tests/it/distributed` of tollgate.
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

/// The answer says how long the claim would wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_on_an_exhausted_quota_is_refused_after_one_answer_with_the_wait() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_hour(3_600).burst(100);
    let store = open_store(&server.url(), "exhausted").await;
    let (one, other) = (limiter(&store, quota), limiter(&store, quota));
    drop(one.consume(100).await.unwrap());
    let error = other.wait(90).within(Duration::from_secs(20)).await.unwrap_err();
    let ConsumeError::TooLate { estimate, .. } = error else { panic!("{error}") };
    assert!((Duration::from_secs(20)..=Duration::from_secs(91)).contains(&estimate), "{estimate:?}");
    // Nor for a key, of which the first call asks.
    let keys = DistributedKeyedLimiter::builder(open_store(&server.url(), "keys").await).quota(quota).build().unwrap();
    keys.consume(&1, 100).await.unwrap();
    let error = keys.consume(&1, 90).within(Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(error, ConsumeError::TooLate { .. }), "{error}");
}
