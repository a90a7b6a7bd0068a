//! A claim that owns its limiter and is driven by polling: the base of paced streams, sinks and bytes.
//!
//! The code that holds an adaptor polls it, may drop the polling future between any two polls, and may move the
//! adaptor. So the claim lives in a box of its own and outlives those futures: it keeps its place in the queue until
//! it is granted, cancelled, or dropped with the adaptor. A claim that is dropped refunds tokens that were granted but
//! not received.

use crate::as_limiter::AsLimiter;
use crate::consume::ConsumeOwned;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::handle::Limiter;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Claims tokens of a limiter or a class, one claim after the other.
#[derive(Debug)]
pub(crate) struct Pacer<L: AsLimiter = Limiter> {
    limiter: L,
    /// Allocated by the first claim and then reused, so that waiting allocates nothing.
    claim: Option<Pin<Box<Option<ConsumeOwned<L>>>>>,
}

impl<L: AsLimiter> Pacer<L> {
    pub(crate) fn new(limiter: &L) -> Self {
        Self { limiter: limiter.clone(), claim: None }
    }

    #[cfg(feature = "io")]
    pub(crate) fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Continues the current claim, or makes one of the cost that `cost` returns. The grant has the cost.
    pub(crate) fn poll_claim(
        &mut self,
        cx: &mut Context<'_>,
        cost: impl FnOnce() -> u64,
    ) -> Poll<Result<OwnedGrant<L>, ConsumeError>> {
        let claim = self.claim.get_or_insert_with(|| Box::pin(None));
        if claim.is_none() {
            let cost = cost();
            claim.set(Some(self.limiter.clone().consume_owned(cost)));
        }
        let waiting = claim.as_mut().as_pin_mut().expect("present: it was just made");
        let answer = ready!(waiting.poll(cx));
        claim.set(None);
        Poll::Ready(answer)
    }

    /// Leaves the queue, if it waits there.
    #[cfg(feature = "io")]
    pub(crate) fn cancel(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.set(None);
        }
    }
}
