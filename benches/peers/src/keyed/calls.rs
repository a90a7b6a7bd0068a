//! Memory and calls that do not wait, compared with governor over dashmap.

use crate::rounds::{Contender, Extent, measure, print};
use ahash::RandomState;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tollgate::{KeyedBuilder, KeyedLimiter, QuantaClock, Quota};

const KEYS: u64 = 1_000_000;
/// A token comes back each minute, so that every key owes tokens to the end. No round uses up the burst of the hot key.
const BURST: u32 = 36_000_000;

type Governor = governor::RateLimiter<u64, DashMapStateStore<u64, RandomState>, DefaultClock>;

fn hashed_by<S: BuildHasher>(hasher: S) -> KeyedBuilder<u64, S> {
    KeyedLimiter::builder().quota(Quota::per_minute(1).burst(BURST.into())).unbounded_keys().hasher(hasher)
}

fn tollgate() -> KeyedBuilder<u64, RandomState> {
    hashed_by(RandomState::new())
}

/// With a second quota, whose burst fits a packed level too.
fn with_two_quotas() -> KeyedBuilder<u64, RandomState> {
    tollgate().quota(Quota::per_minute(2).burst(BURST.into()))
}

fn governor() -> Governor {
    let burst = NonZeroU32::new(BURST).expect("not zero");
    let quota = governor::Quota::with_period(Duration::from_secs(60)).expect("not zero").allow_burst(burst);
    governor::RateLimiter::dashmap_with_hasher(quota, RandomState::new())
}

/// The heap bytes of a key of `u64`, tables included, while all keys owe tokens.
pub fn memory() {
    fn bytes<L>(keys: u64, name: &str, make: impl FnOnce() -> L, claim: impl Fn(&L, u64)) {
        let mut kept = None;
        let heap = allocation_counter::measure(|| {
            let limiter = make();
            (0..keys).for_each(|key| claim(&limiter, key));
            kept = Some(limiter);
        });
        print(&format!("memory of {keys} keys"), name, "bytes", heap.bytes_current as f64 / keys as f64);
    }
    for keys in [1_000, 100_000, 1_000_000, 2_000_000] {
        let claim =
            |limiter: &KeyedLimiter<u64, RandomState>, key| drop(limiter.try_acquire(&key, 1).expect("granted"));
        bytes(keys, "tollgate", || tollgate().build().expect("valid"), claim);
        bytes(keys, "tollgate, two quotas", || with_two_quotas().build().expect("valid"), claim);
        bytes(keys, "governor + dashmap", governor, |limiter, key| limiter.check_key(&key).expect("granted"));
    }
}

/// Calls with keys of a list, which each thread begins elsewhere.
fn contender(name: &'static str, keys: &Arc<Vec<u64>>, call: impl Fn(&u64) -> bool + Sync + 'static) -> Contender {
    (0..KEYS).for_each(|key| _ = (0..9).filter(|_| call(&key)).count());
    let (keys, next) = (Arc::clone(keys), AtomicUsize::new(0));
    Contender::new(name, move |calls| {
        let start = next.fetch_add(keys.len() / 3, Relaxed) % keys.len();
        for key in keys.iter().cycle().skip(start).take(calls as usize) {
            assert!(black_box(call(key)));
        }
    })
}

fn ours<S: BuildHasher + Send + Sync + 'static>(
    name: &'static str,
    keys: &Arc<Vec<u64>>,
    builder: KeyedBuilder<u64, S>,
) -> Contender {
    let limiter = builder.build().expect("valid");
    contender(name, keys, move |key| limiter.try_acquire(key, 1).is_ok())
}

pub fn report(extent: Extent) {
    let random = (0..300_000).map(|_| fastrand::u64(0..KEYS)).collect();
    for (title, keys) in [("random key of 1M", Arc::new(random)), ("hot key", Arc::new(vec![7]))] {
        let theirs = governor();
        let contenders = [
            ours("tollgate", &keys, tollgate()),
            ours("tollgate, two quotas", &keys, with_two_quotas()),
            ours("tollgate, `top`", &keys, tollgate().top(Duration::from_secs(10))),
            ours("tollgate, quanta clock", &keys, tollgate().clock(QuantaClock::new())),
            ours("tollgate, default hasher", &keys, hashed_by(std::hash::RandomState::new())),
            contender("governor + dashmap", &keys, move |key| theirs.check_key(key).is_ok()),
        ];
        for threads in [1, 2] {
            measure(&format!("{title}, {threads} threads"), &contenders, threads, extent);
        }
    }
}
