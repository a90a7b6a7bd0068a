//! The limits of rules.

use std::time::Duration;

use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::checks::{check_cap, check_client_quota, check_shared_quota};
use super::routes::check_wait;
use crate::request::name::Name;
use crate::request::rule::{Rule, RuleSet};

/// The limits of one rule as they are written. Different tables have different names for them.
pub(super) struct RuleTable<'a> {
    pub(super) quota: Option<&'a Spanned<Quota>>,
    pub(super) in_flight: Option<&'a Spanned<u64>>,
    pub(super) each: Option<&'a Spanned<Quota>>,
}

impl RuleTable<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.quota.is_none() && self.in_flight.is_none() && self.each.is_none()
    }

    /// Checks that a request of `cost` fits into these limits.
    pub(super) fn check(&self, source: &Source<'_>, name: Name, cost: u64, most: Duration) -> Result<Rule, Problem> {
        for (quota, whose) in [(self.quota, format!("`{name}`")), (self.each, format!("each client of `{name}`"))] {
            let Some(quota) = quota else { continue };
            let why = |why| source.problem(Some(quota.span()), why);
            check_wait(cost, &whose, *quota.as_ref(), most).map_err(why)?;
        }
        if let Some(cap) = self.in_flight.filter(|cap| cost > *cap.as_ref()) {
            let (name, cap) = ("in_flight", cap.span().clone());
            let what =
                format!("a cost of {cost} exceeds `{name}` and could never pass: lower the cost, or raise `{name}`");
            return Err(source.problem(Some(cap), what));
        }
        Ok(self.rule())
    }

    /// Checks the limits themselves.
    pub(super) fn check_values(&self, source: &Source<'_>) -> Result<(), Problem> {
        self.quota.map_or(Ok(()), |quota| check_shared_quota(source, quota))?;
        self.each.map_or(Ok(()), |quota| check_client_quota(source, quota))?;
        check_cap(source, self.in_flight)
    }

    pub(super) fn rule(&self) -> Rule {
        Rule {
            quota: self.quota.map(|quota| *quota.as_ref()),
            in_flight: self.in_flight.map(|cap| *cap.as_ref()),
            each: self.each.map(|quota| *quota.as_ref()),
        }
    }
}

/// Adds a rule. Each needs a name of its own; `twice` says what to write instead.
pub(super) fn add(rules: &mut RuleSet, name: Name, rule: Rule, twice: impl FnOnce() -> Problem) -> Result<(), Problem> {
    match rules.insert(name, rule) {
        None => Ok(()),
        Some(_) => Err(twice()),
    }
}
