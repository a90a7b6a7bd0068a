//! The limit that refused a request: in the access log, in `/metrics` and on the page.

use std::fmt;

use super::refusing_limit::KEY;
use super::refusing_limit::RefusingLimit;
use super::rule_client_limits::RuleKey;
use crate::request::client::Client;
use crate::request::name::Name;

/// All names are from the file, so they are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Limit {
    /// That of the request's own client.
    Own,
    /// That of the bucket which unlisted clients share when there are too many of them.
    Overflow,
    /// That of all requests.
    All,
    /// That of a route, a block of addresses or a language model.
    Rule(Name),
    /// That of each client within one of these.
    Each(Name),
    /// That of the clients within one of these which share a bucket.
    EachOverflow(Name),
    /// A quota that all gateways share.
    Distributed(Name),
    /// The quota of each client that all gateways share: of its key, or within a rule.
    DistributedEach(Name),
    /// A block of addresses that is not admitted.
    Block(Name),
}

impl Limit {
    pub(crate) fn of(refused_by: RefusingLimit) -> Self {
        match refused_by {
            RefusingLimit::Rule(name) => Self::Rule(name),
            RefusingLimit::Client(RuleKey { rule, client: Client::Overflow }) => Self::EachOverflow(rule),
            RefusingLimit::Client(RuleKey { rule, .. }) => Self::Each(rule),
            RefusingLimit::Distributed(name) => Self::Distributed(name),
            RefusingLimit::DistributedClient(RuleKey { rule, .. }) => Self::DistributedEach(rule),
        }
    }
}

/// As the `RateLimit` fields name it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("key"),
            Self::Overflow => f.write_str("overflow"),
            Self::All => f.write_str("all"),
            Self::Rule(name) | Self::Block(name) => write!(f, "{name}"),
            Self::Each(rule) => write!(f, "{rule} each"),
            Self::Distributed(name) => write!(f, "{name} distributed"),
            Self::DistributedEach(rule) if rule.as_str() == KEY => write!(f, "{rule} distributed"),
            Self::DistributedEach(rule) => write!(f, "{rule} each distributed"),
            Self::EachOverflow(rule) => write!(f, "{rule} overflow"),
        }
    }
}
