//! The names of keys are bounded: each request carries one.

use super::millis;
use tokio::time::{Instant, timeout};
use tollgate::distributed::{MemoryStore, StoreError};
use tollgate::{ConfigError, ConsumeError, KeyedLimiter, Quota, Quotas, TryAcquireError};

#[tokio::test(start_paused = true)]
async fn a_key_with_a_long_name_is_a_typed_error_and_no_request() {
    let store = MemoryStore::new();
    let users = KeyedLimiter::<String>::builder().quota(Quota::per_second(10)).distributed(store.clone());
    let users = users.build().unwrap();
    let (long, longest) = ("x".repeat(StoreError::MAX_NAME + 1), "x".repeat(StoreError::MAX_NAME));
    let began = Instant::now();
    let error = ConsumeError::KeyTooLong { length: StoreError::MAX_NAME + 1, most: StoreError::MAX_NAME };
    for cost in [1, 100] {
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
    let common = KeyedLimiter::<u64>::builder().quota_named("second", quota);
    let by_key = KeyedLimiter::<u64>::builder().quota_by(move |_| Quotas::default().quota_named("second", quota));
    for builder in [common, by_key] {
        let users = builder.distributed(MemoryStore::new()).build().unwrap();
        assert_eq!(
            (users.quotas(&1).name(0), users.quota_snapshots(&1)[0].name.as_deref()),
            (Some("second"), Some("second"))
        );
        let late = |refusal| match refusal {
            Err(ConsumeError::TooLate { quota_name, .. }) => quota_name,
            other => panic!("{other:?}"),
        };
        let denied = |refusal| match refusal {
            Err(TryAcquireError::Denied(denied)) => denied.quota_name(),
            other => panic!("{other:?}"),
        };
        drop(users.consume(&1, 10).await.unwrap());
        assert_eq!(
            late(users.consume(&1, 5).within(millis(1)).await.map(drop)),
            Some("second"),
            "by the store's reply"
        );
        assert_eq!(denied(users.try_acquire(&1, 5).map(drop)), Some("second"));
        let limiter = users.limiter(&1).unwrap();
        assert_eq!(denied(limiter.try_acquire(5).map(drop)), Some("second"), "by the limiter of the key");
        assert_eq!(late(users.consume(&1, 5).within(millis(1)).await.map(drop)), Some("second"));
    }
}

#[tokio::test]
async fn a_distributed_keyed_limiter_cannot_get_a_cap_and_says_so() {
    let builder = KeyedLimiter::<u64>::builder().quota(Quota::per_second(10)).distributed(MemoryStore::new());
    let error = builder.build().unwrap().set_max_in_flight(5).unwrap_err();
    assert_eq!(error, ConfigError::DistributedKeyed { setting: "max_in_flight" });
    let local = KeyedLimiter::<u64>::new(Quota::per_second(10)).unwrap();
    assert_eq!(local.set_max_in_flight(5), Err(ConfigError::NotCapped));
}
