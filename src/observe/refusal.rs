//! A refusal of any kind, and its reason.

use crate::error::{Bound, ConsumeError, TryAcquireError};
use std::fmt;

/// Why a caller was refused: `InLine` for a call that may wait, `AtOnce` for a call that does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    InLine(ConsumeError),
    AtOnce(TryAcquireError),
}

macro_rules! reasons {
    ($($reason:ident: $name:literal,)*) => {
        /// One variant for each reason to refuse.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason { $($reason,)* }

        impl Reason {
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$reason => $name,)* }
            }
        }

        /// All reasons, in order.
        pub(crate) const REASONS: &[Reason] = &[$(Reason::$reason,)*];
    };
}

impl Reason {
    /// True if the same request could be granted at another time.
    pub(crate) fn is_for_now(self) -> bool {
        !matches!(self, Self::TooLarge | Self::Closed | Self::NoRuntime)
    }
}

reasons! {
    Quota: "quota",
    InFlight: "in_flight",
    Pause: "pause",
    Queue: "queue",
    Ceiling: "ceiling",
    QueueFull: "queue_full",
    Parent: "parent",
    TooLate: "too_late",
    TimedOut: "timed_out",
    TooManyKeys: "too_many_keys",
    TooLarge: "too_large",
    Closed: "closed",
    NoRuntime: "no_runtime",
    Unreachable: "unreachable",
}

impl Refusal {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::AtOnce(TryAcquireError::Denied(denied)) => match denied.by {
                Bound::Quota(_) => Reason::Quota,
                Bound::InFlight => Reason::InFlight,
                Bound::Pause => Reason::Pause,
                Bound::Queue => Reason::Queue,
                Bound::Ceiling => Reason::Ceiling,
                Bound::Parent => Reason::Parent,
            },
            Self::AtOnce(TryAcquireError::TooLarge { .. }) | Self::InLine(ConsumeError::TooLarge { .. }) => {
                Reason::TooLarge
            }
            Self::AtOnce(TryAcquireError::Closed) | Self::InLine(ConsumeError::Closed) => Reason::Closed,
            Self::AtOnce(TryAcquireError::TooManyKeys { .. }) | Self::InLine(ConsumeError::TooManyKeys { .. }) => {
                Reason::TooManyKeys
            }
            Self::InLine(ConsumeError::QueueFull { .. }) => Reason::QueueFull,
            Self::InLine(ConsumeError::TooLate { .. }) => Reason::TooLate,
            Self::InLine(ConsumeError::TimedOut { .. }) => Reason::TimedOut,
            Self::InLine(ConsumeError::NoRuntime) => Reason::NoRuntime,
            Self::AtOnce(TryAcquireError::Unreachable) | Self::InLine(ConsumeError::Unreachable) => Reason::Unreachable,
        }
    }

    /// After how long the same request would be granted, if no other caller arrives meanwhile.
    pub(crate) fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.retry_after,
            Self::InLine(ConsumeError::TooLate { estimate, allowed }) => Some(estimate.saturating_sub(*allowed)),
            _ => None,
        }
    }
}

impl From<ConsumeError> for Refusal {
    fn from(error: ConsumeError) -> Self {
        Self::InLine(error)
    }
}

impl From<TryAcquireError> for Refusal {
    fn from(error: TryAcquireError) -> Self {
        Self::AtOnce(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InLine(error) => error.fmt(f),
            Self::AtOnce(error) => error.fmt(f),
        }
    }
}
