//! The reason of a refusal.

use crate::error::{Bound, ConsumeError, Refused, TryAcquireError};

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
        !matches!(self, Self::TooLarge | Self::KeyTooLong | Self::BadQuota | Self::Closed | Self::NoRuntime)
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
    BadQuota: "bad_quota",
    TooLarge: "too_large",
    KeyTooLong: "key_too_long",
    Closed: "closed",
    NoRuntime: "no_runtime",
    Unreachable: "unreachable",
    QuotaConflict: "quota_conflict",
}

impl Reason {
    /// The reason of a denial by this bound.
    pub(crate) fn of_bound(by: Bound) -> Self {
        match by {
            Bound::Quota(_) => Self::Quota,
            Bound::InFlight => Self::InFlight,
            Bound::MaxCost => Self::TooLarge,
            Bound::Pause => Self::Pause,
            Bound::Queue => Self::Queue,
            Bound::Ceiling => Self::Ceiling,
            Bound::Parent | Bound::ParentInFlight | Bound::ParentPause | Bound::ParentQueue => Self::Parent,
        }
    }

    pub(crate) fn of(refused: &Refused) -> Self {
        match refused {
            Refused::AtOnce(TryAcquireError::Denied(denied)) => Self::of_bound(denied.by),
            Refused::AtOnce(TryAcquireError::TooLarge { .. }) | Refused::InLine(ConsumeError::TooLarge { .. }) => {
                Self::TooLarge
            }
            Refused::AtOnce(TryAcquireError::KeyTooLong { .. }) | Refused::InLine(ConsumeError::KeyTooLong { .. }) => {
                Self::KeyTooLong
            }
            Refused::AtOnce(TryAcquireError::Closed) | Refused::InLine(ConsumeError::Closed) => Self::Closed,
            Refused::AtOnce(TryAcquireError::TooManyKeys { .. })
            | Refused::InLine(ConsumeError::TooManyKeys { .. }) => Self::TooManyKeys,
            Refused::AtOnce(TryAcquireError::BadQuota(_)) | Refused::InLine(ConsumeError::BadQuota(_)) => {
                Self::BadQuota
            }
            Refused::InLine(ConsumeError::QueueFull { .. }) => Self::QueueFull,
            Refused::InLine(ConsumeError::TooLate { .. }) => Self::TooLate,
            Refused::InLine(ConsumeError::TimedOut { .. }) => Self::TimedOut,
            Refused::InLine(ConsumeError::NoRuntime) => Self::NoRuntime,
            // Made by `Limiter::wait`, which reports nothing.
            Refused::InLine(ConsumeError::MustHold) => Self::InFlight,
            Refused::AtOnce(TryAcquireError::Unreachable) | Refused::InLine(ConsumeError::Unreachable) => {
                Self::Unreachable
            }
            Refused::AtOnce(TryAcquireError::QuotaConflict(_)) | Refused::InLine(ConsumeError::QuotaConflict(_)) => {
                Self::QuotaConflict
            }
        }
    }
}
