//! The future that waits for tokens of a distributed key.

use super::DistributedKeyedGrant;
use super::claim::{KeyClaim, Tokens};
use crate::Limiter;
use crate::blocking;
use crate::core::coop::poll_paid;
use crate::deadline::Allowed;
use crate::error::ConsumeError;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

type Running<K> = Pin<Box<dyn Future<Output = Result<DistributedKeyedGrant<K>, ConsumeError>> + Send>>;

pin_project! {
    /// The future returned by [`DistributedKeyedLimiter::consume`](super::DistributedKeyedLimiter::consume). It owns the
    /// limiter and the key, so it can be spawned.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, like [`Consume`](crate::Consume), with one exception: while the first request
    /// for a key is under way, the store may have granted its tokens already, and these tokens are lost.
    ///
    /// # Panics
    ///
    /// Panics where [`Consume`](crate::Consume) does, and if `Hash`, `Eq` or `Clone` of the key panics, `quota_by`, or the
    /// function that names the key. The limiter is then as it was before.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct DistributedKeyedConsume<K> {
        // `None` once the future was polled.
        claim: Option<KeyClaim<K>>,
        // The claim that was polled; `None` once it has completed. Never locked: the mutex makes the future `Sync`.
        running: Mutex<Option<Running<K>>>,
        #[pin]
        _pinned: PhantomPinned,
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedKeyedConsume<K> {
    pub(super) fn new(claim: KeyClaim<K>) -> Self {
        Self { claim: Some(claim), running: Mutex::new(None), _pinned: PhantomPinned }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    ///
    /// The first caller of a key that has no limiter on this node learns after a round trip that the wait would be too
    /// long. All others learn it at once, without a request, until the tokens can be available. The deadline does not
    /// cut the request of the first caller short, because its tokens may already be granted: so its result can be late
    /// by a round trip, or by the `answer_timeout` of an unreachable `RedisStore`. With `Duration::ZERO` the caller
    /// waits for that answer only.
    pub fn within(mut self, allowed: Duration) -> Self {
        if let Some(claim) = &mut self.claim {
            claim.allowed = Allowed::at_most(allowed);
        }
        self
    }

    /// Blocks the thread until there is an answer. Only a limiter on this node has a queue in which a thread can wait.
    pub(super) fn block(self) -> Result<DistributedKeyedGrant<K>, ConsumeError> {
        let claim = self.claim.expect("the future was not polled");
        let (mut has_waited, map) = (false, &claim.key.map);
        // The limiter reports its own refusals.
        let limiter = claim.limiter().inspect_err(|error| map.observers.refused(claim.cost, *error));
        let consume = |core| blocking::consume(core, claim.cost, claim.allowed, || has_waited = true);
        let permit = limiter.map(Limiter::into_core).and_then(consume);
        if permit.as_ref().is_err_and(|error| !has_waited && !matches!(error, ConsumeError::TimedOut { .. })) {
            map.count_refusal();
        }
        Ok(DistributedKeyedGrant { tokens: Tokens::OfLimiter(permit?), key: claim.key })
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Future for DistributedKeyedConsume<K> {
    type Output = Result<DistributedKeyedGrant<K>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (claim, running) = (this.claim, this.running.get_mut().unwrap_or_else(PoisonError::into_inner));
        poll_paid(cx, |cx| {
            if let Some(claim) = claim.take() {
                *running = Some(Box::pin(async {
                    let tokens = claim.acquire().await?;
                    Ok(DistributedKeyedGrant { key: claim.key, tokens })
                }));
            }
            let claim = running.as_mut().expect("a keyed claim was polled after it had completed");
            let answer = ready!(claim.as_mut().poll(cx));
            *running = None;
            Poll::Ready(answer)
        })
    }
}

impl<K> fmt::Debug for DistributedKeyedConsume<K> {
    /// Prints no key: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let was_polled = self.claim.is_none();
        f.debug_struct("DistributedKeyedConsume").field("was_polled", &was_polled).finish_non_exhaustive()
    }
}
