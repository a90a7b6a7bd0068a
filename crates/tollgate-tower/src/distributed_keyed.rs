//! A gate with a bucket per key that many machines share.

use super::answer::Refused;
use super::gate::{Gate, MaxWait};
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter};

/// A [`Gate`] over a [`DistributedKeyedLimiter`] that computes key and cost from the request; created by
/// [`LimitLayer::distributed_keyed`](super::LimitLayer::distributed_keyed).
///
/// If the key has no limiter on this machine, even a request that may not wait for tokens waits for the store's
/// answer.
pub struct DistributedKeyed<K, S, F> {
    users: DistributedKeyedLimiter<K, S>,
    key: Arc<F>,
}

impl<K, S, F> DistributedKeyed<K, S, F> {
    /// Creates a gate. `key` returns the key of a request, and how many of its tokens the request takes.
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

    fn admit(&self, request: &Request, max_wait: MaxWait) -> DistributedKeyedAdmission<K, S> {
        let (key, cost) = (self.key)(request);
        let claim = self.users.clone().consume_owned(key, cost);
        let claim = match max_wait {
            MaxWait::Endless => claim,
            MaxWait::AtMost(allowed) => claim.within(allowed),
            MaxWait::None => claim.within(Duration::ZERO),
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
        f.debug_struct("DistributedKeyed").field("users", &self.users).finish_non_exhaustive()
    }
}

/// A claim on a key of a [`DistributedKeyedLimiter`].
///
/// # Cancel safety
///
/// The same as [`DistributedKeyedConsume`].
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
