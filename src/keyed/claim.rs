//! The futures that wait for tokens of a key.
//!
//! A claim that finds its tokens never waits; one that does not becomes a [`Claim`](crate::consume::Claim) in the line of
//! the key's seat, with all that this promises. While it stands there it holds the seat.

use super::grant::{KeyedGrant, OwnedKeyedGrant, Pass};
use super::key_ref::{Borrowed, KeyRef, Owned};
use super::map::Arrival;
use crate::clock::whole_nanos;
use crate::consume::{Claim, Patience};
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

/// What stands in a seat's line.
pub(super) trait Waiting: Future<Output = Result<Permit<Arc<Core>>, ConsumeError>> {
    /// `allowed` is how long it may wait.
    fn begin(live: Arc<Core>, cost: u64, allowed: Option<Duration>) -> Self;
}

/// Without a deadline.
#[pin_project]
pub(super) struct Patient {
    #[pin]
    claim: Claim<Arc<Core>>,
}

/// With one.
#[pin_project]
pub(super) struct Hurried {
    #[pin]
    patience: Patience<Arc<Core>>,
}

impl Future for Patient {
    type Output = Result<Permit<Arc<Core>>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_within(cx, None)
    }
}

impl Future for Hurried {
    type Output = Result<Permit<Arc<Core>>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().patience.poll(cx)
    }
}

impl Waiting for Patient {
    fn begin(live: Arc<Core>, cost: u64, _: Option<Duration>) -> Self {
        Self { claim: Claim::new(live, cost) }
    }
}

impl Waiting for Hurried {
    fn begin(live: Arc<Core>, cost: u64, allowed: Option<Duration>) -> Self {
        Self { patience: Patience::new(Claim::new(live, cost), allowed.unwrap_or(Duration::MAX)) }
    }
}

/// A claim on `cost` tokens of a key.
#[pin_project(PinnedDrop)]
pub(super) struct KeyedClaim<H: KeyRef, W> {
    /// `None` once it has answered.
    key_ref: Option<H>,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    #[pin]
    waiting: Option<W>,
    /// Whether what it waits for has been polled: from then on it is not refused any more, only disappointed.
    has_entered: bool,
}

impl<H: KeyRef, W: Waiting> KeyedClaim<H, W> {
    fn new(key_ref: H, cost: u64, allowed: Option<Duration>) -> Self {
        Self { key_ref: Some(key_ref), hash: 0, cost, allowed, waiting: None, has_entered: false }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pass<H>, ConsumeError>> {
        poll_paid(cx, |cx| self.poll_unpaid(cx))
    }

    fn poll_unpaid(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pass<H>, ConsumeError>> {
        let mut this = self.project();
        let key_ref = this.key_ref.as_ref().expect("polled after it was ready");
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
                let key_ref = this.key_ref.take().expect("present: it was just used");
                return Poll::Ready(answer.map(|taken| Pass::new(key_ref, *this.hash, cost, taken)));
            }
        }
        let first = !std::mem::replace(this.has_entered, true);
        let waiting = this.waiting.as_mut().as_pin_mut().expect("set above");
        let answer = ready!(waiting.poll(cx));
        // Who was let into the line and had to leave it was not refused.
        if first && matches!(answer, Err(error) if !matches!(error, ConsumeError::TimedOut { .. })) {
            map.count_refusal(key, *this.hash);
        }
        let taken = answer.map(|permit| map.taken(*this.hash, permit));
        this.waiting.set(None);
        if taken.is_err() {
            map.may_be_idle(*this.hash);
        }
        let key_ref = this.key_ref.take().expect("present: it was just used");
        Poll::Ready(taken.map(|taken| Pass::new(key_ref, *this.hash, cost, taken)))
    }
}

#[pinned_drop]
impl<H: KeyRef, W> PinnedDrop for KeyedClaim<H, W> {
    /// What it waits for leaves the line by itself; then the seat may not be needed any more.
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

/// The future of [`KeyedLimiter::consume`](super::KeyedLimiter::consume).
///
/// # Cancel safety
///
/// As [`Consume`](crate::Consume): it can be dropped at any time, those behind it move up at once, and no token is lost. A
/// grant that was not seen yet is refunded, and can be granted again at once.
///
/// # Panics
///
/// As [`Consume`](crate::Consume). And where `Hash`, `Eq` or `Clone` of the key do, or `quota_by`: the limiter is then as it
/// was before.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedConsume<'a, K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Borrowed<'a, K, S>, Patient>,
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> KeyedConsume<'a, K, S> {
    pub(super) fn new(key_ref: Borrowed<'a, K, S>, cost: u64) -> Self {
        Self { claim: KeyedClaim::new(key_ref, cost, None) }
    }

    /// Waits for `allowed` at most; see [`Consume::within`](crate::Consume::within).
    ///
    /// # Panics
    ///
    /// If it was polled already.
    pub fn within(mut self, allowed: Duration) -> KeyedWithin<'a, K, S> {
        let key_ref = self.claim.take_key_ref();
        KeyedWithin { claim: KeyedClaim::new(key_ref, self.claim.cost, Some(allowed)) }
    }
}

impl<H: KeyRef, W> KeyedClaim<H, W> {
    /// Of a claim that was never polled, and so holds nothing else.
    fn take_key_ref(&mut self) -> H {
        self.key_ref.take().expect("`within` is called before the first poll")
    }
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedConsume<'a, K, S> {
    type Output = Result<KeyedGrant<'a, K, S>, ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(KeyedGrant)
    }
}

/// The future of [`KeyedConsume::within`]. It carries a timer.
///
/// # Cancel safety
///
/// As [`KeyedConsume`].
///
/// # Panics
///
/// As [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedWithin<'a, K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Borrowed<'a, K, S>, Hurried>,
}

impl<'a, K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedWithin<'a, K, S> {
    type Output = Result<KeyedGrant<'a, K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(KeyedGrant)
    }
}

/// The future of [`KeyedLimiter::consume_owned`](super::KeyedLimiter::consume_owned), for spawned tasks.
///
/// # Cancel safety
///
/// As [`KeyedConsume`].
///
/// # Panics
///
/// As [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedConsumeOwned<K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Owned<K, S>, Patient>,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedConsumeOwned<K, S> {
    pub(super) fn new(key_ref: Owned<K, S>, cost: u64) -> Self {
        Self { claim: KeyedClaim::new(key_ref, cost, None) }
    }

    /// Waits for `allowed` at most; see [`Consume::within`](crate::Consume::within).
    ///
    /// # Panics
    ///
    /// If it was polled already.
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

/// The future of [`KeyedConsumeOwned::within`]. It carries a timer.
///
/// # Cancel safety
///
/// As [`KeyedConsume`].
///
/// # Panics
///
/// As [`KeyedConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedWithinOwned<K: Hash + Eq + Clone, S: BuildHasher> {
    #[pin]
    claim: KeyedClaim<Owned<K, S>, Hurried>,
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Future for KeyedWithinOwned<K, S> {
    type Output = Result<OwnedKeyedGrant<K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll(cx).map_ok(OwnedKeyedGrant)
    }
}
