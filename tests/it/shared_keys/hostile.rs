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
    static PATIENCE: Cell<i64> = const { Cell::new(-1) };
}

/// None of these panics is printed: they are intended.
fn suffer() {
    let left = PATIENCE.get();
    if left == 0 {
        resume_unwind(Box::new("a key panics on purpose"));
    }
    PATIENCE.set(left - 1);
}

/// Panics when it is compared or cloned and the number of calls is used up.
#[derive(Debug)]
struct Touchy(u64);

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        suffer();
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        suffer();
        Self(self.0)
    }
}

/// Calls `act`, which panics after one more call of the keys' methods each time, until it succeeds. Returns how often
/// it panicked.
fn harm(act: impl Fn()) -> i64 {
    for patience in 0.. {
        PATIENCE.set(patience);
        let unharmed = catch_unwind(AssertUnwindSafe(&act)).is_ok();
        PATIENCE.set(-1);
        if unharmed {
            return patience;
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
    let users = bounded(|key: &Touchy| key.0.to_string());
    for number in 0..5 {
        let key = Touchy(number);
        // There is a cached reply for it.
        drop(users.consume(&key, 1).await.unwrap());
        assert!(harm(|| _ = users.limiter(&key)) > 2);
        let own = users.limiter(&key).unwrap();
        assert!(users.limiter(&Touchy(77)).is_err());
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
