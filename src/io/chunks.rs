//! The claims of one direction: bytes are paid for in chunks.

use crate::as_limiter::AsLimiter;
use crate::core::limiter_ref::ClaimScope;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::pacer::Pacer;
use std::task::{Context, Poll, ready};

/// The default chunk is the burst divided by this number, so that this many connections can start at the same instant.
const PER_BURST: u64 = 16;
/// The largest default chunk: about the amount that a socket takes in one call.
const MOST: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Chunks<L: AsLimiter> {
    pacer: Pacer<L>,
    /// The chunk size set by the user.
    fixed: Option<u64>,
    /// The current chunk size, at least 1.
    size: u64,
    /// True once a claim had to wait. Before that, the chunk size delays no caller.
    waited: bool,
}

impl<L: AsLimiter> Chunks<L> {
    pub(super) fn new(limiter: &L, fixed: Option<u64>) -> Self {
        let size = fixed.unwrap_or_else(|| derived(limiter));
        Self { pacer: Pacer::new(limiter), fixed, size, waited: false }
    }

    pub(super) fn fix(&mut self, size: u64) {
        self.fixed = Some(size);
        self.size = size;
    }

    /// Returns how many of the `wanted` bytes the next claim is for.
    pub(super) fn of(&mut self, wanted: usize) -> usize {
        if std::mem::take(&mut self.waited) {
            self.size = self.fixed.unwrap_or_else(|| derived(self.pacer.limiter()));
        }
        usize::try_from(self.size).map_or(wanted, |size| size.min(wanted))
    }

    /// Continues the current claim, or claims a chunk of `wanted`. The grant's cost is the number of bytes.
    pub(super) fn poll_claim(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<Result<OwnedGrant<L>, ConsumeError>> {
        loop {
            let chunk = self.of(wanted) as u64;
            let answer = self.pacer.poll_claim(cx, || chunk);
            self.waited |= answer.is_pending();
            match ready!(answer) {
                // The in-flight cap was lowered, or is below the chunk size that the user set.
                Err(ConsumeError::TooLarge { most, .. }) if 0 < most && most < self.size => self.size = most,
                answer => return Poll::Ready(answer),
            }
        }
    }

    /// Leaves the queue, if it waits there.
    pub(super) fn cancel(&mut self) {
        self.pacer.cancel();
    }
}

/// The default chunk size for `limiter` in its current state.
fn derived(limiter: &impl AsLimiter) -> u64 {
    let scope = limiter.scope();
    let (burst, cap) = scope.core().look_at(|state, _, _| {
        let cap = state.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens);
        let below_ceilings = state.classes().map_or(u64::MAX, |classes| classes.most_at_once(scope.class()));
        (state.supply.least_burst().min(below_ceilings), cap)
    });
    (burst / PER_BURST).min(MOST).min(cap).max(1)
}
