//! The future that waits for tokens of a distributed key.

use super::DistributedKeyedGrant;
use super::claim::{Asking, KeyClaim, Step, Tokens};
use super::map::DistributedMap;
use crate::blocking;
use crate::claim::Claim;
use crate::core::Core;
use crate::core::coop::poll_paid;
use crate::deadline::Allowed;
use crate::error::ConsumeError;
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

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
#[pin_project]
pub struct DistributedKeyedConsume<K> {
    /// `None` once the future has completed.
    claim: Option<KeyClaim<K>>,
    #[pin]
    stage: Stage,
}

#[pin_project(project = StageProjection)]
enum Stage {
    /// Not polled yet, or completed.
    Idle,
    /// Waiting for the answer of a store. Never locked: the mutex makes the future `Sync`.
    Asking(Mutex<Asking>),
    Queued {
        #[pin]
        claim: Claim<Arc<Core>>,
        /// Whether the claim has been polled. From then on an error is not counted as a refusal.
        has_entered: bool,
    },
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedKeyedConsume<K> {
    pub(super) fn new(map: Arc<DistributedMap<K>>, key: K, cost: u64) -> Self {
        let hash = map.hash(&key);
        let claim = KeyClaim { map, key, hash, cost, allowed: Allowed::ANY, since: 0 };
        Self { claim: Some(claim), stage: Stage::Idle }
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
        let permit = blocking::consume(claim.limiter()?.into_core(), claim.cost, claim.allowed)?;
        Ok(DistributedKeyedGrant::new(claim, Tokens::OfLimiter(permit)))
    }

    fn poll_unpaid(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<DistributedKeyedGrant<K>, ConsumeError>> {
        let mut this = self.project();
        let claim = this.claim.as_mut().expect("a keyed claim was polled after it had completed");
        let answer = loop {
            let step = match this.stage.as_mut().project() {
                StageProjection::Idle => claim.begin(),
                StageProjection::Asking(asking) => {
                    ready!(asking.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx))
                }
                StageProjection::Queued { claim: queued, has_entered } => {
                    let is_first = !std::mem::replace(has_entered, true);
                    let answer = ready!(queued.poll(cx));
                    match &answer {
                        Err(ConsumeError::TimedOut { .. }) => claim.map.missed(&claim.key, claim.hash, claim.cost),
                        Err(_) if is_first => claim.map.count_refusal(),
                        _ => {}
                    }
                    break answer.map(Tokens::OfLimiter);
                }
            };
            match step {
                Step::Ask(asking) => this.stage.set(Stage::Asking(Mutex::new(asking))),
                Step::Wait(core) => {
                    let claim = Claim::with_limit(core, claim.cost, claim.allowed);
                    this.stage.set(Stage::Queued { claim, has_entered: false });
                }
                Step::Granted(remaining) => break Ok(Tokens::OfStore { cost: claim.cost, remaining }),
                Step::Refused(error) => {
                    claim.map.count_refusal();
                    claim.map.observers.refused(claim.cost, error);
                    break Err(error);
                }
            }
        };
        this.stage.set(Stage::Idle);
        let claim = this.claim.take().expect("the claim is present: it was just used");
        Poll::Ready(answer.map(|tokens| DistributedKeyedGrant::new(claim, tokens)))
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Future for DistributedKeyedConsume<K> {
    type Output = Result<DistributedKeyedGrant<K>, ConsumeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_paid(cx, |cx| self.as_mut().poll_unpaid(cx))
    }
}

impl<K> fmt::Debug for DistributedKeyedConsume<K> {
    /// Prints no key: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = !matches!(self.stage, Stage::Idle);
        f.debug_struct("DistributedKeyedConsume").field("waits", &waits).finish_non_exhaustive()
    }
}
