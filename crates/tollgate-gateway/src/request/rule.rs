//! Limits besides those of each client and of all requests, as the file has them.

use std::collections::BTreeMap;

use tollgate::Quota;

use super::client::Client;
use super::name::Name;

/// The limits of one route, block of addresses or model. Absent limits do not limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rule {
    /// The quota of all these requests together.
    pub(crate) quota: Option<Quota>,
    /// How many of their tokens may be in flight.
    pub(crate) in_flight: Option<u64>,
    /// The quota of each client among them.
    pub(crate) each: Option<Quota>,
    /// Whether all gateways share both quotas.
    pub(crate) is_distributed: bool,
    /// Whether the quotas hold back no request, and only report what they would have done.
    pub(crate) dry_run: bool,
}

/// All rules, by their names, which refusals and metrics show.
pub(crate) type RuleSet = BTreeMap<Name, Rule>;

/// The tokens that a request takes from one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) rule: Name,
    /// The client in whose bucket the request is counted, if the rule has one for each.
    pub(crate) client: Client,
    pub(crate) cost: u64,
}

/// Stands for an absent quota, where a rule only has a cap in flight.
pub(crate) fn unlimited() -> Quota {
    Quota::per_second(1_000_000_000)
}
