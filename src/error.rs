//! Typed errors. Each error carries the numbers it is about and says what to do. None allocates, except configuration
//! errors that carry a name.

mod bound;
mod config;
mod error_enum;
mod quota;
mod refused;
#[cfg(feature = "state")]
mod state;

pub use bound::Bound;
pub use config::ConfigError;
pub(crate) use error_enum::{error_enum, first};
pub use quota::QuotaError;
pub use refused::Refused;
#[cfg(feature = "state")]
pub use state::StateError;

use crate::name::Name;
use std::time::Duration;

error_enum! {
    /// The reason why [`consume`](crate::Limiter::consume) did not grant. Nothing was consumed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ConsumeError {
        /// The cost can never be granted: it exceeds the in-flight cap, `max_cost`, or the largest cost of one claim or
        /// of the store.
        #[error(
            "a cost of {cost} can never be granted, the most is {most}{}: ask for less at a time",
            Of(*by, *quota_name)
        )]
        TooLarge {
            /// The requested cost.
            cost: u64,
            /// The largest cost that can be granted.
            most: u64,
            /// The bound that allows no more. `None` if it is the largest cost of any claim, or the range in which
            /// claims and debts are counted.
            by: Option<Bound>,
            /// The name of that bound, as in [`TooLate`](Self::TooLate).
            quota_name: Option<&'static str>,
        },
        /// The limiter was closed, or the class was removed.
        #[error("the limiter is closed: no more tokens will be granted")]
        Closed,
        /// As many callers as [`max_waiting`](crate::Builder::max_waiting) allows are waiting already.
        #[error("{waiting} callers are waiting already: shed the load or raise max_waiting")]
        QueueFull {
            /// How many callers are in the queue.
            waiting: u64,
        },
        /// By the schedule, the wait would be longer than [`within`](crate::Consume::within) allows.
        #[error(
            "the wait for {} would be {estimate:?} and only {allowed:?} are allowed: try later or allow more",
            Named(*by, *quota_name)
        )]
        TooLate {
            /// How long the wait would be; at most 584 years.
            estimate: Duration,
            /// The allowed wait.
            allowed: Duration,
            /// The bound that the caller would wait for longest, behind the waiters before it: a quota, a pause, or the
            /// parent.
            by: Bound,
            /// The name of that quota, if [`quota_named`](crate::Builder::quota_named) gave it one. A ceiling has the
            /// path of its class as its name. If the bound is the parent, this is the name of the parent's quota or
            /// ceiling.
            quota_name: Option<&'static str>,
        },
        /// The wait that [`within`](crate::Consume::within) allows has ended. The schedule could not predict the delay,
        /// such as the in-flight cap or a pause.
        #[error(
            "not granted after a wait of {waited:?}: delayed by {}; try later or allow more",
            Named(*by, *quota_name)
        )]
        TimedOut {
            /// How long the caller waited.
            waited: Duration,
            /// The bound that held the claim back longest when it was given up.
            by: Bound,
            /// The name of that bound, as in [`TooLate`](Self::TooLate).
            quota_name: Option<&'static str>,
        },
        /// The caller had to wait, but there is no tokio runtime to wake it.
        /// [`Limiter::consume`](crate::Limiter::consume) shows how to wait on another executor. `within` needs a
        /// runtime even there, because its timer is tokio's.
        #[error(
            "cannot wait outside of a tokio runtime: enter one with `handle.enter()`, call blocking_consume, or (not for \
             `within`, which uses tokio's timer) spawn limiter.replenisher() on one"
        )]
        NoRuntime,
        /// [`wait`](crate::Limiter::wait) was called on a limiter with an in-flight cap. It returns nothing that could
        /// hold the tokens, so the cap would have no effect.
        #[error(
            "the limiter caps tokens in flight, which `wait` cannot hold: write `let _grant = limiter.consume(cost).await?` \
             and keep the grant for as long as the work lasts"
        )]
        MustHold,
        /// The store of the distributed quota cannot be reached or answers with errors, no tokens are left on this
        /// node, and the store's `Outage` is `Fail`. `StoreSnapshot::error` has the cause. Feature `distributed`.
        #[error(
            "the store of the distributed quota cannot be reached or answers with errors (`StoreSnapshot::error` tells): try \
             later, or choose another `Outage`"
        )]
        Unreachable,
        /// The store of the distributed quota has another quota of the same version, whatever the `Outage` is. Feature
        /// `distributed`.
        #[error("{0}")]
        QuotaConflict(QuotaConflict),
        /// The text of the key, which names its store, is too long. Only of a distributed keyed limiter.
        #[error(
            "the key's name is {length} bytes long, the most is {most}: name it shorter with \
             `DistributedKeyedLimiter::builder_by`"
        )]
        KeyTooLong {
            /// The length of the name in bytes.
            length: usize,
            /// The largest length.
            most: usize,
        },
        /// `quota_by` returned quotas of the key that no keyed limiter can have.
        #[error("{0}")]
        BadQuota(BadQuota),
        /// The key is new to a keyed limiter, and as many other keys as its `max_keys` allows still owe tokens, or have
        /// limiters if it is distributed.
        #[error(
            "{most} other keys are kept already: try later, raise max_keys, or let new keys share a bucket"
        )]
        TooManyKeys {
            /// The largest number of keys.
            most: u64,
        },
    }
}

