//! Typed errors. Each error carries the numbers it is about and says what to do. None allocates, except configuration
//! errors that carry a name.

use crate::name::{Name, QuotaNames};
use std::time::Duration;

/// The reason why [`consume`](crate::Limiter::consume) did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// The cost can never be granted: it exceeds the in-flight cap, or the largest cost of one claim or of the store.
    #[error("a cost of {cost} can never be granted, the most is {most}: ask for less at a time")]
    TooLarge {
        /// The requested cost.
        cost: u64,
        /// The largest cost that can be granted.
        most: u64,
    },
    /// The limiter was closed, or the class was removed.
    #[error("the limiter is closed: no more tokens will be granted")]
    Closed,
    /// As many callers as [`max_waiting`](crate::Builder::max_waiting) allows are waiting already.
    #[error("{waiting} callers are waiting already: shed the load or raise max_waiting")]
    QueueFull {
        /// How many callers are in the queue.
        waiting: usize,
    },
    /// By the schedule, the wait would be longer than [`within`](crate::Consume::within) allows.
    #[error(
        "the wait for {} would be {estimate:?} and only {allowed:?} are allowed: try later or allow more",
        Named(*by, *quota_name)
    )]
    TooLate {
        /// How long the wait would be.
        estimate: Duration,
        /// The allowed wait.
        allowed: Duration,
        /// The bound that the caller would wait for longest, behind the waiters before it: a quota, a pause, or the
        /// parent.
        by: Bound,
        /// The name of that quota, if [`quota_named`](crate::Builder::quota_named) gave it one; if the bound is the
        /// parent, the name of the parent's quota.
        quota_name: Option<&'static str>,
    },
    /// The wait that [`within`](crate::Consume::within) allows has ended. The schedule could not predict the delay,
    /// such as the in-flight cap or a pause.
    #[error("not granted within the allowed {waited:?}: the queue was delayed; try later or allow a longer wait")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The caller had to wait, but there is no tokio runtime to wake it. [`Limiter::consume`](crate::Limiter::consume)
    /// shows how to wait on another executor. `within` always needs a runtime, because its timer is tokio's.
    #[error(
        "cannot wait outside of a tokio runtime: enter one with `handle.enter()`, call blocking_consume, or (not for \
         `within`, whose timer is tokio's) spawn limiter.replenisher() on one"
    )]
    NoRuntime,
    /// [`wait`](crate::Limiter::wait) was called on a limiter with an in-flight cap. It returns nothing that could hold
    /// the tokens, so the cap would have no effect.
    #[error(
        "the limiter caps tokens in flight, which `wait` cannot hold: write `let _grant = limiter.consume(cost).await?` \
         and keep the grant for as long as the work lasts"
    )]
    MustHold,
    /// The store of the distributed quota cannot be reached, no tokens are left on this node, and the store's
    /// `Outage` is `Fail`. Feature `distributed`.
    #[error("the store of the distributed quota cannot be reached: try later, or choose another `Outage`")]
    Unreachable,
    /// The store of the distributed quota has another quota of the same version, whatever the `Outage` is. Feature
    /// `distributed`.
    #[error(transparent)]
    QuotaConflict(QuotaConflict),
    /// The text of the key, which names its store, is too long. Only of a distributed keyed limiter.
    #[error("the key's name is {length} bytes long, the most is {most}: name it shorter with `distributed_by`")]
    KeyTooLong {
        /// The length of the name in bytes.
        length: usize,
        /// The largest length.
        most: usize,
    },
    /// The key is new to a keyed limiter, and as many other keys as its `max_keys` allows still owe tokens.
    #[error(
        "{most} keys owe tokens already, and this one is new: try later, raise max_keys, or let new keys share a bucket"
    )]
    TooManyKeys {
        /// The largest number of keys.
        most: u64,
    },
}

impl ConsumeError {
    /// Translates a refusal of a parent into the refusal that its child returns.
    pub(crate) fn as_parent(self) -> Self {
        match self {
            Self::TooLate { estimate, allowed, quota_name, .. } => {
                Self::TooLate { estimate, allowed, by: Bound::Parent, quota_name }
            }
            error => error,
        }
    }
}

