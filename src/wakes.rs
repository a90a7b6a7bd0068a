//! Wakers on their way out of the lock.

use crate::knot::{Knot, News};
#[cfg(feature = "keyed")]
use crate::shared::Shared;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(feature = "keyed")]
use std::sync::Weak;
use std::task::Waker;

/// How many wakers leave the lock together: tokio's batch size, small enough for the stack and large enough that the
/// lock is not the price. 2 under loom, so that models see full batches.
#[cfg(not(tollgate_loom))]
const BATCH: usize = 32;
#[cfg(tollgate_loom)]
const BATCH: usize = 2;

/// What is to be done when no lock is held: a bounded batch of wakers to wake, and other lines to serve.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    wakers: ArrayVec<Waker, BATCH>,
    /// Knots that were committed or killed here, so that their other lines must look. Empty without joint claims.
    knots: VecDeque<Arc<Knot>>,
    /// Of what was decided elsewhere the caller learned last, and has read the time since.
    pub(crate) heard: News,
    /// Lines whose front claim is to enter the line of their roof, or to leave it.
    #[cfg(feature = "keyed")]
    knocks: VecDeque<Weak<Shared>>,
}

impl Wakes {
    pub(crate) fn is_full(&self) -> bool {
        self.wakers.is_full()
    }

    /// # Panics
    /// If the batch [is full](Self::is_full).
    pub(crate) fn push(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    pub(crate) fn push_knot(&mut self, knot: Arc<Knot>) {
        self.knots.push_back(knot);
    }

    pub(crate) fn pop_knot(&mut self) -> Option<Arc<Knot>> {
        self.knots.pop_front()
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn push_knock(&mut self, line: Weak<Shared>) {
        self.knocks.push_back(line);
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn pop_knock(&mut self) -> Option<Weak<Shared>> {
        self.knocks.pop_front()
    }

    /// Wakes all of them. A waker that panics breaks its own task only: the others are woken, and the caller, who may
    /// be anybody that happened to serve the line, is left alone. (The panic hook has reported it.)
    pub(crate) fn wake_all(&mut self) {
        wake_each(self.wakers.drain(..));
    }
}

/// Wakes each, whatever the others do; see [`Wakes::wake_all`].
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // Dropping it may panic in its turn.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
        }
    }
}
