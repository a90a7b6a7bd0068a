//! The errors of building and changing limiters.

#[cfg(feature = "state")]
use super::StateError;
use super::{QuotaError, error_enum};
use crate::quota::Quota;

error_enum! {
    /// An invalid configuration: names the field and says what to write instead.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ConfigError {
        /// The builder has neither a quota nor an in-flight cap.
        #[error(
            "nothing is limited: add a rate, `.quota(Quota::per_second(100))`, or a cap on concurrency alone, \
             `.max_in_flight(50)`"
        )]
        NoQuota,
        /// A quota is invalid, or cannot be used here.
        #[error("{} {reason}", Of(*quota, *quota_name))]
        BadQuota {
            /// Index of the quota.
            quota: usize,
            /// The name of the quota, if it has one.
            quota_name: Option<&'static str>,
            /// What is wrong with it.
            reason: QuotaError,
        },
        /// The database of time zones has no zone of this name.
        #[error("there is no time zone `{name}`: write a name of the IANA database, such as `America/Los_Angeles`")]
        UnknownTimeZone {
            /// The given name.
            name: String,
        },
        /// A quota without a calendar has no time zone.
        #[error("`{quota}` is in no time zone: make the quota by `Quota::per_calendar_day` or another of its kind")]
        NoCalendar {
            /// The quota.
            quota: Quota,
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
        /// `max_cost` allows no cost at all.
        #[error("max_cost is 0: it must be at least 1")]
        ZeroMaxCost,
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
        /// `distributed` was called before any quota was added, or twice.
        #[error("`.distributed(store)` makes the quota before it distributed: write it once, after `.quota(...)`")]
        DistributedQuotaCount,
        /// The limiter of a distributed quota spawns its refill task on the runtime on which it is built.
        #[error(
            "a distributed limiter must be built on a tokio runtime, and not on a manual clock: call `build` inside one"
        )]
        DistributedOutsideRuntime,
        /// A quota of this limiter cannot be in dry run.
        #[error("dry run is not supported together with `{setting}`: {}", instead_of_dry_run(setting))]
        DryRunUnsupported {
            /// The setting of the limiter that a dry run does not simulate.
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
        #[error("the class `{class}`, or the class around it, was removed: make a new one")]
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
        #[error("the {part} of class `{class}` {reason}")]
        BadShare {
            /// The name of the class.
            class: String,
            /// `floor` or `ceiling`.
            part: &'static str,
            /// What is wrong with it.
            reason: QuotaError,
        },
        /// Only a class without classes in it can have a floor.
        #[error("class `{class}` has both a floor and classes in it: set the floors of the classes in it instead")]
        FloorWithClasses {
            /// The name of the class.
            class: String,
        },
        /// All floors together exceed the rate of the slowest quota, so they could not be kept.
        #[error(
            "with the floor `{floor}` of class `{class}`, all floors exceed the rate of the limiter: lower one of them"
        )]
        FloorsAboveRate {
            /// The name of the class.
            class: String,
            /// Its floor.
            floor: Quota,
        },
        /// The floors below a ceiling exceed its rate, so they could not be kept.
        #[error(
            "with class `{class}`, the floors below a ceiling exceed its `{ceiling}`: lower a floor or raise the ceiling"
        )]
        FloorsAboveCeiling {
            /// The name of the class.
            class: String,
            /// The ceiling.
            ceiling: Quota,
        },
        /// A ceiling above a floor has a burst below that of the limiter. The floor could not be kept: after each
        /// installment of another class, which may be as large as the limiter's burst, the ceiling would be full too
        /// early.
        #[error("with class `{class}`, a ceiling above a floor has a burst of {burst}: it must be at least {least}")]
        CeilingBelowBurst {
            /// The name of the class.
            class: String,
            /// The burst of the ceiling.
            burst: u64,
            /// The smallest burst of the limiter's quotas.
            least: u64,
        },
        /// A class of a distributed limiter has something other than a weight.
        #[error("class `{class}` of a distributed limiter has a {part}, which no store keeps for all nodes: remove it")]
        DistributedShare {
            /// The name of the class.
            class: String,
            /// `floor` or `ceiling`.
            part: &'static str,
        },
        /// The keys of a keyed limiter cannot be classes of a distributed limiter.
        #[error(
            "a distributed limiter with classes cannot be the parent of a keyed limiter: build it without `.classes()`"
        )]
        DistributedParent,
        /// A distributed limiter has too many classes.
        #[error("class `{class}` would be one too many: a distributed limiter has at most {most} classes")]
        TooManyClasses {
            /// The name of the class.
            class: String,
            /// The most classes.
            most: usize,
        },
        /// Keys have weights only where they share a parent with classes.
        #[error(
            "`weight_by` needs a parent with classes: build the parent limiter with `.classes()`, or remove `weight_by`"
        )]
        WeightsWithoutClasses,
        /// The limiter of a key under a parent cannot be a parent itself.
        #[error("the parent is the limiter of a key that has a parent: make it a class of that one, or join both")]
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
        #[error("{0}")]
        State(StateError),
        /// The window of `KeyedBuilder::top` is zero.
        #[error("the window of `top` is zero: count over some time, such as Duration::from_secs(60)")]
        NoWindow,
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
        /// The keyed limiter may hold no key.
        #[error("max_keys is 0: it must be at least 1")]
        NoKeys,
        /// A quota was set for a key that exceeds the largest number of keys.
        #[error("{most} other keys are kept already: raise max_keys")]
        TooManyKeys {
            /// The largest number of keys.
            most: u64,
        },
    }
}

impl std::error::Error for ConfigError {}

#[cfg(feature = "state")]
impl From<StateError> for ConfigError {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

/// A quota, by its name if it has one, and otherwise by its index.
struct Of(usize, Option<&'static str>);

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(_, Some(name)) => write!(f, "quota `{name}`"),
            Self(index, None) => write!(f, "quota {index}"),
        }
    }
}

/// What to do about [`ConfigError::DryRunUnsupported`].
fn instead_of_dry_run(setting: &str) -> &'static str {
    match setting {
        "classes" => "try the quota on a limiter without classes",
        "distributed" => "try the quota on a limiter of one process, without a store",
        "join" => "try again when no joint claim waits in this limiter",
        "max_in_flight without a quota" => "there is no quota to try, so add one or leave out the dry run",
        "parent" => "neither keys under a parent nor the parent can be in dry run, so try the quota without the parent",
        _ => "leave out one of the two",
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
