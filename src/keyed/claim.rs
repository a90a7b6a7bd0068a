//! The futures that wait for tokens of a key.
//!
//! A claim that finds its tokens never waits. Otherwise it becomes a [`Claim`] in the queue of the key's live entry, with all
//! the guarantees of that type. While it waits there, it holds that entry.

use super::grant::GrantOfKey;
use super::map::{Map, Taken};
use super::to_key::{HeldKey, MapRef};
use super::top::Rank;
use super::{Hashed, ToKey};
use crate::Wait;
use crate::claim::Claim;
use crate::core::coop::{count_free_grant, poll_paid, uncount_free_grant};
use crate::core::in_use::InUse;
use crate::deadline::Allowed;
use crate::error::ConsumeError;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

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
/// Panics where [`Consume`](crate::Consume) does, and if `Hash`, `Eq` or `Clone` of the key panics, or
/// `quota_by`. The limiter is then as it was before.
pub type KeyedConsume<'a, 'k, K, S = RandomState, Q = K> = KeyedClaim<&'a Map<K, S>, &'k Q, Q>;

/// The future returned by [`KeyedLimiter::consume_owned`](super::KeyedLimiter::consume_owned), for spawned tasks.
///
/// # Cancel safety
///
/// Same as [`KeyedConsume`].
///
/// # Panics
///
/// Same as [`KeyedConsume`].
pub type KeyedConsumeOwned<K, S = RandomState> = KeyedClaim<Arc<Map<K, S>>, K, K>;

type Answer<M, F, Q> = Result<GrantOfKey<M, <F as HeldKey<Q>>::Kept>, ConsumeError>;

pin_project! {
    /// A claim on `cost` tokens of a key, which it holds as `F`, in the form `Q`.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct KeyedClaim<M: MapRef, F, Q: ?Sized> {
        // The claim in the queue of the key's live entry. `None` before it enters the queue, and once the future has
        // completed. Dropped first: it leaves the queue while the limiter exists.
        #[pin]
        queued: Option<Claim<InUse>>,
        // `None` once the future has completed.
        held: Option<(M, F)>,
        hash: u64,
        cost: u64,
        allowed: Allowed,
        form: PhantomData<fn() -> Box<Q>>,
    }
}