impl std::error::Error for ConsumeError {}

impl ConsumeError {
    /// Translates a refusal of a parent into the refusal that its child returns.
    pub(crate) fn as_parent(self) -> Self {
        match self {
            Self::TooLate { estimate, allowed, by, quota_name } => {
                Self::TooLate { estimate, allowed, by: by.of_parent(), quota_name }
            }
            Self::TooLarge { cost, most, by, quota_name } => {
                Self::TooLarge { cost, most, by: by.map(Bound::of_parent), quota_name }
            }
            error => error,
        }
    }
}

error_enum! {
    /// The reason why [`try_acquire`](crate::Limiter::try_acquire) did not grant. Nothing was consumed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum TryAcquireError {
        /// The tokens are not available now.
        #[error("{0}")]
        Denied(Denied),
        /// The cost exceeds a burst, the in-flight cap or `max_cost`, so waiting does not help.
        #[error(
            "a cost of {cost} can never be granted at once, the most is {most}{}: ask for less or `consume` it",
            Of(Some(*by), *quota_name)
        )]
        TooLarge {
            /// The requested cost.
            cost: u64,
            /// The smallest of all bursts, the in-flight cap and `max_cost`. For a distributed quota, half of the
            /// burst.
            most: u64,
            /// The bound that allows no more.
            by: Bound,
            /// The name of that bound, as in [`TooLate`](ConsumeError::TooLate).
            quota_name: Option<&'static str>,
        },
        /// The limiter was closed.
        #[error("the limiter is closed: no more tokens will be granted")]
        Closed,
        /// The store of the distributed quota cannot be reached or answers with errors, no tokens are left on this
        /// node, and the store's `Outage` is `Fail`. `StoreSnapshot::error` has the cause. Feature `distributed`.
        #[error(
            "the store of the distributed quota cannot be reached or answers with errors (`StoreSnapshot::error` tells): try \
             later, or choose another `Outage`"
        )]
        Unreachable,
        /// The store of the distributed quota has another quota of the same version, whatever the `Outage` is. Feature
        /// `distributed`.
        #[error("{0}")]
        QuotaConflict(QuotaConflict),
        /// The text of the key, which names its store, is too long. Only of a distributed keyed limiter.
        #[error(
            "the key's name is {length} bytes long, the most is {most}: name it shorter with \
             `DistributedKeyedLimiter::builder_by`"
        )]
        KeyTooLong {
            /// The length of the name in bytes.
            length: usize,
            /// The largest length.
            most: usize,
        },
        /// `quota_by` returned quotas of the key that no keyed limiter can have.
        #[error("{0}")]
        BadQuota(BadQuota),
        /// The key is new to a keyed limiter, and as many other keys as its `max_keys` allows still owe tokens, or have
        /// limiters if it is distributed.
        #[error(
            "{most} other keys are kept already: try later, raise max_keys, or let new keys share a bucket"
        )]
        TooManyKeys {
            /// The largest number of keys.
            most: u64,
        },
    }
}

impl std::error::Error for TryAcquireError {}

/// The store of a distributed quota has another quota than the limiter, and both have the same version, so neither is
/// newer. The message names both. Feature `distributed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConflict {
    pub(crate) text: Name,
}

impl std::error::Error for QuotaConflict {}

impl std::fmt::Display for QuotaConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text.text().unwrap_or(Self::UNNAMED))
    }
}

impl QuotaConflict {
    /// The text without the quotas.
    pub(crate) const UNNAMED: &'static str =
        "the store has another quota of the same version: give a changed quota a higher `quota_version`";
}

/// `KeyedBuilder::quota_by` returned quotas of the key that no keyed limiter can have. The message says which value is
/// wrong, and what to write instead. Feature `keyed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadQuota {
    text: Name,
}

impl std::error::Error for BadQuota {}

