//! A gate with a bucket per key that many machines share.

use super::answer::Refused;
use super::gate::{Gate, Patience};
use crate::keyed::{DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter};
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A [`Gate`] that is a [`DistributedKeyedLimiter`], and whose key and cost are functions of the request; from
/// [`LimitLayer::distributed_keyed`](super::LimitLayer::shared_keyed).
///
/// Who does not wait at all waits for the line's answer all the same, where the key has no limiter here.
pub struct DistributedKeyed<K, S, F> {
    users: DistributedKeyedLimiter<K, S>,
    key: Arc<F>,
}

impl<K, S, F> DistributedKeyed<K, S, F> {
    /// Requests take tokens of the key that `key` says, as many as it says.
    pub fn new(users: &DistributedKeyedLimiter<K, S>, key: F) -> Self {
        Self { users: users.clone(), key: Arc::new(key) }
    }
}

impl<Request, K, S, F> Gate<Request> for DistributedKeyed<K, S, F>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Fn(&Request) -> (K, u64),
{
    type Pass = DistributedKeyedGrant<K, S>;
    type Admission = DistributedKeyedAdmission<K, S>;

    fn admit(&self, request: &Request, patience: Patience) -> DistributedKeyedAdmission<K, S> {
        let (key, cost) = (self.key)(request);
        let claim = self.users.clone().consume_owned(key, cost);
        let claim = match patience {
            Patience::Endless => claim,
            Patience::AtMost(allowed) => claim.within(allowed),
            Patience::None => claim.within(Duration::ZERO),
        };
        DistributedKeyedAdmission { claim }
    }
}

impl<K, S, F> Clone for DistributedKeyed<K, S, F> {
    fn clone(&self) -> Self {
        Self { users: self.users.clone(), key: Arc::clone(&self.key) }
    }
}

impl<K, S, F> fmt::Debug for DistributedKeyed<K, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeyed").field("users", &self.users).finish_non_exhaustive()
    }
}

/// A claim on a key of a [`DistributedKeyedLimiter`].
///
/// # Cancel safety
///
/// As [`DistributedKeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct DistributedKeyedAdmission<K: Clone + 'static, S> {
    #[pin]
    claim: DistributedKeyedConsume<'static, K, S>,
}

impl<K, S> Future for DistributedKeyedAdmission<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Output = Result<DistributedKeyedGrant<K, S>, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_err(Refused::InLine)
    }
}
