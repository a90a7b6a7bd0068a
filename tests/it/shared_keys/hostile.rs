//! Keys that panic in any of their methods.

use super::millis;
use crate::fixture::*;
use crate::keyed::hostile::{Clinging, PanickingKey, panic_at_each_call};
use std::hash::Hash;
use tollgate::DistributedKeyedLimiter;

fn bounded<K: Hash + Eq + Clone + Send + Sync + 'static>(
    name: impl Fn(&K) -> String + Send + Sync + 'static,
) -> DistributedKeyedLimiter<K> {
    let builder = DistributedKeyedLimiter::builder_by(MemoryStore::new(), name);
    builder.quota(Quota::per_second(10)).max_keys(1).build().unwrap()
}

/// The map has one entry, and it is still free whenever a key has panicked.
#[tokio::test(start_paused = true)]
async fn keys_that_panic_take_no_place() {
    let users = bounded(|key: &PanickingKey| key.0.to_string());
    for number in 0..5 {
        let key = PanickingKey(number);
        // There is a cached reply for it.
        drop(users.consume(&key, 1).await.unwrap());
        assert!(panic_at_each_call(|| _ = users.limiter(&key)) > 2);
        let own = users.limiter(&key).unwrap();
        assert!(users.limiter(&PanickingKey(77)).is_err());
        drop(own);
        sleep(millis(5_000)).await;
        assert_eq!(users.snapshot().keys, 0);
    }
}

/// The answer was to be kept as a cached reply.
#[tokio::test(start_paused = true)]
async fn keys_that_panic_when_the_store_has_answered_cost_no_tokens() {
    let store = MemoryStore::new();
    let builder = DistributedKeyedLimiter::builder_by(store.clone(), |key: &PanickingKey| key.0.to_string());
    let users = builder.quota(Quota::per_day(100)).build().unwrap();
    assert!(panic_at_each_call(|| _ = users.consume(&PanickingKey(1), 7).now_or_never().unwrap().unwrap()) > 2);
    // The last panics are those of keys in grants that are dropped.
    assert_eq!(store.snapshot().granted, users.snapshot().granted);
}

/// Several at once, again and again: keys are still removed.
#[tokio::test(start_paused = true)]
async fn keys_that_panic_when_they_are_forgotten_are_forgotten() {
    let builder = DistributedKeyedLimiter::builder_by(MemoryStore::new(), |key: &Clinging| key.number.to_string());
    let users = builder.quota(Quota::per_second(10)).max_keys(10).build().unwrap();
    for round in 0..3 {
        for number in 0..10 {
            assert!(users.try_acquire(&Clinging::new(number), 1).is_err());
        }
        assert_eq!(users.snapshot().keys, 10);
        sleep(millis(5_000)).await;
        assert_eq!(users.snapshot().keys, 0, "round {round}");
    }
}