/// The reason why [`try_acquire`](crate::Limiter::try_acquire) did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// The tokens are not available now.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The cost exceeds a burst or the in-flight cap, so waiting does not help.
    #[error("a cost of {cost} can never be granted at once, the most is {most}: ask for less or `consume` it")]
    TooLarge {
        /// The requested cost.
        cost: u64,
        /// The smallest of all bursts and the in-flight cap. For a distributed quota, half of the burst.
        most: u64,
    },
    /// The limiter was closed.
    #[error("the limiter is closed: no more tokens will be granted")]
    Closed,
    /// The store of the distributed quota cannot be reached, no tokens are left on this node, and the store's
    /// `Outage` is `Fail`. Feature `distributed`.
    #[error("the store of the distributed quota cannot be reached: try later, or choose another `Outage`")]
    Unreachable,
    /// The store of the distributed quota has another quota of the same version, whatever the `Outage` is. Feature
    /// `distributed`.
    #[error(transparent)]
    QuotaConflict(QuotaConflict),
    /// The text of the key, which names its store, is too long. Only of a distributed keyed limiter.
    #[error("the key's name is {length} bytes long, the most is {most}: name it shorter with `distributed_by`")]
    KeyTooLong {
        /// The length of the name in bytes.
        length: usize,
        /// The largest length.
        most: usize,
    },
    /// The key is new to a keyed limiter, and as many other keys as its `max_keys` allows still owe tokens.
    #[error(
        "{most} keys owe tokens already, and this one is new: try later, raise max_keys, or let new keys share a bucket"
    )]
    TooManyKeys {
        /// The largest number of keys.
        most: u64,
    },
}

/// The store of a distributed quota has another quota than the limiter, and both have the same version, so neither is
/// newer. The message names both. Feature `distributed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", text.text().unwrap_or(Self::UNNAMED))]
pub struct QuotaConflict {
    pub(crate) text: Name,
}

impl QuotaConflict {
    /// The text without the quotas.
    pub(crate) const UNNAMED: &'static str =
        "the store has another quota of the same version: give a changed quota a higher `quota_version`";
}

/// A temporary denial: when to retry, how many tokens remain, and which bound denied the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("denied by {}, {remaining} tokens remain: {}", Named(*by, name.text()), RetryHint(*retry_after))]
#[non_exhaustive]
pub struct Denied {
    /// The shortest wait after which a retry succeeds if no other caller takes tokens meanwhile. `None` if the wait is
    /// unknown: a manual quota, the in-flight cap or a joint claim blocks the request, or the instant is more than 584
    /// years ahead.
    pub retry_after: Option<Duration>,
    /// How many tokens a smaller request could take now.
    pub remaining: u64,
    /// The bound that denied the request; of several, the one with the longest wait.
    pub by: Bound,
    /// The name of the quota that denied: of this limiter, or of its parent if that denied.
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
    /// one. If the parent of a keyed limiter denied the request, this is the name of the parent's quota.
    pub fn quota_name(&self) -> Option<&'static str> {
        self.name.text()
    }
}

/// A bound, by its name if it is a quota that has one.
struct Named(Bound, Option<&'static str>);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.1) {
            (Bound::Quota(_), Some(name)) => write!(f, "quota `{name}`"),
            (Bound::Parent, Some(name)) => write!(f, "quota `{name}` of the parent limiter"),
            (by, _) => by.fmt(f),
        }
    }
}

/// Why a call did not get its tokens, whether it was allowed to wait or not. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The call was allowed to wait.
    #[error(transparent)]
    InLine(#[from] ConsumeError),
    /// The call was not allowed to wait.
    #[error(transparent)]
    AtOnce(#[from] TryAcquireError),
}

impl Refused {
    /// Returns after how long the same call can be granted, if no other caller arrives meanwhile; `None` if the time is
    /// unknown, or if it can never be granted.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InLine(ConsumeError::TooLate { estimate, allowed, .. }) => Some(estimate.saturating_sub(*allowed)),
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.retry_after,
            _ => None,
        }
    }

    /// Returns the bound that the call would wait for longest, if the schedule or the in-flight cap refused it; `None` for
    /// all other reasons, such as a closed limiter.
    pub fn by(&self) -> Option<Bound> {
        match self {
            Self::InLine(ConsumeError::TooLate { by, .. }) => Some(*by),
            Self::AtOnce(TryAcquireError::Denied(denied)) => Some(denied.by),
            _ => None,
        }
    }

    /// Returns the name of the quota that refused, if one did and it has a name. If the parent of a keyed limiter refused,
    /// this is the name of the parent's quota.
    pub fn quota_name(&self) -> Option<&'static str> {
        match self {
            Self::InLine(ConsumeError::TooLate { quota_name, .. }) => *quota_name,
            Self::AtOnce(TryAcquireError::Denied(denied)) => denied.quota_name(),
            _ => None,
        }
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        Self::AtOnce(denied.into())
    }
}

