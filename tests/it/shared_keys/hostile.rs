//! Keys that panic, in whatever they are asked.

use super::millis;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tokio::time::sleep;
use tollgate::distributed::MemoryStore;
use tollgate::{KeyedLimiter, Quota};

thread_local! {
    /// How many more comparisons and clones go well; none of them panics if it is negative.
    static PATIENCE: Cell<i64> = const { Cell::new(-1) };
}

/// None of these is printed: they are meant.
fn suffer() {
    let left = PATIENCE.get();
    if left == 0 {
        resume_unwind(Box::new("a key has lost its patience"));
    }
    PATIENCE.set(left - 1);
}

/// Panics when it is compared or cloned, as its patience goes.
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

/// Does `act`, which panics after so many of the keys' own calls, again and again, until it has gone through unharmed. Says
/// how often it was harmed.
fn harm(act: impl Fn()) -> i64 {
    for patience in 0.. {
        PATIENCE.set(patience);
        let unharmed = catch_unwind(AssertUnwindSafe(&act)).is_ok();
        PATIENCE.set(-1);
        if unharmed {
            return patience;
        }
    }
    unreachable!("there are not so many calls")
}

fn bounded<K: Hash + Eq + Clone + Send + Sync + 'static>(
    name: impl Fn(&K) -> String + Send + Sync + 'static,
) -> KeyedLimiter<K> {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).max_keys(1);
    builder.distributed_by(MemoryStore::new(), name).build().unwrap()
}

/// There is one place, and it is still there whenever a key has panicked.
#[tokio::test(start_paused = true)]
async fn keys_that_panic_take_no_place() {
    let users = bounded(|key: &Touchy| key.0.to_string());
    for number in 0..5 {
        let key = Touchy(number);
        // Something is said of it.
        drop(users.consume(&key, 1).await.unwrap());
        assert!(harm(|| _ = users.limiter(&key)) > 2);
        let own = users.limiter(&key).unwrap();
        assert!(users.limiter(&Touchy(77)).is_err());
        drop(own);
        sleep(millis(5_000)).await;
        assert_eq!(users.snapshot().keys, 0);
    }
}

/// Its clones panic when they are dropped.
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
            resume_unwind(Box::new("a key does not want to go"));
        }
    }
}

/// Several at once, again and again: forgetting goes on.
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
