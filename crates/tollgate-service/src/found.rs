//! What a descriptor has found among the rules, and what it costs.

use crate::proto::{Descriptor, RateLimitRequest};
use crate::rule::Rule;
use std::borrow::Cow;
use std::sync::Arc;

/// What a descriptor has found.
pub(crate) enum Found<'r> {
    /// No rule, or one that another rule replaces.
    Nothing,
    /// A rule that counts and never refuses.
    Unlimited(Cow<'r, Arc<Rule>>),
    /// A rule with a limit.
    Limited(Cow<'r, Arc<Rule>>),
}

impl Found<'_> {
    /// Returns the rule.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) | Self::Limited(rule) => Some(rule),
        }
    }
}

/// More than any limit has. Counters of 64 bits have room for a billion such requests.
const MOST_COST: u64 = 1 << 32;

/// Returns how many tokens a descriptor takes.
pub(crate) fn cost(request: &RateLimitRequest, descriptor: &Descriptor) -> u64 {
    match &descriptor.hits_addend {
        Some(hits) => hits.value.min(MOST_COST),
        None => request.hits_addend.max(1).into(),
    }
}