/// The bound that keeps a request from its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The quota with this index, in the order in which they were added to the builder.
    Quota(usize),
    /// The cap on tokens in flight.
    InFlight,
    /// A pause.
    Pause,
    /// Other callers are waiting, and no caller overtakes them.
    Queue,
    /// The ceiling of the class, or of a class around it.
    Ceiling,
    /// The parent of a keyed limiter, which limits all keys together.
    Parent,
}

impl Bound {
    /// The name of the quota that this bound is, if it is a quota with a name.
    pub(crate) fn name(self, names: &QuotaNames) -> Name {
        let Self::Quota(index) = self else { return Name::NONE };
        names.get(index).and_then(Option::as_ref).map_or(Name::NONE, |name| name.1)
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quota(index) => write!(f, "quota {index}"),
            Self::InFlight => f.write_str("the in-flight cap"),
            Self::Pause => f.write_str("a pause"),
            Self::Queue => f.write_str("the queue of waiters"),
            Self::Ceiling => f.write_str("the ceiling of the class"),
            Self::Parent => f.write_str("the parent limiter"),
        }
    }
}

struct RetryHint(Option<Duration>);

impl std::fmt::Display for RetryHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(wait) => write!(f, "retry after {wait:?}"),
            None => f.write_str("retry when tokens are replenished or released"),
        }
    }
}

/// How many quotas a limiter has, and how they are selected.
struct QuotaCount(usize);

impl std::fmt::Display for QuotaCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("this limiter has only an in-flight cap, so change it with set_max_in_flight"),
            count => write!(f, "this limiter has {count}, counted from 0, or named by `quota_named`"),
        }
    }
}

/// The reason why a manual release of tokens was refused. Nothing was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The release exceeds the tokens owed. Grants release themselves when dropped; manually, only tokens left owing by
    /// [`forget`](crate::Grant::forget) can be released.
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

/// The reason why a saved state cannot be read or restored. Nothing was restored.
#[cfg(feature = "state")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state could not be read.
    #[error("the saved state cannot be read: {message}")]
    Read {
        /// The kind of the error.
        kind: std::io::ErrorKind,
        /// Its text.
        message: String,
    },
    /// The bytes are not the state of a limiter.
    #[error("this is no saved state of tollgate: it does not begin with `tollgate`; check the path of the file")]
    Foreign,
    /// The state was written by a later version of this crate.
    #[error(
        "the saved state has version {found}, and this program reads up to {known}: update it, or start without the state"
    )]
    Version {
        /// The version of the state.
        found: u16,
        /// The latest version that this program can read.
        known: u16,
    },
    /// The state is that of another type: of a limiter instead of a keyed limiter, or the reverse.
    #[error("this is the saved state of a {found}: pass it to the builder of a {found}")]
    OtherType {
        /// `Limiter` or `KeyedLimiter`.
        found: &'static str,
    },
    /// The state ends too early: it was not written to its end.
    #[error("the saved state ends too early: use an older one, or start without it")]
    Truncated,
    /// The state was changed after it had been written.
    #[error("the saved state is damaged, in {part}: use an older one, or start without it")]
    Damaged {
        /// The part that is wrong.
        part: &'static str,
    },
    /// The state belongs to another quota.
    #[error(
        "{which} was `{saved}` when the state was saved and is `{built}` now: build it with the saved one, or call `convert` on the state"
    )]
    OtherQuota {
        /// Which quota, such as `quota 0`.
        which: String,
        /// The quota that the state belongs to; `none` if there was none.
        saved: String,
        /// The quota that the builder has; `none` if there is none.
        built: String,
    },
    /// A distributed limiter has nothing to save: its store keeps the tokens.
    #[error("a distributed limiter has no state of its own: its store keeps the tokens")]
    Distributed,
}

