//! Keys that panic in any of their methods.

use super::millis;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tokio::time::sleep;
use tollgate::distributed::MemoryStore;
use tollgate::{KeyedLimiter, Quota};

thread_local! {
    /// The number of comparisons and clones before the next panic; negative if none panics.
    static CALLS_LEFT: Cell<i64> = const { Cell::new(-1) };
}

/// None of these panics is printed: they are intended.
fn count_call() {
    let left = CALLS_LEFT.get();
    if left == 0 {
        resume_unwind(Box::new("a key panics on purpose"));
    }
    CALLS_LEFT.set(left - 1);
}

/// Panics when it is compared or cloned and the number of calls is used up.
#[derive(Debug)]
struct PanickingKey(u64);

impl Hash for PanickingKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl PartialEq for PanickingKey {
    fn eq(&self, other: &Self) -> bool {
        count_call();
        self.0 == other.0
    }
}

impl Eq for PanickingKey {}

impl Clone for PanickingKey {
    fn clone(&self) -> Self {
        count_call();
        Self(self.0)
    }
}

/// Calls `act`, which panics after one more call of the keys' methods each time, until it succeeds. Returns how often
/// it panicked.
fn panic_at_each_call(act: impl Fn()) -> i64 {
    for calls in 0.. {
        CALLS_LEFT.set(calls);
        let succeeded = catch_unwind(AssertUnwindSafe(&act)).is_ok();
        CALLS_LEFT.set(-1);
        if succeeded {
            return calls;
        }
    }
    unreachable!("`act` makes fewer calls")
}

fn bounded<K: Hash + Eq + Clone + Send + Sync + 'static>(
    name: impl Fn(&K) -> String + Send + Sync + 'static,
) -> KeyedLimiter<K> {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).max_keys(1);
    builder.distributed_by(MemoryStore::new(), name).build().unwrap()
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

/// A key with clones that panic when they are dropped.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Clinging {
    number: u64,
    is_clone: bool,
}

impl Clone for Clinging {
    fn clone(&self) -> Self {
        Self { is_clone: true, ..*self }
    }
}

impl Drop for Clinging {
    fn drop(&mut self) {
        if self.is_clone {
            resume_unwind(Box::new("a key panics when it is dropped"));
        }
    }
}

/// Several at once, again and again: keys are still removed.
#[tokio::test(start_paused = true)]
async fn keys_that_panic_when_they_are_forgotten_are_forgotten() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).max_keys(10);
    let users = builder.distributed_by(MemoryStore::new(), |key: &Clinging| key.number.to_string()).build().unwrap();
    for round in 0..3 {
        for number in 0..10 {
            assert!(users.try_acquire(&Clinging { number, is_clone: false }, 1).is_err());
        }
        assert_eq!(users.snapshot().keys, 10);
        sleep(millis(5_000)).await;
        assert_eq!(users.snapshot().keys, 0, "round {round}");
    }
}
