//! The one place that knows whether loom is watching.
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

/// A mutex without poisoning: no user code runs while it is held, so a panic cannot leave the state half-written.
#[derive(Debug)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// `None` while somebody else holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}
