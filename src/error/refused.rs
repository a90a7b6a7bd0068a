//! One error for calls that may wait and calls that may not.

use super::{Bound, ConsumeError, Denied, TryAcquireError, error_enum};
#[cfg(feature = "metrics")]
use crate::name::Name;
use std::time::Duration;

error_enum! {
    /// The reason why a call did not get its tokens, whether the call was allowed to wait or not. Nothing was consumed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Refused {
        /// The call was allowed to wait.
        #[error("{0}")]
        InLine(ConsumeError),
        /// The call was not allowed to wait.
        #[error("{0}")]
        AtOnce(TryAcquireError),
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Returns after how long the same call can be granted, if no other caller arrives meanwhile; `None` if the time is
    /// unknown, or if it can never be granted.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InLine(ConsumeError::TooLate { estimate, allowed, .. }) => Some(estimate.saturating_sub(*allowed)),
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.retry_after,
            _ => None,
        }
    }

    /// Returns the bound that refused the call: the one that it would wait for longest, that held it back longest, or that
    /// its cost exceeds. `None` for all other reasons, such as a closed limiter.
    pub fn by(&self) -> Option<Bound> {
        match self {
            Self::InLine(ConsumeError::TooLate { by, .. } | ConsumeError::TimedOut { by, .. }) => Some(*by),
            Self::InLine(ConsumeError::TooLarge { by, .. }) => *by,
            Self::AtOnce(TryAcquireError::Denied(denied)) => Some(denied.by),
            Self::AtOnce(TryAcquireError::TooLarge { by, .. }) => Some(*by),
            _ => None,
        }
    }

    /// The name of that bound. For a denial, this needs no lock.
    #[cfg(feature = "metrics")]
    pub(crate) fn name(&self) -> Name {
        match self {
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.name,
            _ => self.quota_name().map_or(Name::NONE, Name::find),
        }
    }

    /// Returns the name of the quota that refused, if one did and it has a name. A ceiling has the path of its class as
    /// its name. If the parent of a keyed limiter refused, this is the name of the parent's quota or ceiling.
    pub fn quota_name(&self) -> Option<&'static str> {
        match self {
            Self::InLine(
                ConsumeError::TooLate { quota_name, .. }
                | ConsumeError::TimedOut { quota_name, .. }
                | ConsumeError::TooLarge { quota_name, .. },
            )
            | Self::AtOnce(TryAcquireError::TooLarge { quota_name, .. }) => *quota_name,
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.quota_name(),
            _ => None,
        }
    }
}

impl From<ConsumeError> for Refused {
    fn from(error: ConsumeError) -> Self {
        Self::InLine(error)
    }
}

impl From<TryAcquireError> for Refused {
    fn from(error: TryAcquireError) -> Self {
        Self::AtOnce(error)
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        Self::AtOnce(denied.into())
    }
}
