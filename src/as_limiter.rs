//! The trait of everything that adapters accept: a limiter, or a class of one.

use crate::consume::ConsumeOwned;
use crate::error::TryAcquireError;
use crate::grant::OwnedGrant;
use crate::handle::{AnyLimiter, Class, Handle, Limiter};

/// A [`Limiter`], or a [`Class`] of one, or [either](AnyLimiter). The adapters for streams, byte streams, tower and
/// HTTP accept it.
///
/// The trait is sealed.
///
/// # Examples
///
/// ```
/// use tollgate::{AsLimiter, ConsumeError, Limiter, Quota, Share};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// async fn send<L: AsLimiter>(limiter: &L) -> Result<(), ConsumeError> {
///     let _grant = limiter.clone().consume_owned(1).await?;
///     // ... the work ...
///     Ok(())
/// }
///
/// let limiter = Limiter::builder().quota(Quota::per_second(100)).classes().build()?;
/// let batch = limiter.class("batch", Share::weight(1))?;
/// send(&limiter).await?;
/// send(&batch).await?;
/// # Ok(()) }
/// ```
pub trait AsLimiter: Handle {
    /// Returns the limiter: this one, or the one that has this class.
    fn limiter(&self) -> &Limiter;

    /// Waits for `cost` tokens; see [`Limiter::consume_owned`] and [`Class::consume_owned`].
    fn consume_owned(self, cost: u64) -> ConsumeOwned<Self> {
        ConsumeOwned::new(self.into_scope(), cost)
    }

    /// Takes `cost` tokens if they are there; see [`Limiter::try_acquire_owned`] and [`Class::try_acquire_owned`].
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::try_acquire`] or [`Class::try_acquire`].
    fn try_acquire_owned(self, cost: u64) -> Result<OwnedGrant<Self>, TryAcquireError> {
        OwnedGrant::acquire(self.into_scope(), cost)
    }
}

impl AsLimiter for Limiter {
    fn limiter(&self) -> &Limiter {
        self
    }
}

impl AsLimiter for Class {
    fn limiter(&self) -> &Limiter {
        Class::limiter(self)
    }
}

impl AsLimiter for AnyLimiter {
    fn limiter(&self) -> &Limiter {
        match self {
            Self::Limiter(limiter) => limiter,
            Self::Class(class) => class.limiter(),
        }
    }
}
