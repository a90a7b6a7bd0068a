//! The limit that refused a request.

use std::fmt;

use super::rule_client_limits::RuleKey;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::outcome::Outcome;

/// The name of the limit of each client, beside those of rules.
pub(crate) const KEY: &str = "key";
/// The name of the limit of all requests, beside those of rules.
pub(crate) const ALL: &str = "all";

/// The limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusingLimit {
    /// That of one client within a rule.
    Client(RuleKey),
    /// That of a rule.
    Rule(Name),
    /// The quota of one client that all gateways share.
    DistributedClient(RuleKey),
    /// Another quota that all gateways share.
    Distributed(Name),
}

impl RefusingLimit {
    /// How a request is counted that this limit has refused.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::DistributedClient(RuleKey { rule, .. }) if rule.as_str() == KEY => Outcome::RefusedEach,
            Self::Distributed(name) if name.as_str() == ALL => Outcome::RefusedAll,
            Self::Client(_) | Self::Rule(_) | Self::DistributedClient(_) | Self::Distributed(_) => Outcome::RefusedRule,
        }
    }
}

/// The name of the limit in refusals and metrics.
impl fmt::Display for RefusingLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(name) => write!(f, "{name}"),
            Self::Client(RuleKey { rule, client: Client::Overflow }) => write!(f, "{rule} overflow"),
            Self::Client(RuleKey { rule, .. }) => write!(f, "{rule} each"),
            Self::Distributed(name) => write!(f, "{name} distributed"),
            Self::DistributedClient(RuleKey { rule, .. }) if rule.as_str() == KEY => write!(f, "{rule} distributed"),
            Self::DistributedClient(RuleKey { rule, .. }) => write!(f, "{rule} each distributed"),
        }
    }
}
