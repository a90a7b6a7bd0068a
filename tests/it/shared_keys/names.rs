//! The names of keys are bounded: each request carries one.

use super::millis;
use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;
use tollgate::distributed::StoreError;

#[tokio::test(start_paused = true)]
async fn a_key_with_a_long_name_is_a_typed_error_and_no_request() {
    let store = MemoryStore::new();
    let users = DistributedKeyedLimiter::<String>::builder(store.clone()).quota(Quota::per_second(10));
    let users = users.build().unwrap();
    let (long, longest) = ("x".repeat(StoreError::MAX_NAME + 1), "x".repeat(StoreError::MAX_NAME));
    let began = Instant::now();
    let error = ConsumeError::KeyTooLong { length: StoreError::MAX_NAME + 1, most: StoreError::MAX_NAME };
    for cost in [1, 10] {
        let consumed = timeout(millis(1_000), users.consume(&long, cost)).await.expect("the claim hangs");
        assert_eq!(consumed.map(drop).unwrap_err(), error);
    }
    let error = TryAcquireError::KeyTooLong { length: StoreError::MAX_NAME + 1, most: StoreError::MAX_NAME };
    assert_eq!(users.try_acquire(&long, 1).map(drop).unwrap_err(), error);
    assert!(users.limiter(&long).is_err());
    users.pause_for(&long, millis(100));
    assert_eq!((store.asks(), users.snapshot().keys, began.elapsed()), (0, 0, millis(0)));
    drop(users.consume(&longest, 1).await.unwrap());
    assert_eq!(store.asks(), 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_name_the_quota_of_a_distributed_key() {
    let quota = Quota::per_second(10);
    let builder = DistributedKeyedLimiter::builder(MemoryStore::new()).quota_named("second", quota);
    let users = builder.build().unwrap();
    assert_eq!(
        (users.quotas(&1).name(0), users.reported_quotas(&1)[0].name.as_deref()),
        (Some("second"), Some("second"))
    );
    let late = |refusal| match refusal {
        Err(ConsumeError::TooLate { quota_name, .. }) => quota_name,
        other => panic!("{other:?}"),
    };
    drop(users.consume(&1, 10).await.unwrap());
    assert_eq!(late(users.consume(&1, 5).within(millis(1)).await.map(drop)), Some("second"), "by the store's reply");
    assert_eq!(denied(users.try_acquire(&1, 5)).quota_name(), Some("second"));
    let limiter = users.limiter(&1).unwrap();
    assert_eq!(denied(limiter.try_acquire(5)).quota_name(), Some("second"), "by the limiter of the key");
    assert_eq!(late(users.consume(&1, 5).within(millis(1)).await.map(drop)), Some("second"));
}
