//! What can be wrong with the settings of an adaptive rate.

use crate::error::error_enum;
use crate::{ConfigError, ParseQuotaError, Quota, QuotaError};
use std::time::Duration;

error_enum! {
    /// An invalid setting of an [`Adaptive`](super::Adaptive): names the value and says what to write instead.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub enum AdaptiveError {
        /// A bound is text that is not a quota.
        #[error("{0}")]
        Parse(ParseQuotaError),
        /// A bound is no valid quota.
        #[error("the {which} rate {error}")]
        BadQuota {
            /// Which rate.
            which: &'static str,
            /// What is wrong with it.
            error: QuotaError,
        },
        /// A bound is a stepped, sliding or manual quota.
        #[error("the {which} rate is `{quota}`: an adaptive rate is continuous, write it like `10/s`")]
        NotContinuous {
            /// Which rate.
            which: &'static str,
            /// The quota given.
            quota: Quota,
        },
        /// The slowest rate is above the fastest.
        #[error("the slowest rate `{slowest}` is above the fastest `{fastest}`: swap them")]
        Crossed {
            /// The slowest rate.
            slowest: Box<Quota>,
            /// The fastest rate.
            fastest: Box<Quota>,
        },
        /// The starting rate is outside of the bounds.
        #[error("the starting rate `{start}` is not between `{slowest}` and `{fastest}`: start between them")]
        StartOutside {
            /// The starting rate.
            start: Box<Quota>,
            /// The slowest rate.
            slowest: Box<Quota>,
            /// The fastest rate.
            fastest: Box<Quota>,
        },
        /// The additive increase is not a positive number.
        #[error("the increase is {value} tokens per second: it must be a positive number")]
        BadIncrease {
            /// The value given.
            value: f64,
        },
        /// The multiplicative decrease is not a share.
        #[error("the decrease is {value}: it must be a share of the rate between 0.01 and 0.98")]
        BadDecrease {
            /// The value given.
            value: f64,
        },
        /// The settle time is too long.
        #[error("the settle time is {value:?}: it must be at most one day")]
        BadSettle {
            /// The value given.
            value: Duration,
        },
        /// A setting was made twice, or the limiter refused the rate.
        #[error("{0}")]
        Limiter(ConfigError),
    }
}

impl std::error::Error for AdaptiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadQuota { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<ParseQuotaError> for AdaptiveError {
    fn from(error: ParseQuotaError) -> Self {
        Self::Parse(error)
    }
}

impl From<ConfigError> for AdaptiveError {
    fn from(error: ConfigError) -> Self {
        Self::Limiter(error)
    }
}

impl From<std::convert::Infallible> for AdaptiveError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
