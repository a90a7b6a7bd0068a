//! Typed errors. Each carries the numbers it is about and says what to do; none allocates.

use std::time::Duration;

/// Why [`consume`](crate::Limiter::consume) did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// The cost could never be granted: it exceeds the in-flight cap, or what one claim or the line can hold.
    #[error("a cost of {cost} can never be granted, the most is {most}: ask for less at a time")]
    TooLarge {
        /// What was asked for.
        cost: u64,
        /// The most that could be.
        most: u64,
    },
    /// The limiter was closed.
    #[error("the limiter is closed: no more tokens will be granted")]
    Closed,
    /// As many callers as [`max_waiting`](crate::Builder::max_waiting) allows are waiting already.
    #[error("{waiting} callers are waiting already: shed the load or raise max_waiting")]
    QueueFull {
        /// How many are in the line.
        waiting: usize,
    },
    /// The schedule already says that the wait would be longer than [`within`](crate::Consume::within) allows.
    #[error("the wait would be {estimate:?} and only {allowed:?} are allowed: try later or allow more")]
    TooLate {
        /// How long the wait would be.
        estimate: Duration,
        /// How long it may be.
        allowed: Duration,
    },
    /// The time that [`within`](crate::Consume::within) allows ended: something the schedule could not know, such as
    /// the in-flight cap or a pause, held the line up.
    #[error("not granted within the {waited:?} allowed: the line was held up")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The caller had to wait, but no tokio runtime is here to wake it.
    #[error(
        "cannot wait outside of a tokio runtime: enter one, call blocking_consume, or spawn limiter.replenisher() on one"
    )]
    NoRuntime,
    /// The quota is shared through a line that cannot be reached, no tokens are left here, and its
    /// [`Outage`](crate::distributed::Outage) says `Fail`.
    #[cfg(feature = "redis")]
    #[error("the line that shares the quota cannot be reached: try later, or choose another `Outage`")]
    Unreachable,
    /// The key is new to a keyed limiter, and as many others as its `max_keys` allows still owe tokens.
    #[error(
        "{most} keys owe tokens already, and this one is new: try later, raise max_keys, or let newcomers share a bucket"
    )]
    TooManyKeys {
        /// The most keys there may be.
        most: u64,
    },
}

/// Why [`try_acquire`](crate::Limiter::try_acquire) did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// Not now.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The cost exceeds a burst or the in-flight cap: no wait would help.
    #[error("a cost of {cost} can never be had at once, the most is {most}: ask for less or `consume` it")]
    TooLarge {
        /// What was asked for.
        cost: u64,
        /// The smallest of all bursts and the in-flight cap; of a quota that is shared with other machines, half the burst.
        most: u64,
    },
    /// The limiter was closed.
    #[error("the limiter is closed: no more tokens will be granted")]
    Closed,
    /// The quota is shared through a line that cannot be reached, no tokens are left here, and its
    /// [`Outage`](crate::distributed::Outage) says `Fail`.
    #[cfg(feature = "redis")]
    #[error("the line that shares the quota cannot be reached: try later, or choose another `Outage`")]
    Unreachable,
    /// The key is new to a keyed limiter, and as many others as its `max_keys` allows still owe tokens.
    #[error(
        "{most} keys owe tokens already, and this one is new: try later, raise max_keys, or let newcomers share a bucket"
    )]
    TooManyKeys {
        /// The most keys there may be.
        most: u64,
    },
}

/// A refusal for now: until when, what is left, and who refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("denied by {by}, {remaining} tokens remain: {}", RetryHint(*retry_after))]
#[non_exhaustive]
pub struct Denied {
    /// Waiting exactly this long helps if nobody else comes meanwhile, and no shorter wait does. `None` if no clock
    /// can tell: a manual quota, the in-flight cap or a joint claim stands in the way, or the instant is beyond 584 years.
    pub retry_after: Option<Duration>,
    /// How many tokens a smaller request could have now.
    pub remaining: u64,
    /// Which bound refused; of several, the one whose wait is longest.
    pub by: Bound,
}

impl Denied {
    /// A refusal of your own: of a `Gate` of feature `tower` that is no limiter, or in tests of what you make of refusals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bound, Denied};
    /// let denied = Denied::new(Some(Duration::from_millis(20)), 3, Bound::InFlight);
    /// assert_eq!(denied.to_string(), "denied by the in-flight cap, 3 tokens remain: retry after 20ms");
    /// ```
    pub const fn new(retry_after: Option<Duration>, remaining: u64, by: Bound) -> Self {
        Self { retry_after, remaining, by }
    }
}

/// What stands between a request and its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The quota of this index, in the order in which the builder was given them.
    Quota(usize),
    /// The cap on tokens in flight.
    InFlight,
    /// A pause.
    Pause,
    /// Others are waiting, and nobody overtakes.
    Queue,
    /// The limiter above all keys of a keyed limiter.
    Parent,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quota(index) => write!(f, "quota {index}"),
            Self::InFlight => f.write_str("the in-flight cap"),
            Self::Pause => f.write_str("a pause"),
            Self::Queue => f.write_str("the line of waiters"),
            Self::Parent => f.write_str("the limiter above all keys"),
        }
    }
}

struct RetryHint(Option<Duration>);

impl std::fmt::Display for RetryHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(wait) => write!(f, "retry after {wait:?}"),
            None => f.write_str("retry when tokens were replenished or released"),
        }
    }
}

