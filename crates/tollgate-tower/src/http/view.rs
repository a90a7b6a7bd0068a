//! Gates that can report the limits of a request.

use super::limits::{RateLimits, Terms};
use crate::gate::Acquire;
use crate::{Admission, AnyLimiter, By, Gate, MaxWait};
use std::fmt;
use std::sync::Arc;
use tollgate::{AsLimiter, Limiter, Refused};

/// Reads the limits of one request.
pub trait View {
    /// Returns the current limits.
    fn look(&self, terms: &Terms) -> RateLimits;

    /// Returns the limits that a refusal reports: those of the limiter that refused. By default the same as
    /// [`look`](Self::look).
    fn look_at_refusal(&self, terms: &Terms, refused: &Refused) -> RateLimits {
        let _ = refused;
        self.look(terms)
    }
}

impl View for Limiter {
    fn look(&self, terms: &Terms) -> RateLimits {
        RateLimits::of(&self.snapshot(), terms)
    }
}

/// A [`Gate`] that knows its limits, so that responses can report them. Implement it for a gate of your own, often
/// with a [`Limiter`] as the view.
pub trait Advertise<Request>: Gate<Request> {
    /// Reads the limits.
    type View: View;

    /// Calls [`Gate::admit`], and returns a view that can read the limits while the request is under way.
    fn admit_in_view(&self, request: &Request, max_wait: MaxWait) -> (Self::Admission, Self::View);
}

/// The limits of a class are those of its limiter.
impl<Request, L: AsLimiter> Advertise<Request> for L {
    type View = Limiter;

    fn admit_in_view(&self, request: &Request, max_wait: MaxWait) -> (Admission<L>, Limiter) {
        (self.admit(request, max_wait), self.limiter().clone())
    }
}

/// A limiter that can report the limits that apply to what a request takes from it, such as those of one key.
pub trait Viewed<T>: Acquire<T> {
    /// Reads the limits.
    type View: View;

    /// Returns a view of the limits that apply to `chosen`.
    fn view(&self, chosen: &T) -> Self::View;
}

impl<L: AsLimiter> Viewed<u64> for L {
    type View = Limiter;

    fn view(&self, _: &u64) -> Limiter {
        self.limiter().clone()
    }
}

impl<L: AsLimiter> Viewed<(L, u64)> for AnyLimiter {
    type View = Limiter;

    fn view(&self, (limiter, _): &(L, u64)) -> Limiter {
        limiter.limiter().clone()
    }
}

impl<Request, L, F, T> Advertise<Request> for By<L, F>
where
    L: Viewed<T>,
    F: Fn(&Request) -> T,
{
    type View = L::View;

    fn admit_in_view(&self, request: &Request, max_wait: MaxWait) -> (Admission<L, T>, L::View) {
        let chosen = self.choose(request);
        let view = self.limiter().view(&chosen);
        (self.admit_chosen(chosen, max_wait), view)
    }
}

/// A gate that adds a partition key to its limits; created by
/// [`HttpLimitLayer::partition_key`](super::HttpLimitLayer::partition_key).
pub struct Partitioned<G, F> {
    gate: G,
    key: Arc<F>,
}

impl<G, F> Partitioned<G, F> {
    pub(super) fn new(gate: G, key: F) -> Self {
        Self { gate, key: Arc::new(key) }
    }
}

impl<Request, G: Gate<Request>, F> Gate<Request> for Partitioned<G, F> {
    type Pass = G::Pass;
    type Admission = G::Admission;

    fn admit(&self, request: &Request, max_wait: MaxWait) -> G::Admission {
        self.gate.admit(request, max_wait)
    }
}

impl<Request, G: Advertise<Request>, F: Fn(&Request) -> Vec<u8>> Advertise<Request> for Partitioned<G, F> {
    type View = PartitionView<G::View>;

    fn admit_in_view(&self, request: &Request, max_wait: MaxWait) -> (G::Admission, Self::View) {
        let key = Arc::from((self.key)(request));
        let (admission, view) = self.gate.admit_in_view(request, max_wait);
        (admission, PartitionView { view, key })
    }
}

impl<G: Clone, F> Clone for Partitioned<G, F> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), key: Arc::clone(&self.key) }
    }
}

impl<G: fmt::Debug, F> fmt::Debug for Partitioned<G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitioned").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// The view of a [`Partitioned`] gate.
#[derive(Clone, Debug)]
pub struct PartitionView<V> {
    view: V,
    key: Arc<[u8]>,
}

impl<V: View> View for PartitionView<V> {
    fn look(&self, terms: &Terms) -> RateLimits {
        let mut limits = self.view.look(terms);
        limits.set_partition_key(Arc::clone(&self.key));
        limits
    }

    fn look_at_refusal(&self, terms: &Terms, refused: &Refused) -> RateLimits {
        let mut limits = self.view.look_at_refusal(terms, refused);
        limits.set_partition_key(Arc::clone(&self.key));
        limits
    }
}

#[cfg(feature = "keyed")]
mod keyed {
    use super::*;
    use tollgate::{AsKeyedLimiter, Bound};

    /// Reads the limits of one key of a keyed limiter.
    pub struct KeyView<K, L> {
        users: L,
        key: K,
    }

    impl<K, L: AsKeyedLimiter<K>> View for KeyView<K, L> {
        fn look(&self, terms: &Terms) -> RateLimits {
            RateLimits::of_key(&self.users, &self.key, terms)
        }

        /// If the parent refused, these are the limits of the parent, which all keys share. Other responses do not show
        /// the parent's limits: a client could learn from them how much other clients use.
        fn look_at_refusal(&self, terms: &Terms, refused: &Refused) -> RateLimits {
            match self.users.parent().filter(|_| refused.by().is_some_and(Bound::is_parent)) {
                Some(parent) => {
                    RateLimits::of(&parent.snapshot(), &Terms { name: Arc::from("parent"), ..terms.clone() })
                }
                None => self.look(terms),
            }
        }
    }

    impl<K, L: fmt::Debug> fmt::Debug for KeyView<K, L> {
        /// Omits the key, which identifies a user.
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("KeyView").field("users", &self.users).finish_non_exhaustive()
        }
    }

    impl<K: Clone, L: AsKeyedLimiter<K>> Viewed<(K, u64)> for L {
        type View = KeyView<K, L>;

        fn view(&self, (key, _): &(K, u64)) -> KeyView<K, L> {
            KeyView { users: self.clone(), key: key.clone() }
        }
    }
}

#[cfg(feature = "keyed")]
pub use keyed::KeyView;
