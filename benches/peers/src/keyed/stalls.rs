//! The longest single call on a map of many keys: it delays all other tasks of that thread.

use crate::rounds::print;
use cpu_time::ThreadTime;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{KeyedLimiter, Quota};

const WAITERS: u64 = 60_000;
/// The number of calls among which the longest is found.
const CALLS: u64 = 20_000;

const KEYS: u64 = 1_000_000;

/// A token per hour, so that every key stays in debt for the whole run.
fn quota(burst: u64) -> Quota {
    Quota::per_hour(1).burst(burst)
}

/// In CPU time: other processes on this machine do not count.
fn timed<R>(call: impl FnOnce() -> R) -> (Duration, R) {
    let start = ThreadTime::now();
    let result = call();
    (start.elapsed(), result)
}

fn longest(calls: impl Iterator<Item = Duration>) -> Duration {
    calls.max().unwrap_or_default()
}

/// The longest of many tries of keys that are there.
fn existing(limiter: &KeyedLimiter<u64>, keys: u64) -> Duration {
    longest((0..CALLS).map(|_| fastrand::u64(0..keys)).map(|key| timed(|| drop(limiter.try_acquire(&key, 1))).0))
}

/// The longest of many tries of keys that are new.
fn newcomers(limiter: &KeyedLimiter<u64>, keys: u64) -> Duration {
    longest((keys..keys + CALLS).map(|key| timed(|| drop(limiter.try_acquire(&key, 1))).0))
}

pub fn report() {
    let keys = KEYS;
    let builder = KeyedLimiter::builder().quota(quota(100)).max_keys(keys);
    let limiter: KeyedLimiter<u64> = builder.build().expect("valid");
    let show = |name, longest: Duration| print("stalls", name, "ms", longest.as_secs_f64() * 1e3);
    (0..keys).for_each(|key| drop(limiter.try_acquire(&key, 9)));
    show("existing key, no change", existing(&limiter, keys));
    show("snapshot", timed(|| limiter.snapshot()).0);
    show("set_quota", timed(|| limiter.set_quota(quota(101))).0);
    show("first new keys after it", newcomers(&limiter, keys));
    show("set_quota again", timed(|| limiter.set_quota(quota(102))).0);
    show("existing keys after it", existing(&limiter, keys));
    let mut longest_of_many = Duration::ZERO;
    for hours in 2..42 {
        let rare = Quota::new(1, Duration::from_secs(3_600 * hours)).burst(100 + hours);
        longest_of_many = longest_of_many.max(timed(|| limiter.set_quota(rare)).0);
    }
    show("the longest of 40 set_quota in a row", longest_of_many);
    show("existing keys after them", existing(&limiter, keys));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let waited_on: Vec<u64> = (0..WAITERS).collect();
    let mut waits: Vec<Pin<Box<_>>> = waited_on.iter().map(|key| Box::pin(limiter.consume(key, 200))).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    show("snapshot, 60,000 wait", timed(|| limiter.snapshot()).0);
    show("set_quota, 60,000 wait", timed(|| limiter.set_quota(quota(103))).0);
    drop(waits);
    show("new keys, 60,000 have left", newcomers(&limiter, keys));
    show("close", timed(|| limiter.close()).0);
}
