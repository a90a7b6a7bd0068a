//! The futures that wait for tokens of a key.
//!
//! A claim that finds its tokens never waits. Otherwise it becomes a [`Claim`] in the queue of
//! the key's live entry, with all the guarantees of that type. While it waits there, it holds the live entry.

use super::grant::{KeyedGrant, OwnedKeyedGrant, Pass};
use super::key_ref::{Borrowed, KeyRef, Owned};
use super::map::Arrival;
use crate::clock::whole_nanos;
use crate::consume::{Claim, Deadline};
use crate::core::Core;
use crate::core::coop::poll_paid;
use crate::error::ConsumeError;
use crate::grant::Permit;
use pin_project::{pin_project, pinned_drop};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A claim in the queue of a live entry.
pub(super) trait QueuedClaim: Future<Output = Result<Permit<Arc<Core>>, ConsumeError>> {
    /// Creates the claim. `allowed` is the longest wait.
    fn begin(live: Arc<Core>, cost: u64, allowed: Option<Duration>) -> Self;
}

/// A queued claim without a deadline.
#[pin_project]
pub(super) struct WithoutDeadline {
    #[pin]
    claim: Claim<Arc<Core>>,
}

/// A queued claim with a deadline.
#[pin_project]
pub(super) struct WithDeadline {
    #[pin]
    claim: Deadline<Arc<Core>>,
}

impl Future for WithoutDeadline {
    type Output = Result<Permit<Arc<Core>>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_within(cx, None)
    }
}

impl Future for WithDeadline {
    type Output = Result<Permit<Arc<Core>>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx)
    }
}

impl QueuedClaim for WithoutDeadline {
    fn begin(live: Arc<Core>, cost: u64, _: Option<Duration>) -> Self {
        Self { claim: Claim::new(live, cost) }
    }
}

impl QueuedClaim for WithDeadline {
    fn begin(live: Arc<Core>, cost: u64, allowed: Option<Duration>) -> Self {
        Self { claim: Deadline::new(Claim::new(live, cost), allowed.unwrap_or(Duration::MAX)) }
    }
}

/// A claim on `cost` tokens of a key.
#[pin_project(PinnedDrop)]
pub(super) struct KeyedClaim<H: KeyRef, W> {
    /// `None` once the future has completed.
    key_ref: Option<H>,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    #[pin]
    waiting: Option<W>,
    /// Whether the queued claim has been polled. From then on an error is not counted as a refusal.
    has_entered: bool,
}

impl<H: KeyRef, W: QueuedClaim> KeyedClaim<H, W> {
    fn new(key_ref: H, cost: u64, allowed: Option<Duration>) -> Self {
        Self { key_ref: Some(key_ref), hash: 0, cost, allowed, waiting: None, has_entered: false }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pass<H>, ConsumeError>> {
        poll_paid(cx, |cx| self.poll_unpaid(cx))
    }

    fn poll_unpaid(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pass<H>, ConsumeError>> {
        let mut this = self.project();
        let key_ref = this.key_ref.as_ref().expect("a keyed claim was polled after it had completed");
        let (map, key, cost) = (key_ref.map(), key_ref.key(), *this.cost);
        if this.waiting.is_none() {
            *this.hash = map.hash(key);
            let answer = match map.arrive(key, *this.hash, cost, this.allowed.map(whole_nanos)) {
                Arrival::Wait(live) => {
                    this.waiting.set(Some(W::begin(live, cost, *this.allowed)));
                    None
                }
                Arrival::Taken(taken) => Some(Ok(taken)),
                Arrival::Refused(error) => {
                    map.count_refusal(key, *this.hash);
                    map.template.observers.refused(cost, error);
                    Some(Err(error))
                }
            };
            if let Some(answer) = answer {
                let key_ref = this.key_ref.take().expect("the key is present: it was just used");
                return Poll::Ready(answer.map(|taken| Pass::new(key_ref, *this.hash, cost, taken)));
            }
        }
        let first = !std::mem::replace(this.has_entered, true);
        let waiting = this.waiting.as_mut().as_pin_mut().expect("the queued claim was set above");
        let answer = ready!(waiting.poll(cx));
        // A claim that had entered the queue and was removed from it was not refused.
        if first && matches!(answer, Err(error) if !matches!(error, ConsumeError::TimedOut { .. })) {
            map.count_refusal(key, *this.hash);
        }
        let taken = answer.map(|permit| map.taken(*this.hash, permit));
        this.waiting.set(None);
        if taken.is_err() {
            map.may_be_idle(*this.hash);
        }
        let key_ref = this.key_ref.take().expect("the key is present: it was just used");
        Poll::Ready(taken.map(|taken| Pass::new(key_ref, *this.hash, cost, taken)))
    }
}

#[pinned_drop]
impl<H: KeyRef, W> PinnedDrop for KeyedClaim<H, W> {
    /// The queued claim leaves the queue when it is dropped; the live entry may then not be needed any more.
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        if this.waiting.is_some() {
            this.waiting.set(None);
            if let Some(key_ref) = this.key_ref {
                key_ref.map().may_be_idle(*this.hash);
            }
        }
    }
}

impl<H: KeyRef, W> fmt::Debug for KeyedClaim<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.waiting.is_some();
        f.debug_struct("KeyedClaim").field("cost", &self.cost).field("waits", &waits).finish_non_exhaustive()
    }
}

