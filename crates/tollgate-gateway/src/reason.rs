//! Why a request is refused: in the access log, in `/metrics` and on the page.

use tollgate::{Bound, ConsumeError, Denied, Refused, TryAcquireError};

use super::counters::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Its client asks for more than its quota.
    OwnQuota,
    /// The queue of its client is full, or held up.
    OwnQueue,
    /// Its client has too many tokens in flight.
    OwnInFlight,
    /// All requests together ask for more than their quota.
    AllQuota,
    /// Too many requests wait for the limit of all.
    AllQueue,
    /// Other requests took the tokens, or held the places in flight, for all of `max_wait`.
    AllWait,
    /// Unlisted clients together ask for more than theirs.
    UnlistedQuota,
    /// Its cost could never be granted.
    TooLarge,
    /// The gateway ends.
    Ending,
    /// Its key is not listed.
    Unknown,
    /// It is not what HTTP allows, or its body did not come in time.
    Invalid,
}

impl Reason {
    pub(crate) const ALL: [Self; 11] = [
        Self::OwnQuota,
        Self::OwnQueue,
        Self::OwnInFlight,
        Self::AllQuota,
        Self::AllQueue,
        Self::AllWait,
        Self::UnlistedQuota,
        Self::TooLarge,
        Self::Ending,
        Self::Unknown,
        Self::Invalid,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OwnQuota => "own_quota",
            Self::OwnQueue => "own_queue",
            Self::OwnInFlight => "own_in_flight",
            Self::AllQuota => "all_quota",
            Self::AllQueue => "all_queue",
            Self::AllWait => "all_wait",
            Self::UnlistedQuota => "unlisted_quota",
            Self::TooLarge => "too_large",
            Self::Ending => "ending",
            Self::Unknown => "unknown_key",
            Self::Invalid => "invalid",
        }
    }

    /// The reason for a refusal by the limit that `by` counts.
    pub(crate) fn of(by: Outcome, why: &Refused) -> Self {
        let is_all = by == Outcome::RefusedAll;
        let queue = if is_all { Self::AllQueue } else { Self::OwnQueue };
        match why {
            Refused::InLine(ConsumeError::Closed) | Refused::AtOnce(TryAcquireError::Closed) => Self::Ending,
            Refused::InLine(ConsumeError::TooLarge { .. }) | Refused::AtOnce(TryAcquireError::TooLarge { .. }) => {
                Self::TooLarge
            }
            Refused::InLine(ConsumeError::QueueFull { .. }) => queue,
            Refused::AtOnce(TryAcquireError::Denied(Denied { by: Bound::Queue, .. })) => queue,
            Refused::InLine(ConsumeError::TimedOut { .. }) if is_all => Self::AllWait,
            Refused::InLine(ConsumeError::TimedOut { .. }) => Self::OwnQueue,
            why => match why.by() {
                Some(Bound::InFlight) if is_all => Self::AllWait,
                Some(Bound::InFlight) => Self::OwnInFlight,
                Some(Bound::Ceiling) => Self::UnlistedQuota,
                _ if is_all => Self::AllQuota,
                _ => Self::OwnQuota,
            },
        }
    }

    /// The reason for an outcome that is a refusal without a limit.
    pub(crate) fn without_limit(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Unknown => Some(Self::Unknown),
            Outcome::Invalid => Some(Self::Invalid),
            _ => None,
        }
    }
}

#[test]
fn reasons_have_names_of_their_own_and_are_in_order() {
    for (place, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, place);
        assert_eq!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
    }
}