/// A hand-made release of more than is owed. Nothing moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Grants release themselves when dropped; by hand, only what [`forget`](crate::Grant::forget) left owing can be.
    #[error("cannot release {asked} tokens, only {owed} are owed by forgotten grants: release what was forgotten")]
    TooMuch {
        /// How many were to be released.
        asked: u64,
        /// How many may be.
        owed: u64,
    },
    /// The limiter has no in-flight cap, so nothing is ever owed.
    #[error("this limiter has no in-flight cap: build it with max_in_flight to release tokens")]
    NotCapped,
}

/// A configuration that makes no sense: which field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No quota was given.
    #[error("a limiter needs a quota: add `.quota(Quota::per_second(100))`")]
    NoQuota,
    /// A rate of zero.
    #[error("quota {quota} has an amount of 0: give it at least 1 token per period, or use Quota::manual(capacity)")]
    ZeroAmount {
        /// Index of the quota.
        quota: usize,
    },
    /// A period of zero, or beyond what 64 bits of nanoseconds hold.
    #[error("quota {quota} has a period of {period:?}: it must be between 1 ns and 584 years")]
    BadPeriod {
        /// Index of the quota.
        quota: usize,
        /// The period given.
        period: Duration,
    },
    /// A burst of zero, or beyond what rovers can span.
    #[error("quota {quota} has a burst of {burst}: it must be between 1 and {most}")]
    BadBurst {
        /// Index of the quota.
        quota: usize,
        /// The burst given (the amount, where no burst was).
        burst: u64,
        /// The largest burst.
        most: u64,
    },
    /// A stepped quota whose step does not fit its bucket.
    #[error("quota {quota} steps by {amount} but holds only {burst}: raise the burst to {amount} or lower the amount")]
    StepAboveBurst {
        /// Index of the quota.
        quota: usize,
        /// Tokens per step.
        amount: u64,
        /// The burst given.
        burst: u64,
    },
    /// More tokens at the start than the bucket holds.
    #[error("quota {quota} starts with {initial} tokens but holds only {burst}: start with at most {burst}")]
    InitialAboveBurst {
        /// Index of the quota.
        quota: usize,
        /// The initial fill given.
        initial: u64,
        /// The burst.
        burst: u64,
    },
    /// Two quotas of one name.
    #[error("two quotas are named `{name}`: give each its own name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// An in-flight cap of zero, or beyond what rovers can span.
    #[error("max_in_flight is {cap}: it must be between 1 and {most}")]
    BadMaxInFlight {
        /// The cap given.
        cap: u64,
        /// The largest cap.
        most: u64,
    },
    /// A run-time change of a quota that is not there.
    #[error("there is no quota {which}: this limiter has {count}, counted from 0, or named by `quota_named`")]
    UnknownQuota {
        /// Index or name asked for.
        which: String,
        /// How many quotas there are.
        count: usize,
    },
    /// A run-time change of the in-flight cap of a limiter built without one.
    #[error("this limiter has no in-flight cap to change: build it with max_in_flight")]
    NotCapped,
    /// A line for a quota that is not there, or for a second one.
    #[cfg(feature = "redis")]
    #[error("a limiter shares one of its quotas: write `.quota(...)` once before `.shared(line)`")]
    DistributedQuotaCount,
    /// A manual quota has no rate that could be shared.
    #[cfg(feature = "redis")]
    #[error("quota {quota} is shared and manual: give it a rate, such as Quota::per_second(10)")]
    DistributedManual {
        /// Index of the quota.
        quota: usize,
    },
    /// A shared quota is counted in microseconds and in integers below 2<sup>53</sup>.
    #[cfg(feature = "redis")]
    #[error(
        "quota {quota} cannot be shared exactly: its amount times its period in microseconds, in lowest terms, must be at \
         most 2^53, its burst at most 2^50, and it must fill up within 142 years; the period of a stepped one is whole \
         microseconds"
    )]
    DistributedInexact {
        /// Index of the quota.
        quota: usize,
    },
    /// A shared quota is asked for by a task, on the runtime on which the limiter is built.
    #[cfg(feature = "redis")]
    #[error("a limiter that shares a quota must be built on a tokio runtime, and not on a manual clock")]
    DistributedOutsideRuntime,
    /// The nodes that share a quota must agree on it.
    #[cfg(feature = "redis")]
    #[error("quota {quota} is shared: build the limiters of all nodes anew, with a line of another name")]
    DistributedQuota {
        /// Index of the quota.
        quota: usize,
    },
    /// A keyed limiter forgets whoever is full, so a newcomer's bucket is full.
    #[error(
        "a keyed quota starts with {initial} of {burst} tokens: leave `initial` out, a key that owes nothing is full"
    )]
    KeyedInitial {
        /// The initial fill given.
        initial: u64,
        /// The burst.
        burst: u64,
    },
    /// A keyed limiter cannot fill each of its keys by hand.
    #[error("a keyed quota is manual: give it a rate, such as Quota::per_second(10)")]
    KeyedManual,
    /// Of a shared keyed limiter this cannot be had.
    #[cfg(feature = "redis")]
    #[error("a keyed limiter that is shared has no `{setting}`: leave it out")]
    DistributedKeyed {
        /// The setting of the builder.
        setting: &'static str,
    },
    /// A keyed limiter that may hold no key.
    #[error("max_keys is 0: it must be at least 1")]
    NoKeys,
    /// A quota for one more key than there may be.
    #[error("{most} keys owe tokens or have quotas of their own already: raise max_keys")]
    TooManyKeys {
        /// The most keys there may be.
        most: u64,
    },
}
