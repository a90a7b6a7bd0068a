//! An owned claim that is polled: what paces streams, sinks and bytes.
//!
//! An adaptor is polled by whoever holds it, dropped between any two polls of the futures that use it, and must be
//! movable. So its claim lives in a box of its own and outlasts those futures: it keeps its place in the line until it
//! is granted, left, or dropped with the adaptor, and then gives back what it was granted and nobody saw.

use crate::consume::ConsumeOwned;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::limiter::Limiter;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Claims tokens of a limiter, one claim after the other.
#[derive(Debug)]
pub(crate) struct Pacer {
    limiter: Limiter,
    /// Made by the first claim and then used again, so that waiting allocates nothing.
    claim: Option<Pin<Box<Option<ConsumeOwned>>>>,
}

impl Pacer {
    pub(crate) fn new(limiter: &Limiter) -> Self {
        Self { limiter: limiter.clone(), claim: None }
    }

    #[cfg(feature = "io")]
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Goes on with the claim that is out, or makes one of what `cost` says. The grant tells which it was.
    pub(crate) fn poll_claim(
        &mut self,
        cx: &mut Context<'_>,
        cost: impl FnOnce() -> u64,
    ) -> Poll<Result<OwnedGrant, ConsumeError>> {
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

    /// Leaves the line, if it stands there.
    #[cfg(feature = "io")]
    pub(crate) fn leave(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.set(None);
        }
    }
}
