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
use tollgate::clock::QuantaClock;
use tollgate::{KeyedBuilder, KeyedLimiter, Quota};

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

fn claim(limiter: &KeyedLimiter<u64, RandomState>, key: u64) {
    drop(limiter.try_acquire(&key, 1).expect("granted"));
}

fn claim_theirs(limiter: &Governor, key: u64) {
    limiter.check_key(&key).expect("granted");
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
        bytes(keys, "tollgate", || tollgate().build().expect("valid"), claim);
        bytes(keys, "tollgate, two quotas", || with_two_quotas().build().expect("valid"), claim);
        bytes(keys, "governor + dashmap", governor, claim_theirs);
    }
}

/// Makes one call with each key of a slice.
type Work = Arc<dyn Fn(&[u64]) + Send + Sync>;

fn ours<S: BuildHasher + Send + Sync + 'static>(builder: KeyedBuilder<u64, S>) -> Work {
    let limiter = builder.build().expect("valid");
    (0..KEYS).for_each(|key| drop(limiter.try_acquire(&key, 9).expect("granted")));
    Arc::new(move |keys| keys.iter().for_each(|key| drop(black_box(limiter.try_acquire(key, 1)).expect("granted"))))
}

fn theirs() -> Work {
    let limiter = governor();
    let nine = NonZeroU32::new(9).expect("not zero");
    (0..KEYS).for_each(|key| assert!(limiter.check_key_n(&key, nine).is_ok()));
    Arc::new(move |keys| keys.iter().for_each(|key| black_box(limiter.check_key(key)).expect("granted")))
}

/// Each thread begins elsewhere in the list of keys.
fn contender(name: &'static str, keys: &Arc<Vec<u64>>, work: &Work) -> Contender {
    let (keys, work, next) = (Arc::clone(keys), Arc::clone(work), AtomicUsize::new(0));
    Contender::new(name, move |calls| {
        let (front, back) = keys.split_at(next.fetch_add(keys.len() / 3, Relaxed) % keys.len());
        let mut left = calls as usize;
        for keys in [back, front].into_iter().cycle() {
            let some = left.min(keys.len());
            work(&keys[..some]);
            left -= some;
            if left == 0 {
                break;
            }
        }
    })
}

/// Fills an empty limiter with new keys.
fn filling<L: 'static>(name: &'static str, make: impl Fn() -> L + Sync + 'static, claim: fn(&L, u64)) -> Contender {
    Contender::new(name, move |calls| {
        let limiter = make();
        (0..calls).for_each(|key| claim(&limiter, key));
    })
}

pub fn report(extent: Extent) {
    let fillings = [
        filling("tollgate", || tollgate().build().expect("valid"), claim),
        filling("tollgate, two quotas", || with_two_quotas().build().expect("valid"), claim),
        filling("governor + dashmap", governor, claim_theirs),
    ];
    measure("new key", &fillings, 1, Extent { operations: 300_000, ..extent });
    let contenders = [
        ("tollgate", ours(tollgate())),
        ("tollgate, two quotas", ours(with_two_quotas())),
        ("tollgate, `top`", ours(tollgate().top(Duration::from_secs(10)))),
        ("tollgate, quanta clock", ours(tollgate().clock(QuantaClock::new()))),
        ("tollgate, default hasher", ours(hashed_by(std::hash::RandomState::new()))),
        ("governor + dashmap", theirs()),
    ];
    let random = (0..300_000).map(|_| fastrand::u64(0..KEYS)).collect();
    for (title, keys) in [("random key of 1M", random), ("hot key", vec![7; 300_000])] {
        let keys = Arc::new(keys);
        let contenders: Vec<_> = contenders.iter().map(|(name, work)| contender(name, &keys, work)).collect();
        for threads in [1, 2] {
            measure(&format!("{title}, {threads} threads"), &contenders, threads, extent);
        }
    }
}
