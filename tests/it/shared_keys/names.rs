//! The names of keys are bounded: each request carries one.

use super::millis;
use tokio::time::{Instant, timeout};
use tollgate::distributed::{MemoryStore, StoreError};
use tollgate::{ConsumeError, KeyedLimiter, Quota, TryAcquireError};

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