/// An invalid configuration: names the field and says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The builder has neither a quota nor an in-flight cap. A keyed limiter needs a quota.
    #[error(
        "nothing is limited: add a rate, `.quota(Quota::per_second(100))`, or, if the limiter is not keyed, a cap on \
         concurrency alone, `.max_in_flight(50)`"
    )]
    NoQuota,
    /// The rate is zero.
    #[error("quota {quota} has an amount of 0: give it at least 1 token per period, or use Quota::manual(capacity)")]
    ZeroAmount {
        /// Index of the quota.
        quota: usize,
    },
    /// The period is zero, or exceeds 64 bits of nanoseconds.
    #[error("quota {quota} has a period of {period:?}: it must be between 1 ns and 584 years")]
    BadPeriod {
        /// Index of the quota.
        quota: usize,
        /// The period given.
        period: Duration,
    },
    /// The burst is zero, or exceeds the range of the rovers.
    #[error("quota {quota} has a burst of {burst}: it must be between 1 and {most}")]
    BadBurst {
        /// Index of the quota.
        quota: usize,
        /// The given burst, or the amount if no burst was given.
        burst: u64,
        /// The largest burst.
        most: u64,
    },
    /// The step of a stepped quota does not fit into its bucket.
    #[error("quota {quota} steps by {amount} but holds only {burst}: raise the burst to {amount} or lower the amount")]
    StepAboveBurst {
        /// Index of the quota.
        quota: usize,
        /// Tokens per step.
        amount: u64,
        /// The given burst.
        burst: u64,
    },
    /// The bucket starts with more tokens than it holds.
    #[error("quota {quota} starts with {initial} tokens but holds only {burst}: start with at most {burst}")]
    InitialAboveBurst {
        /// Index of the quota.
        quota: usize,
        /// The given initial fill.
        initial: u64,
        /// The burst.
        burst: u64,
    },
    /// Two quotas have the same name.
    #[error("two quotas are named `{name}`: give each its own name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The in-flight cap is zero, or exceeds the range of the rovers.
    #[error("max_in_flight is {cap}: it must be between 1 and {most}")]
    BadMaxInFlight {
        /// The given cap.
        cap: u64,
        /// The largest cap.
        most: u64,
    },
    /// A change at run time names a quota that does not exist.
    #[error("there is no quota {which}: {}", QuotaCount(*count))]
    UnknownQuota {
        /// The requested index or name.
        which: String,
        /// How many quotas the limiter has.
        count: usize,
    },
    /// A change at run time of the in-flight cap, on a limiter built without one.
    #[error("this limiter has no in-flight cap to change: build it with max_in_flight")]
    NotCapped,
    /// `distributed` was called without a quota, or with more than one.
    #[error("a distributed limiter has exactly one quota: write `.quota(...)` once before `.distributed(store)`")]
    DistributedQuotaCount,
    /// A manual quota has no rate, so it cannot be distributed.
    #[error("quota {quota} is distributed and manual: give it a rate, such as Quota::per_second(10)")]
    DistributedManual {
        /// Index of the quota.
        quota: usize,
    },
    /// A distributed quota is counted in microseconds and in integers below 2<sup>53</sup>.
    #[error(
        "quota {quota} cannot be distributed exactly: its amount times its period in microseconds, in lowest terms, \
         must be at most 2^53, its burst at most 2^50, and it must fill up within 142 years; the period of a stepped one \
         is whole microseconds"
    )]
    DistributedInexact {
        /// Index of the quota.
        quota: usize,
    },
    /// The limiter of a distributed quota spawns its refill task on the runtime on which it is built.
    #[error(
        "a distributed limiter must be built on a tokio runtime, and not on a manual clock: call `build` inside one"
    )]
    DistributedOutsideRuntime,
    /// All nodes of a distributed quota use the same quota, so one limiter cannot change it.
    #[error("quota {quota} is distributed: build the limiter anew, with a store of a higher `quota_version`")]
    DistributedQuota {
        /// Index of the quota.
        quota: usize,
    },
    /// A keyed limiter forgets a key with a full bucket, so the bucket of a new key must be full.
    #[error(
        "a keyed quota starts with {initial} of {burst} tokens: leave `initial` out, a key that owes nothing is full"
    )]
    KeyedInitial {
        /// The given initial fill.
        initial: u64,
        /// The burst.
        burst: u64,
    },
    /// A keyed limiter cannot replenish each of its keys manually.
    #[error("a keyed quota is manual: give it a rate, such as Quota::per_second(10)")]
    KeyedManual,
    /// A distributed keyed limiter does not support this setting.
    #[error("`{setting}` is not supported by a distributed keyed limiter: remove it")]
    DistributedKeyed {
        /// The name of the builder's setting.
        setting: &'static str,
    },
    /// A quota of this limiter cannot be in dry run.
    #[error("dry run is not supported together with `{setting}`: leave out one of the two")]
    DryRunUnsupported {
        /// What the limiter has that a dry run does not simulate.
        setting: &'static str,
    },
    /// A class was asked of a limiter that was built without classes.
    #[error("this limiter has no classes: build it with `.classes()`")]
    NoClasses,
    /// Another class of the same parent has this name.
    #[error("there is a class `{class}` already: clone it, or give this one another name")]
    DuplicateClass {
        /// The name of the class.
        class: String,
    },
    /// The class, or the class around it, was removed.
    #[error("the class `{class}` was removed: make a new one")]
    ClassRemoved {
        /// The name of the class.
        class: String,
    },
    /// Classes are nested too deeply.
    #[error("the class `{class}` is nested too deeply: classes nest {most} deep at most")]
    ClassTooDeep {
        /// The name of the class.
        class: String,
        /// The greatest depth.
        most: usize,
    },
    /// The weight of a class is out of range.
    #[error("class `{class}` has a weight of {weight}: it must be between 1 and {most}")]
    BadWeight {
        /// The name of the class.
        class: String,
        /// The given weight.
        weight: u64,
        /// The largest weight.
        most: u64,
    },
    /// A floor or a ceiling is manual, and has no rate.
    #[error("the {part} of class `{class}` is manual: give it a rate, such as Quota::per_second(10)")]
    ManualShare {
        /// The name of the class.
        class: String,
        /// `floor` or `ceiling`.
        part: &'static str,
    },
    /// A floor or a ceiling is not a valid quota.
    #[error("the {part} of class `{class}` is invalid: {reason}")]
    BadShare {
        /// The name of the class.
        class: String,
        /// `floor` or `ceiling`.
        part: &'static str,
        /// What is wrong with it.
        reason: Box<ConfigError>,
    },
    /// Only a class without classes in it can have a floor.
    #[error("class `{class}` has both a floor and classes in it: set the floors of the classes in it instead")]
    FloorWithClasses {
        /// The name of the class.
        class: String,
    },
    /// All floors together exceed the rate of the slowest quota, so they could not be kept.
    #[error("with the floor of class `{class}`, all floors exceed the rate of the limiter: lower one of them")]
    FloorsAboveRate {
        /// The name of the class.
        class: String,
    },
    /// The floors below a ceiling exceed its rate, so they could not be kept.
    #[error("with class `{class}`, the floors below a ceiling exceed its rate: lower a floor or raise the ceiling")]
    FloorsAboveCeiling {
        /// The name of the class.
        class: String,
    },
    /// A ceiling above a floor has a burst below that of the limiter. The floor could not be kept: after each
    /// installment of another class, which may be as large as the limiter's burst, the ceiling would be full too early.
    #[error("with class `{class}`, a ceiling above a floor has a burst of {burst}: it must be at least {least}")]
    CeilingBelowBurst {
        /// The name of the class.
        class: String,
        /// The burst of the ceiling.
        burst: u64,
        /// The smallest burst of the limiter's quotas.
        least: u64,
    },
    /// The tokens of a distributed quota cannot be shared among classes.
    #[error("a limiter with classes cannot be distributed: remove `.classes()` or `.distributed(store)`")]
    DistributedClasses,
    /// Keys have weights only where they share a parent with classes.
    #[error(
        "`weight_by` needs a parent with classes: build the parent limiter with `.classes()`, or remove `weight_by`"
    )]
    WeightsWithoutClasses,
    /// The limiter of a key of a keyed limiter with a parent cannot be used by itself, past the parent.
    #[error(
        "a key under a parent has no limiter of its own: call the keyed limiter's methods, or build it without one"
    )]
    KeyUnderParent,
    /// The keys of a keyed limiter have more quotas than are supported.
    #[error("{count} quotas for each key: a key can have at most {most}, leave out those that another one implies")]
    TooManyQuotas {
        /// How many quotas were given.
        count: usize,
        /// The most quotas that a key can have.
        most: usize,
    },
    /// The builder was given the quotas of all keys, and a function that chooses the quotas of each key.
    #[error("both `quota` and `quota_by` are set: return all quotas of a key from `quota_by`, and remove `quota`")]
    QuotaAndQuotaBy,
    /// A setting that can have one value was made twice.
    #[error("`{setting}` is set twice: remove one of the calls, the builder does not choose between them")]
    SetTwice {
        /// The name of the builder's setting.
        setting: &'static str,
    },
    /// The state given to `restore` cannot be restored.
    #[cfg(feature = "state")]
    #[error(transparent)]
    State(#[from] StateError),
    /// The window of `KeyedBuilder::top` is zero.
    #[error("the window of `top` is zero: count over some time, such as Duration::from_secs(60)")]
    NoWindow,
    /// The text of the key, which names its store, is too long. Only of a distributed keyed limiter.
    #[error("the key's name is {length} bytes long, the most is {most}: name it shorter with `distributed_by`")]
    KeyTooLong {
        /// The length of the name in bytes.
        length: usize,
        /// The largest length.
        most: usize,
    },
    /// The keyed limiter may hold no key.
    #[error("max_keys is 0: it must be at least 1")]
    NoKeys,
    /// A quota was set for a key that exceeds the largest number of keys.
    #[error("{most} keys owe tokens or have quotas of their own already: raise max_keys")]
    TooManyKeys {
        /// The largest number of keys.
        most: u64,
    },
}
