//! Wakers on their way out of the lock.

use arrayvec::ArrayVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// How many wakers leave the lock together: tokio's batch size, small enough for the stack and large enough that the
/// lock is not the price. 2 under loom, so that models see full batches.
#[cfg(not(tollgate_loom))]
const BATCH: usize = 32;
#[cfg(tollgate_loom)]
const BATCH: usize = 2;

/// A bounded batch of wakers, to be woken when no lock is held.
#[derive(Debug, Default)]
pub(crate) struct Wakes(ArrayVec<Waker, BATCH>);

impl Wakes {
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// # Panics
    /// If the batch [is full](Self::is_full).
    pub(crate) fn push(&mut self, waker: Waker) {
        self.0.push(waker);
    }

    /// Wakes all of them. A waker that panics breaks its own task only: the others are woken, and the caller, who may
    /// be anybody that happened to serve the line, is left alone. (The panic hook has reported it.)
    pub(crate) fn wake_all(&mut self) {
        wake_each(self.0.drain(..));
    }
}

/// Wakes each, whatever the others do; see [`Wakes::wake_all`].
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}
