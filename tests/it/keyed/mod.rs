//! Keyed limiters: their guarantees for each key, their memory, and hostile keys.

mod bounded;
mod bounded_histories;
mod clocks;
mod executor;
mod handles;
mod histories;
pub(crate) mod hostile;
mod incremental_work;
mod large;
mod late_calls;
mod parent;
mod parent_histories;
mod parent_model;
mod pausing;
mod reports;
mod several;
mod sliding;
mod storm;
mod top_keys;
mod waiting;

use crate::fixture::*;
use std::hash::{BuildHasher, Hash};

/// A keyed limiter on a clock that is moved by hand.
fn manual<K: Clone + Eq + Hash + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static>(
    change: impl FnOnce(KeyedBuilder<K>) -> KeyedBuilder<K, S>,
) -> (KeyedLimiter<K, S>, ManualClock) {
    let clock = ManualClock::new();
    (change(KeyedLimiter::builder().clock(clock.clone())).build().unwrap(), clock)
}
