//! The one place that knows whether loom is watching; and the lock.
//!
//! `--cfg tollgate_loom` swaps the mutex and the atomics for loom's. A plain `--cfg loom` would also change tokio
//! itself. `Arc` stays std's in both worlds: what loom must see are the words and the lock.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::{MutexGuard, atomic::AtomicU64, atomic::Ordering, atomic::fence};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::{MutexGuard, atomic::AtomicU64, atomic::Ordering, atomic::fence};

#[cfg(tollgate_loom)]
use loom::sync as imp;
#[cfg(not(tollgate_loom))]
use std::sync as imp;
use std::sync::TryLockError;

/// A mutex without poisoning: no user code runs while it is held, so a panic cannot leave the state half-written.
#[derive(Debug)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock_patiently(|| self.try_lock(), || self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// `None` while somebody else holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The lock of a keyed map's rooms, taken by every call: not std's, whose poisoning costs a tenth of a call. It does not
/// poison either.
#[cfg(all(feature = "keyed", not(tollgate_loom)))]
pub(crate) use parking_lot::Mutex as ShardMutex;

#[cfg(all(feature = "keyed", tollgate_loom))]
pub(crate) use Mutex as ShardMutex;

/// Who finds a lock taken stays away from it for as long as some forty grants take, and longer the next time, before the
/// thread is put to sleep. A lock that changes hands with each call has its cache lines travel with each call, which costs
/// several times as much as the call; and a thread that sleeps costs two system calls.
#[inline]
#[cfg(not(tollgate_loom))]
pub(crate) fn lock_patiently<G>(try_lock: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    #[cold]
    fn stay_away<G>(try_lock: impl Fn() -> Option<G>) -> Option<G> {
        use std::time::{Duration, Instant};
        // By the clock: a pause is 20 ns on one processor and 50 on the next.
        [2, 4, 8].map(Duration::from_micros).into_iter().find_map(|away| {
            let since = Instant::now();
            while since.elapsed() < away {
                // Some time, and much less than `away`, whatever the processor makes of it.
                (0..8).for_each(|_| std::hint::spin_loop());
            }
            try_lock()
        })
    }
    try_lock().or_else(|| stay_away(try_lock)).unwrap_or_else(lock)
}

/// Loom knows no time to stay away for.
#[cfg(tollgate_loom)]
pub(crate) fn lock_patiently<G>(_: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    lock()
}