/// The future returned by [`KeyedLimiter::consume`](super::KeyedLimiter::consume).
///
/// # Cancel safety
///
/// The future can be dropped at any time, like [`Consume`](crate::Consume). The waiters behind it move up at once, and
/// no token is lost. If the grant was made but not yet returned by `poll`, it is refunded, and the tokens can be
/// granted again at once.
///
/// # Panics
///
/// Panics where [`Consume`](crate::Consume) does, and if `Hash`, `Eq` or `Clone` of the key panics, or `quota_by`. The
/// limiter is then as it was before.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedConsume<'a, K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Borrowed<'a, K, S>, WithoutDeadline>,
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> KeyedConsume<'a, K, S> {
    pub(super) fn new(key_ref: Borrowed<'a, K, S>, cost: u64) -> Self {
        Self { claim: KeyedClaim::new(key_ref, cost, None) }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    ///
    /// # Panics
    ///
    /// Panics if the future was polled already.
    pub fn within(mut self, allowed: Duration) -> KeyedWithin<'a, K, S> {
        let key_ref = self.claim.take_key_ref();
        KeyedWithin { claim: KeyedClaim::new(key_ref, self.claim.cost, Some(allowed)) }
    }
}

impl<H: KeyRef, W> KeyedClaim<H, W> {
    /// Takes the key reference out of a claim that was never polled, and so holds nothing else.
    fn take_key_ref(&mut self) -> H {
        self.key_ref.take().expect("`within` was called on a future that was already polled")
    }
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedConsume<'a, K, S> {
    type Output = Result<KeyedGrant<'a, K, S>, ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(KeyedGrant)
    }
}

/// The future returned by [`KeyedConsume::within`]. It contains a timer.
///
/// # Cancel safety
///
/// Same as [`KeyedConsume`].
///
/// # Panics
///
/// Same as [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedWithin<'a, K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Borrowed<'a, K, S>, WithDeadline>,
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedWithin<'a, K, S> {
    type Output = Result<KeyedGrant<'a, K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(KeyedGrant)
    }
}

/// The future returned by [`KeyedLimiter::consume_owned`](super::KeyedLimiter::consume_owned), for spawned tasks.
///
/// # Cancel safety
///
/// Same as [`KeyedConsume`].
///
/// # Panics
///
/// Same as [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedConsumeOwned<K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Owned<K, S>, WithoutDeadline>,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedConsumeOwned<K, S> {
    pub(super) fn new(key_ref: Owned<K, S>, cost: u64) -> Self {
        Self { claim: KeyedClaim::new(key_ref, cost, None) }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    ///
    /// # Panics
    ///
    /// Panics if the future was polled already.
    pub fn within(mut self, allowed: Duration) -> KeyedWithinOwned<K, S> {
        let key_ref = self.claim.take_key_ref();
        KeyedWithinOwned { claim: KeyedClaim::new(key_ref, self.claim.cost, Some(allowed)) }
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedConsumeOwned<K, S> {
    type Output = Result<OwnedKeyedGrant<K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(OwnedKeyedGrant)
    }
}

/// The future returned by [`KeyedConsumeOwned::within`]. It contains a timer.
///
/// # Cancel safety
///
/// Same as [`KeyedConsume`].
///
/// # Panics
///
/// Same as [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedWithinOwned<K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Owned<K, S>, WithDeadline>,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedWithinOwned<K, S> {
    type Output = Result<OwnedKeyedGrant<K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(OwnedKeyedGrant)
    }
}
