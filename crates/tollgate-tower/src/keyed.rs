//! A gate with a bucket and a queue per user, address or API key.

use super::gate::{Gate, MaxWait};
use crate::coop::poll_paid;
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::Refused;
use tollgate::{KeyedConsumeOwned, KeyedLimiter, OwnedKeyedGrant};

/// A [`Gate`] over a [`KeyedLimiter`] that computes key and cost from the request; created by
/// [`LimitLayer::keyed`](super::LimitLayer::keyed).
pub struct Keyed<K, S, F> {
    users: KeyedLimiter<K, S>,
    key: Arc<F>,
}

impl<K, S, F> Keyed<K, S, F> {
    /// Creates a gate. `key` returns the key of a request, and the cost of the request in tokens.
    pub fn new(users: &KeyedLimiter<K, S>, key: F) -> Self {
        Self { users: users.clone(), key: Arc::new(key) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn users(&self) -> &KeyedLimiter<K, S> {
        &self.users
    }

    pub(crate) fn key<Request>(&self, request: &Request) -> (K, u64)
    where
        F: Fn(&Request) -> (K, u64),
    {
        (self.key)(request)
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher, F> Keyed<K, S, F> {
    pub(crate) fn admit_key(&self, key: K, cost: u64, max_wait: MaxWait) -> KeyedAdmission<K, S> {
        let users = self.users.clone();
        let mode = match max_wait {
            MaxWait::Endless => Mode::Wait(users.consume_owned(key, cost)),
            MaxWait::AtMost(allowed) => Mode::Wait(users.consume_owned(key, cost).within(allowed)),
            // Without a limiter for the key on this machine, only a request to the store can tell.
            MaxWait::None if users.is_distributed() => {
                Mode::Wait(users.consume_owned(key, cost).within(Duration::ZERO))
            }
            MaxWait::None => Mode::None(Some((users, key, cost))),
        };
        KeyedAdmission { mode }
    }
}

impl<Request, K, S, F> Gate<Request> for Keyed<K, S, F>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
    F: Fn(&Request) -> (K, u64),
{
    type Pass = OwnedKeyedGrant<K, S>;
    type Admission = KeyedAdmission<K, S>;

    fn admit(&self, request: &Request, max_wait: MaxWait) -> KeyedAdmission<K, S> {
        let (key, cost) = self.key(request);
        self.admit_key(key, cost, max_wait)
    }
}

impl<K, S, F> Clone for Keyed<K, S, F> {
    fn clone(&self) -> Self {
        Self { users: self.users.clone(), key: Arc::clone(&self.key) }
    }
}

impl<K, S, F> fmt::Debug for Keyed<K, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("users", &self.users).finish_non_exhaustive()
    }
}

/// A claim on a key of a [`KeyedLimiter`], with or without a limit on the wait.
///
/// # Cancel safety
///
/// The same as [`KeyedConsume`](tollgate::KeyedConsume).
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
pub struct KeyedAdmission<K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    mode: Mode<K, S>,
}

#[pin_project(project = ModeProjection)]
enum Mode<K: Hash + Eq + Clone, S: BuildHasher> {
    Wait(#[pin] KeyedConsumeOwned<K, S>),
    /// `None` once the future has returned its result.
    None(Option<(KeyedLimiter<K, S>, K, u64)>),
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedAdmission<K, S> {
    type Output = Result<OwnedKeyedGrant<K, S>, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().mode.project() {
            ModeProjection::Wait(consume) => consume.poll(cx).map_err(Refused::InLine),
            ModeProjection::None(ask) => poll_paid(cx, |_| {
                let (users, key, cost) = ask.take().expect("polled after it was ready");
                Poll::Ready(users.try_acquire_owned(key, cost).map_err(Refused::AtOnce))
            }),
        }
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> fmt::Debug for KeyedAdmission<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match &self.mode {
            Mode::Wait(_) => "wait",
            Mode::None(_) => "none",
        };
        f.debug_struct("KeyedAdmission").field("max_wait", &mode).finish_non_exhaustive()
    }
}
