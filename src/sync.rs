//! The lock and the atomics. The only module that knows whether the code runs under loom.
//!
//! `--cfg tollgate_loom` swaps the mutex and the atomics for loom's. A plain `--cfg loom` would also change tokio
//! itself. `Arc` is std's in both cases: loom has to see the atomic words and the lock only.

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
        lock_with_backoff(|| self.try_lock(), || self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Returns `None` while another thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The lock of a keyed map's shards, taken by every call. Not std's, because checks for poisoning cost each call.
/// This one does not poison either.
#[cfg(all(feature = "keyed", not(tollgate_loom)))]
pub(crate) use parking_lot::Mutex as ShardMutex;

#[cfg(all(feature = "keyed", tollgate_loom))]
pub(crate) use Mutex as ShardMutex;

/// Locks with backoff: a thread that finds the lock taken does not touch it for a few microseconds, longer each time,
/// before it sleeps. A lock that changes hands with each call moves its cache lines with each call, which costs several
/// times as much as the call; and a thread that sleeps costs two system calls.
#[inline]
#[cfg(not(tollgate_loom))]
pub(crate) fn lock_with_backoff<G>(try_lock: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    #[cold]
    fn stay_away<G>(try_lock: impl Fn() -> Option<G>) -> Option<G> {
        use std::time::{Duration, Instant};
        // Measured by the clock, because the length of a pause instruction differs between processors.
        [2, 4, 8].map(Duration::from_micros).into_iter().find_map(|away| {
            let since = Instant::now();
            while since.elapsed() < away {
                // On every processor this takes much less time than `away`.
                (0..8).for_each(|_| std::hint::spin_loop());
            }
            try_lock()
        })
    }
    try_lock().or_else(|| stay_away(try_lock)).unwrap_or_else(lock)
}

/// Loom models no time, so there is no backoff.
#[cfg(tollgate_loom)]
pub(crate) fn lock_with_backoff<G>(_: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    lock()
}
