//! What a configuration file says about one rule.

use crate::proto::Unit;
use std::time::Duration;
use tollgate::Quota;

/// What a rule demands, apart from which descriptors it matches. A reload keeps the levels of a rule that has the same
/// limits as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// All limits hold. None at all: unlimited.
    pub limits: Vec<Limit>,
    /// The name by which other rules replace this one.
    pub name: String,
    /// The names of the rules that do not count in a request that matches this one.
    pub replaces: Vec<String>,
    /// Whether the rule counts and refuses nothing.
    pub shadow: bool,
    /// Whether a request is refused only if all its rules with this mark refuse.
    pub quota: bool,
    /// How long a request waits at most; `None` if it is refused at once.
    pub wait: Option<Duration>,
    /// How many requests of one value wait at most.
    pub max_waiting: Option<u32>,
    /// What happens while the store is away.
    pub outage: Outage,
    /// The values that share the limit by weight while they wait.
    pub classes: Option<Classes>,
}

/// What happens to requests while the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// They pass.
    #[default]
    Allow,
    /// They are refused.
    Refuse,
    /// They wait until the store is back, at most for the `wait` of the rule.
    Wait,
}

impl Outage {
    /// All, with the names that a file gives them.
    pub const ALL: [(&str, Self); 3] = [("allow", Self::Allow), ("refuse", Self::Refuse), ("wait", Self::Wait)];
}

/// A number of requests in a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The requests per unit. 0 refuses all.
    pub requests: u32,
    /// The unit.
    pub unit: Unit,
    /// When tokens come back.
    pub refill: Refill,
}

/// When the tokens of a limit come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// All at once, at each multiple of the unit since 1970.
    Windows,
    /// All at once, when a unit of the calendar begins in a time zone: this quota.
    Calendar(Quota),
    /// Evenly, into a bucket for this number of tokens.
    Bucket(u32),
    /// Each of them one unit after it was taken.
    Sliding,
}

impl Refill {
    /// Returns true if all tokens come back at once.
    pub fn is_in_windows(self) -> bool {
        matches!(self, Self::Windows | Self::Calendar(_))
    }
}

/// The weights of the values of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Values with their weights.
    pub weights: Vec<(String, u32)>,
    /// The weight of all other values together.
    pub others: u32,
}

impl Terms {
    /// Returns true if the rule counts and has no limit.
    pub fn is_unlimited(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns how many requests of one value wait at most.
    pub fn most_waiting(&self) -> u64 {
        self.max_waiting.map_or(u64::MAX, u64::from)
    }

    /// Returns true if no request with a cost ever passes.
    pub fn refuses_all(&self) -> bool {
        self.limits.iter().any(|limit| limit.requests == 0)
    }

    /// Returns true if a limiter with the same limits that was made for `other` serves these terms too.
    pub fn waits_alike(&self, other: &Self) -> bool {
        self.max_waiting == other.max_waiting && self.classes == other.classes && self.outage == other.outage
    }
}

impl Limit {
    /// Returns the most tokens that can be there.
    pub fn capacity(&self) -> u32 {
        if let Refill::Bucket(burst) = self.refill { burst } else { self.requests }
    }

    /// Returns the limit as a quota of a store, whose windows begin at multiples of the unit since 1970 in any case.
    pub fn shared_quota(&self) -> Quota {
        let quota = Quota::new(self.requests.into(), Duration::from_secs(self.unit.seconds()));
        match self.refill {
            Refill::Windows => quota.stepped(),
            Refill::Calendar(quota) => quota,
            Refill::Bucket(burst) => quota.burst(burst.into()),
            Refill::Sliding => quota.sliding(),
        }
    }

    /// Returns the limit as a quota of this process. Its windows begin at multiples of the unit since 1970.
    pub fn quota(&self) -> Quota {
        let quota = self.shared_quota();
        if self.refill == Refill::Windows { quota.from_epoch() } else { quota }
    }
}
