//! Limiters over a real Redis, in real time.

use super::nodes::limiter;
use super::server::{Server, open_store};
use std::time::Duration;
use tollgate::{ConsumeError, DistributedKeyedLimiter, Quota};

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
