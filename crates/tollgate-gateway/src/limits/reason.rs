//! Why a request is refused: in the access log, in `/metrics` and on the page.

use tollgate::{Bound, ConsumeError, Denied, Refused, TryAcquireError};

use super::limit::Limit;
use crate::request::outcome::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// It asks for more than the quota of its route, of its block of addresses or of its model.
    RuleQuota,
    /// Too many requests wait for such a limit.
    RuleQueue,
    /// Other requests took the tokens of such a limit, or held its places in flight, for all of `max_wait`.
    RuleWait,
    /// Its address is in a block that is not admitted.
    Blocked,
    /// Its cost could never be granted.
    TooLarge,
    /// The server of the quotas that all gateways share cannot be reached, or has another quota.
    Store,
    /// The gateway ends.
    Ending,
    /// Its key is not listed.
    Unknown,
    /// It is not what HTTP allows, or its body did not come in time.
    Invalid,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OwnQuota => "own_quota",
            Self::OwnQueue => "own_queue",
            Self::OwnInFlight => "own_in_flight",
            Self::AllQuota => "all_quota",
            Self::AllQueue => "all_queue",
            Self::AllWait => "all_wait",
            Self::UnlistedQuota => "unlisted_quota",
            Self::RuleQuota => "rule_quota",
            Self::RuleQueue => "rule_queue",
            Self::RuleWait => "rule_wait",
            Self::Blocked => "blocked",
            Self::TooLarge => "too_large",
            Self::Store => "store",
            Self::Ending => "ending",
            Self::Unknown => "unknown_key",
            Self::Invalid => "invalid",
        }
    }

    /// The reason why a request was not forwarded; `None` if it was not refused.
    pub(crate) fn new(outcome: Outcome, why: Option<&Refused>, limit: Option<Limit>) -> Option<Self> {
        match (why, limit) {
            (Some(why), _) => Some(Self::of(outcome, why)),
            (None, Some(Limit::Block(_))) => Some(Self::Blocked),
            (None, _) => Self::without_limit(outcome),
        }
    }

    /// The reason for a refusal by the limit that `by` counts.
    fn of(by: Outcome, why: &Refused) -> Self {
        let (quota, queue, in_flight, late) = match by {
            Outcome::RefusedAll => (Self::AllQuota, Self::AllQueue, Self::AllWait, Self::AllWait),
            Outcome::RefusedRule => (Self::RuleQuota, Self::RuleQueue, Self::RuleWait, Self::RuleWait),
            _ => (Self::OwnQuota, Self::OwnQueue, Self::OwnInFlight, Self::OwnQueue),
        };
        match why {
            Refused::InLine(ConsumeError::Closed) | Refused::AtOnce(TryAcquireError::Closed) => Self::Ending,
            Refused::InLine(ConsumeError::TooLarge { .. }) | Refused::AtOnce(TryAcquireError::TooLarge { .. }) => {
                Self::TooLarge
            }
            Refused::InLine(ConsumeError::Unreachable | ConsumeError::QuotaConflict(_)) => Self::Store,
            Refused::InLine(ConsumeError::QueueFull { .. }) => queue,
            Refused::AtOnce(TryAcquireError::Denied(Denied { by: Bound::Queue, .. })) => queue,
            Refused::InLine(ConsumeError::TimedOut { .. }) => late,
            why => match why.by() {
                Some(Bound::InFlight) => in_flight,
                Some(Bound::Ceiling) => Self::UnlistedQuota,
                _ => quota,
            },
        }
    }

    /// The reason for an outcome that is a refusal without a limit.
    fn without_limit(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Unknown => Some(Self::Unknown),
            Outcome::Invalid => Some(Self::Invalid),
            _ => None,
        }
    }
}

/// The totals of two reasons with one name would overwrite each other in the metrics.
#[test]
fn reasons_have_names_of_their_own() {
    // The match has no `_`, so a new reason does not compile until it has a place in this chain. The count is below.
    let after = |reason: &Reason| match reason {
        Reason::OwnQuota => Some(Reason::OwnQueue),
        Reason::OwnQueue => Some(Reason::OwnInFlight),
        Reason::OwnInFlight => Some(Reason::AllQuota),
        Reason::AllQuota => Some(Reason::AllQueue),
        Reason::AllQueue => Some(Reason::AllWait),
        Reason::AllWait => Some(Reason::UnlistedQuota),
        Reason::UnlistedQuota => Some(Reason::RuleQuota),
        Reason::RuleQuota => Some(Reason::RuleQueue),
        Reason::RuleQueue => Some(Reason::RuleWait),
        Reason::RuleWait => Some(Reason::Blocked),
        Reason::Blocked => Some(Reason::TooLarge),
        Reason::TooLarge => Some(Reason::Store),
        Reason::Store => Some(Reason::Ending),
        Reason::Ending => Some(Reason::Unknown),
        Reason::Unknown => Some(Reason::Invalid),
        Reason::Invalid => None,
    };
    let all: Vec<Reason> = std::iter::successors(Some(Reason::OwnQuota), after).collect();
    let names: std::collections::HashSet<_> = all.iter().map(|reason| reason.name()).collect();
    assert_eq!((all.len(), names.len()), (16, 16));
}
