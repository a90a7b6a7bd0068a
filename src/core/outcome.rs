//! The end of a wait.

use crate::error::{Bound, ConsumeError, QuotaConflict, TryAcquireError};
use crate::name::Name;
use crate::observe::GrantWord;
use std::time::Duration;

/// The reason for which a waiter was removed from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(GrantWord),
    Closed,
    /// The parent's queue cannot hold so many tokens in addition to the claims that wait there. Or the store grants no
    /// claim so large.
    TooLarge {
        cost: u64,
        most: u64,
    },
    /// The store of a distributed quota has no tokens in time: the claim would wait for `estimate` nanoseconds.
    TooLate {
        estimate: u64,
        allowed: u64,
        by: Bound,
        name: Name,
    },
    /// The store of a distributed quota grants no tokens to this limiter, and its waiters fail for that reason.
    CutOff(CutOff),
}

impl Outcome {
    /// The grant, or the reason for which the claim was not granted.
    pub(crate) fn into_result(self) -> Result<GrantWord, ConsumeError> {
        match self {
            Self::Granted(word) => Ok(word),
            Self::Closed => Err(ConsumeError::Closed),
            Self::TooLarge { cost, most } => Err(ConsumeError::TooLarge { cost, most, by: None, quota_name: None }),
            Self::TooLate { estimate, allowed, by, name } => {
                let [estimate, allowed] = [estimate, allowed].map(Duration::from_nanos);
                Err(ConsumeError::TooLate { estimate, allowed, by, quota_name: name.text() })
            }
            Self::CutOff(why) => Err(why.into()),
        }
    }
}

/// The reason why a source of tokens grants none. Claims fail with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOff {
    /// The store cannot be reached, and the limiter is configured to fail its waiters in this case.
    Unreachable,
    /// The store has a different quota.
    QuotaConflict(QuotaConflict),
}

impl From<CutOff> for ConsumeError {
    fn from(why: CutOff) -> Self {
        match why {
            CutOff::Unreachable => Self::Unreachable,
            CutOff::QuotaConflict(conflict) => Self::QuotaConflict(conflict),
        }
    }
}

impl From<CutOff> for TryAcquireError {
    fn from(why: CutOff) -> Self {
        match why {
            CutOff::Unreachable => Self::Unreachable,
            CutOff::QuotaConflict(conflict) => Self::QuotaConflict(conflict),
        }
    }
}
