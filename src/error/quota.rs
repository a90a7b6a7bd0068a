//! What is wrong with a quota.

use super::{ConfigError, error_enum};
use crate::name::Name;
use std::time::Duration;

error_enum! {
    /// What is wrong with a quota. The message continues a sentence that begins with the quota.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum QuotaError {
        /// The rate is zero.
        #[error("has an amount of 0: give it at least 1 token per period, or use Quota::manual(capacity)")]
        ZeroAmount,
        /// The period is zero, or below 3 ns with a calendar, or exceeds 64 bits of nanoseconds.
        #[error("has a period of {period:?}: it must be 1 ns (3 ns with a calendar) to 584 years")]
        BadPeriod {
            /// The period given.
            period: Duration,
        },
        /// The burst is zero, or exceeds the range of the rovers.
        #[error("has a burst of {burst}, which is the amount unless `burst` sets it: it must be between 1 and {most}")]
        BadBurst {
            /// The given burst, or the amount if no burst was given.
            burst: u64,
            /// The largest burst.
            most: u64,
        },
        /// The step of a stepped quota does not fit into its bucket.
        #[error("steps by {amount} but holds only {burst}: raise the burst to {amount} or lower the amount")]
        StepAboveBurst {
            /// Tokens per step.
            amount: u64,
            /// The given burst.
            burst: u64,
        },
        /// A sliding quota has a burst of its own.
        #[error("is sliding and has a burst of {burst}: leave the burst out, all {amount} tokens may go at once")]
        SlidingBurst {
            /// The given burst.
            burst: u64,
            /// The amount of the quota.
            amount: u64,
        },
        /// A sliding quota was given where no windows are counted.
        #[error(
            "is sliding, which `{setting}` does not support: half of the amount as a continuous quota never grants more \
             than the amount in a period"
        )]
        SlidingUnsupported {
            /// The setting or type that supports no sliding quota.
            setting: &'static str,
        },
        /// A calendar quota has a burst that is not its amount.
        #[error("of a calendar has a burst of {burst} and an amount of {amount}: leave `burst` out")]
        CalendarBurst {
            /// Tokens per period.
            amount: u64,
            /// The given burst.
            burst: u64,
        },
        /// No period of the calendar begins on this day.
        #[error(
            "begins on day {day}: weeks begin on a day from 1 (Monday) to 7, months on one from 1 to 31, and other periods \
             on no particular day"
        )]
        BadCalendarDay {
            /// The given day.
            day: u8,
        },
        /// Calendar quotas are not supported here.
        #[error("is of a calendar, which {part} cannot have: use a quota without one")]
        CalendarUnsupported {
            /// What cannot have it.
            part: &'static str,
        },
        /// The bucket starts with more tokens than it holds.
        #[error("starts with {initial} tokens but holds only {burst}: start with at most {burst}")]
        InitialAboveBurst {
            /// The given initial fill.
            initial: u64,
            /// The burst.
            burst: u64,
        },
        /// A manual quota has no rate, so it cannot be distributed.
        #[error("is distributed and manual: give it a rate, such as Quota::per_second(10)")]
        DistributedManual,
        /// A distributed quota is counted in microseconds and in integers below 2<sup>53</sup>.
        #[error(
            "cannot be distributed exactly: its amount times its period in microseconds, in lowest terms, \
             must be at most 2^53, its burst at most 2^50, and it must fill up within 142 years; the period of a stepped one \
             is whole microseconds"
        )]
        DistributedInexact,
        /// All nodes of a distributed quota use the same quota, so one limiter cannot change it.
        #[error("is distributed: build the limiter anew, with a store of a higher `quota_version`")]
        DistributedQuota,
        /// A keyed limiter forgets a key with a full bucket, so the bucket of a new key must be full.
        #[error("of a key starts with {initial} of {burst} tokens: leave `initial` out, a key that owes nothing is full")]
        KeyedInitial {
            /// The given initial fill.
            initial: u64,
            /// The burst.
            burst: u64,
        },
        /// A keyed limiter cannot replenish each of its keys manually.
        #[error("of a key is manual: give it a rate, such as Quota::per_second(10)")]
        KeyedManual,
    }
}

impl std::error::Error for QuotaError {}

impl From<QuotaError> for ConfigError {
    /// The error of the only quota of a limiter, without a name.
    fn from(error: QuotaError) -> Self {
        error.of(0, None)
    }
}

impl QuotaError {
    /// The error of the quota with this index and this name.
    pub(crate) fn of(self, quota: usize, name: Option<&str>) -> ConfigError {
        ConfigError::BadQuota { quota, quota_name: name.and_then(|name| Name::of(name).text()), reason: self }
    }
}