impl<M: MapRef, F: HeldKey<Q>, Q: ToKey<M::Key> + ?Sized> KeyedClaim<M, F, Q> {
    pub(super) fn new(map: M, key: F, cost: u64) -> Self {
        Self { held: Some((map, key)), hash: 0, cost, allowed: Allowed::ANY, queued: None, form: PhantomData }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    // A claim that was polled is pinned, and cannot be moved here.
    pub fn within(mut self, allowed: Duration) -> Self {
        self.allowed = Allowed::at_most(allowed);
        self
    }

    /// Takes the tokens if they are there and no claim on the key waits, without polling; see
    /// [`Consume::try_now`](crate::Consume::try_now). A claim may also come back if the key owes nothing yet, or if
    /// tokens of it are in flight. Awaiting it grants at once if the tokens are there.
    ///
    /// # Errors
    ///
    /// The error is this future, which has claimed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::new(Quota::per_second(100).burst(5))?;
    /// let grant = match users.consume(&17, 2).try_now() {
    ///     Ok(grant) => grant,
    ///     Err(claim) => claim.await?,
    /// };
    /// assert_eq!((grant.cost(), grant.remaining()), (2, 3));
    /// # Ok(()) }
    /// ```
    #[expect(clippy::result_large_err, reason = "the error is the claim itself, and is awaited where it is")]
    #[inline]
    pub fn try_now(mut self) -> Result<GrantOfKey<M, F::Kept>, Self> {
        Self::take_at_once(&mut self.held, &mut self.hash, self.cost).map_err(|_| self)
    }

    /// The fast path of the first poll. The error is the key's live entry, if it has one.
    #[inline(always)]
    fn take_at_once(
        held: &mut Option<(M, F)>,
        hash: &mut u64,
        cost: u64,
    ) -> Result<GrantOfKey<M, F::Kept>, Option<InUse>> {
        let (map, key) = held.as_ref().expect("a keyed claim was polled after it had completed");
        let map = map.map();
        let key = map.hashed(key.borrow());
        *hash = key.hash;
        let left = map.claim_at_once(key, cost)?;
        Ok(Self::grant(held, *hash, cost, Taken { left, live: InUse::default() }))
    }

    /// The grant, with which the future completes.
    #[inline(always)]
    fn grant(held: &mut Option<(M, F)>, hash: u64, cost: u64, taken: Taken) -> GrantOfKey<M, F::Kept> {
        let (map, key) = held.take().expect("the key is present: it was just used");
        GrantOfKey::new(map, key.kept(), hash, cost, taken)
    }

    /// The rest of a poll. If `is_tried`, the fast path was tried and took no tokens, but may have found the key's `live` entry.
    #[inline(never)]
    fn pay(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        is_tried: bool,
        mut live: Option<InUse>,
    ) -> Poll<Answer<M, F, Q>> {
        if is_tried {
            uncount_free_grant();
        }
        poll_paid(cx, |cx| {
            if !is_tried && self.queued.is_none() {
                let this = self.as_mut().project();
                match Self::take_at_once(this.held, this.hash, *this.cost) {
                    Ok(grant) => return Poll::Ready(Ok(grant)),
                    Err(found) => live = found,
                }
            }
            let taken = ready!(self.as_mut().poll_wait(cx, live.take()));
            let this = self.as_mut().project();
            let grant = taken.map(|taken| Self::grant(this.held, *this.hash, *this.cost, taken));
            *this.held = None;
            Poll::Ready(grant)
        })
    }

    /// All of a poll but the fast path, which took no tokens, but may have found the key's `live` entry.
    fn poll_wait(self: Pin<&mut Self>, cx: &mut Context<'_>, live: Option<InUse>) -> Poll<Result<Taken, ConsumeError>> {
        let mut this = self.project();
        let (map, key) = this.held.as_ref().expect("a keyed claim was polled after it had completed");
        let (map, cost) = (map.map(), *this.cost);
        let key = Hashed { form: key.borrow(), hash: *this.hash };
        let is_first = this.queued.is_none();
        if is_first {
            match map.arrive(key, cost, this.allowed.nanos(), live)? {
                Ok(taken) => return Poll::Ready(Ok(taken)),
                Err(live) => {
                    this.queued.set(Some(Claim::with_limit(live, cost, *this.allowed)));
                }
            }
        }
        let claim = this.queued.as_mut().as_pin_mut().expect("the claim is queued");
        let answer = claim.poll(cx);
        if is_first && answer.is_pending() {
            map.rank(Rank::Waited, key, 1);
        }
        let answer = ready!(answer);
        // A claim that had entered the queue and was removed from it was not refused.
        if is_first && answer.as_ref().is_err_and(|error| !matches!(error, ConsumeError::TimedOut { .. })) {
            map.count_refusal(key);
        }
        let taken = answer.map(|permit| map.taken(key, permit));
        this.queued.set(None);
        Poll::Ready(taken)
    }
}

impl<M: MapRef, F: HeldKey<Q>, Q: ToKey<M::Key> + ?Sized> Future for KeyedClaim<M, F, Q> {
    type Output = Answer<M, F, Q>;

    // Polls for one unit of the task's budget. A grant without waiting may be free.
    // Inlined at every `.await`, and calls for the rest: a grant without waiting needs nothing else.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let is_free = self.queued.is_none() && count_free_grant();
        let mut live = None;
        if is_free {
            let this = self.as_mut().project();
            match Self::take_at_once(this.held, this.hash, *this.cost) {
                Ok(grant) => return Poll::Ready(Ok(grant)),
                Err(found) => live = found,
            }
        }
        self.pay(cx, is_free, live)
    }
}

impl<M: MapRef, F, Q: ?Sized> fmt::Debug for KeyedClaim<M, F, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.queued.is_some();
        f.debug_struct("KeyedClaim").field("cost", &self.cost).field("waits", &waits).finish_non_exhaustive()
    }
}

impl<K, S, Q> Wait<KeyedConsume<'_, '_, K, S, Q>>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
    Q: ToKey<K> + ?Sized,
{
    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within).
    pub fn within(self, allowed: Duration) -> Self {
        self.map(|claim| claim.within(allowed))
    }
}
