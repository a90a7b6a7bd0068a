//! The verdict of a dry run on a call.

use super::Reason;
use crate::error::Bound;
use std::time::Duration;

/// The result that a call would have had if all quotas of its limiter had been enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A grant at once, with so many tokens left.
    AtOnce { remaining: u64 },
    /// A grant after so many nanoseconds; `None` if no clock can tell.
    Waits { nanos: Option<u64> },
    /// A refusal.
    Refused { reason: Reason, by: Bound },
}

impl Verdict {
    /// The wait, if it is known.
    pub(crate) fn wait(self) -> Option<Duration> {
        match self {
            Self::AtOnce { .. } => Some(Duration::ZERO),
            Self::Waits { nanos } => nanos.map(Duration::from_nanos),
            Self::Refused { .. } => None,
        }
    }

    pub(crate) fn refused_by(self) -> Option<Bound> {
        if let Self::Refused { by, .. } = self { Some(by) } else { None }
    }
}
