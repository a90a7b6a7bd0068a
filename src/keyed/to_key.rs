//! The forms in which callers name a key, and in which futures and grants hold it and the limiter: borrowed, or owned
//! for spawned tasks.

use super::map::Map;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A form of a key `K` that calls accept in place of `&K`, such as `&str` for a `String`.
///
/// Each type that can be cloned is a form of itself. A `KeyedLimiter` finds the key by [`Equivalent`], and makes the
/// owned key only to keep it, or to ask `quota_by` or `weight_by`. A `DistributedKeyedLimiter` makes it at each call.
///
/// The form must have the same hash as the key. Its methods run under the limiter's locks, so they must not call the
/// limiter. They may panic.
///
/// # Examples
///
/// A key with several parts takes a type that borrows them:
///
/// ```
/// use equivalent::Equivalent;
/// use tollgate::{KeyedLimiter, Quota, ToKey};
///
/// #[derive(Hash)]
/// struct UserOnHost<'a>(&'a str, &'a str);
///
/// impl Equivalent<(String, String)> for UserOnHost<'_> {
///     fn equivalent(&self, (user, host): &(String, String)) -> bool {
///         self.0 == user && self.1 == host
///     }
/// }
///
/// impl ToKey<(String, String)> for UserOnHost<'_> {
///     fn to_key(&self) -> (String, String) {
///         (self.0.to_owned(), self.1.to_owned())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter: KeyedLimiter<(String, String)> = KeyedLimiter::new(Quota::per_hour(10))?;
/// let _grant = limiter.try_acquire(&UserOnHost("ann", "a.example"), 3)?;
/// assert_eq!(limiter.available(&("ann".to_owned(), "a.example".to_owned())), 7);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a key of type `{K}`",
    note = "pass `&key`, or `&str` for a `String`, or implement `ToKey` for a type of your own"
)]
pub trait ToKey<K>: Hash + Equivalent<K> {
    /// Makes the owned key.
    fn to_key(&self) -> K;
}

/// A form of a key, and its hash.
pub(super) struct Hashed<'a, Q: ?Sized> {
    pub(super) form: &'a Q,
    pub(super) hash: u64,
}

impl<Q: ?Sized> Clone for Hashed<'_, Q> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Hashed<'_, Q> {}

impl<K: Clone + Hash + Eq> ToKey<K> for K {
    #[inline]
    fn to_key(&self) -> K {
        self.clone()
    }
}

macro_rules! forms {
    ($($form:ty => $key:ty),+ $(,)?) => {$(
        impl ToKey<$key> for $form {
            #[inline]
            fn to_key(&self) -> $key {
                self.into()
            }
        }
    )+};
}

forms! {
    str => String,
    str => Box<str>,
    str => Arc<str>,
    [u8] => Vec<u8>,
    [u8] => Box<[u8]>,
    [u8] => Arc<[u8]>,
    Path => PathBuf,
}

/// A limiter that a future or a grant holds.
pub trait MapRef {
    type Key: Hash + Eq + Clone;
    type Hasher: BuildHasher;

    fn map(&self) -> &Map<Self::Key, Self::Hasher>;
}

impl<K: Hash + Eq + Clone, S: BuildHasher, M: Deref<Target = Map<K, S>>> MapRef for M {
    type Key = K;
    type Hasher = S;

    #[inline]
    fn map(&self) -> &Map<K, S> {
        self
    }
}

/// A key that a future holds, in the form `Q`.
pub trait HeldKey<Q: ?Sized>: Borrow<Q> {
    /// What the grant holds of it: the key, if the future owns it.
    type Kept;

    fn kept(self) -> Self::Kept;
}

impl<Q: ?Sized> HeldKey<Q> for &Q {
    type Kept = ();

    #[inline]
    fn kept(self) {}
}

impl<K> HeldKey<K> for K {
    type Kept = K;

    #[inline]
    fn kept(self) -> K {
        self
    }
}
