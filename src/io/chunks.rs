//! The claims of one direction: bytes are paid for in chunks.

use crate::as_limiter::AsLimiter;
use crate::core::claim_scope::ClaimScope;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::pacer::Pacer;
use std::task::{Context, Poll, ready};
use tokio::task::coop::has_budget_remaining;

/// The default chunk is the burst divided by this number, so that this many connections can start at the same instant.
const PER_BURST: u64 = 16;
/// The largest default chunk: about the amount that a socket takes in one call.
const MOST: u64 = 64 << 10;
/// A direction that has paid for nothing for this many nanoseconds is idle. That is longer than a caller waits for its
/// next bytes while it transfers, and short beside the life of a connection.
const IDLE: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Chunks<L: AsLimiter> {
    pacer: Pacer<L>,
    /// The chunk size set by the user.
    fixed: Option<u64>,
    /// The current chunk size, at least 1.
    size: u64,
    /// True once a claim had to wait. Before that, the chunk size delays no caller.
    waited: bool,
    /// The chunk that bytes are paid from.
    chunk: Option<Chunk<L>>,
    /// When bytes were last paid for, in the limiter's time.
    paid_at: Option<u64>,
}

/// A grant whose tokens are used one after the other. Dropping it refunds those that are left.
#[derive(Debug)]
struct Chunk<L: AsLimiter> {
    grant: OwnedGrant<L>,
    used: u64,
}

impl<L: AsLimiter> Chunk<L> {
    fn left(&self) -> usize {
        usize::try_from(self.grant.cost().saturating_sub(self.used)).unwrap_or(usize::MAX)
    }
}

impl<L: AsLimiter> Drop for Chunk<L> {
    fn drop(&mut self) {
        // The bytes that used tokens have passed: a panic of the clock here could not undo that.
        self.grant.settle_anyway(self.used);
    }
}

impl<L: AsLimiter> Chunks<L> {
    pub(super) fn new(limiter: &L, fixed: Option<u64>) -> Self {
        let size = chunk_size(limiter, fixed);
        Self { pacer: Pacer::new(limiter), fixed, size, waited: false, chunk: None, paid_at: None }
    }

    pub(super) fn fix(&mut self, size: u64) {
        self.fixed = Some(size);
        self.size = chunk_size(self.pacer.limiter(), self.fixed);
    }

    fn size(&mut self) -> u64 {
        if std::mem::take(&mut self.waited) {
            self.size = chunk_size(self.pacer.limiter(), self.fixed);
        }
        self.size
    }

    /// Returns how many of the `wanted` bytes to transfer at once.
    pub(super) fn of(&mut self, wanted: usize) -> usize {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        self.chunk.as_ref().map_or(size, Chunk::left).min(wanted)
    }

    /// Pays for `wanted` bytes, at least 1, or for fewer. Returns how many of them may pass now; the caller then reports
    /// how many [did](Self::spend).
    ///
    /// A direction in use claims a whole chunk at a time, whatever the caller's sizes are, so that connections which wait
    /// in one queue get the same in each turn. After a pause the first claim is for the bytes at hand: an occasional
    /// message holds no tokens that it does not use.
    pub(super) fn poll_pay(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, ConsumeError>> {
        let core = self.pacer.limiter().scope().core();
        let (now, capped) = (core.time.now(), core.capped);
        let is_idle = self.paid_at.is_none_or(|at| now.saturating_sub(at) > IDLE);
        if is_idle {
            self.refund();
        }
        let chunk = match self.chunk.take() {
            Some(chunk) => chunk,
            None => {
                let most = if is_idle || capped { wanted as u64 } else { u64::MAX };
                Chunk { grant: ready!(self.poll_claim(cx, most))?, used: 0 }
            }
        };
        let paid = chunk.left().min(wanted);
        (self.chunk, self.paid_at) = (Some(chunk), Some(now));
        Poll::Ready(Ok(paid))
    }

    /// Continues the current claim, or claims a chunk of at most `most` tokens.
    fn poll_claim(&mut self, cx: &mut Context<'_>, most: u64) -> Poll<Result<OwnedGrant<L>, ConsumeError>> {
        loop {
            let cost = self.size().min(most);
            let answer = self.pacer.poll_claim(cx, || cost);
            self.waited |= answer.is_pending();
            match ready!(answer) {
                // The in-flight cap was lowered.
                Err(ConsumeError::TooLarge { most, .. }) if 0 < most && most < self.size => self.size = most,
                answer => return Poll::Ready(answer),
            }
        }
    }

    /// `bytes` of those paid for have passed. With an in-flight cap the rest is refunded at once: other callers may wait
    /// for it.
    pub(super) fn spend(&mut self, bytes: usize) {
        if let Some(chunk) = &mut self.chunk {
            chunk.used += bytes as u64;
            if chunk.left() == 0 || self.pacer.limiter().scope().core().capped {
                self.refund();
            }
        }
    }

    /// The inner reader or writer has `ended` or failed, or is not ready: refunds what is left of the chunk. A peer that
    /// does nothing holds no tokens. Without budget, the inner type may only give way to other tasks: the chunk stays until
    /// the next poll, for which the task is woken here, because not every inner type does that.
    pub(super) fn stall(&mut self, cx: &Context<'_>, ended: bool) {
        if ended || has_budget_remaining() {
            self.refund();
        } else {
            cx.waker().wake_by_ref();
        }
    }

    /// Refunds what is left of the chunk.
    pub(super) fn refund(&mut self) {
        self.chunk = None;
    }

    /// Leaves the queue, if a claim waits there or was granted since.
    pub(super) fn cancel(&mut self) {
        self.pacer.cancel();
    }
}

/// The chunk size for `limiter` in its current state: the one that the user set, or the default, but no more than a claim may
/// cost.
fn chunk_size(limiter: &impl AsLimiter, fixed: Option<u64>) -> u64 {
    let scope = limiter.scope();
    let (burst, most) = scope.core().look_at(|state, _, _| {
        let cap = state.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens);
        let below_ceilings = state.classes().map_or(u64::MAX, |classes| classes.most_at_once(scope.class()));
        (state.supply.least_burst().min(below_ceilings), cap.min(state.max_cost()))
    });
    fixed.unwrap_or((burst / PER_BURST).min(MOST)).min(most).max(1)
}