impl std::fmt::Display for BadQuota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text.text().unwrap_or("check what it returns with `Quotas::check`");
        write!(f, "`quota_by` returned no valid quota for this key: {text}")
    }
}

#[cfg(feature = "keyed")]
impl BadQuota {
    pub(crate) fn of(error: &ConfigError) -> Self {
        Self { text: Name::of_path(&error.to_string()) }
    }
}

#[cfg(feature = "keyed")]
impl ConsumeError {
    /// The refusal of a call on a key that cannot be kept.
    pub(crate) fn of_key(error: &ConfigError) -> Self {
        match *error {
            ConfigError::TooManyKeys { most } => Self::TooManyKeys { most },
            ConfigError::KeyTooLong { length, most } => Self::KeyTooLong { length, most },
            _ => Self::BadQuota(BadQuota::of(error)),
        }
    }
}

#[cfg(feature = "keyed")]
impl TryAcquireError {
    /// The refusal of a call on a key that cannot be kept.
    pub(crate) fn of_key(error: &ConfigError) -> Self {
        match *error {
            ConfigError::TooManyKeys { most } => Self::TooManyKeys { most },
            ConfigError::KeyTooLong { length, most } => Self::KeyTooLong { length, most },
            _ => Self::BadQuota(BadQuota::of(error)),
        }
    }
}

/// A temporary denial: when to retry, how many tokens remain, and which bound denied the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The shortest wait after which a retry succeeds if no other caller takes tokens meanwhile. `None` if the wait is
    /// unknown: a manual or a distributed quota, the in-flight cap or a joint claim blocks the request, or the instant is
    /// more than 584 years ahead.
    pub retry_after: Option<Duration>,
    /// How many tokens a smaller request could take now.
    pub remaining: u64,
    /// The bound that denied the request; of several, the one with the longest wait.
    pub by: Bound,
    /// The name of the quota or ceiling that denied, of this limiter or of its parent.
    pub(crate) name: Name,
}

impl Denied {
    /// Creates a denial: for your own implementation of `Gate` (crate `tollgate-tower`), or for tests of code that handles
    /// denials.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bound, Denied};
    /// let denied = Denied::new(Some(Duration::from_millis(20)), 3, Bound::InFlight);
    /// assert_eq!(denied.to_string(), "denied by the in-flight cap, 3 tokens remain: retry after 20ms");
    /// ```
    pub const fn new(retry_after: Option<Duration>, remaining: u64, by: Bound) -> Self {
        Self { retry_after, remaining, by, name: Name::NONE }
    }

    /// Returns the name of the quota that denied the request, if [`quota_named`](crate::Builder::quota_named) gave it
    /// one. A ceiling has the path of its class as its name. If the parent of a keyed limiter denied the request, this
    /// is the name of the parent's quota or ceiling.
    pub fn quota_name(&self) -> Option<&'static str> {
        self.name.text()
    }
}

impl std::error::Error for Denied {}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "denied by {}, {} tokens remain: retry ", Named(self.by, self.name.text()), self.remaining)?;
        match self.retry_after {
            Some(wait) => write!(f, "after {wait:?}"),
            None => f.write_str("when tokens are replenished or released"),
        }
    }
}

/// A bound, by its name if it is a quota that has one.
struct Named(Bound, Option<&'static str>);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.1) {
            (Bound::Quota(_), Some(name)) => write!(f, "quota `{name}`"),
            (Bound::Ceiling, Some(name)) => write!(f, "the ceiling of class `{name}`"),
            (Bound::Parent, Some(name)) => write!(f, "quota `{name}` of the parent limiter"),
            (by, _) => by.fmt(f),
        }
    }
}

/// The name of a bound in parentheses; nothing if there is no bound.
struct Of(Option<Bound>, Option<&'static str>);

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |by| write!(f, " ({})", Named(by, self.1)))
    }
}

impl From<Denied> for TryAcquireError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

error_enum! {
    /// The reason why a manual release of tokens was refused. Nothing was released.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ReleaseError {
        /// The release exceeds the tokens owed. Grants release themselves when dropped; manually, only tokens left
        /// owing by [`forget`](crate::Grant::forget) can be released.
        #[error("cannot release {asked} tokens, only {owed} are owed by forgotten grants: release what was forgotten")]
        TooMuch {
            /// How many tokens the call tried to release.
            asked: u64,
            /// How many tokens can be released.
            owed: u64,
        },
        /// The limiter has no in-flight cap, so no tokens are ever owed.
        #[error("this limiter has no in-flight cap: build it with max_in_flight to release tokens")]
        NotCapped,
    }
}

impl std::error::Error for ReleaseError {}
