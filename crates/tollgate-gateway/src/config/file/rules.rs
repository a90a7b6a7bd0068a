//! The limits of rules.

use std::time::Duration;

use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::checks::{check_cap, check_client_quota, check_shared_quota, check_wait};
use super::redis::check_distributed;
use crate::request::name::Name;
use crate::request::rule::{Rule, RuleSet};

/// Each request to the store of a distributed quota carries the name.
const LONGEST_NAME: usize = 200;

/// The limits of one rule as they are written. Different tables have different names for them.
pub(super) struct RuleTable<'a> {
    pub(super) quota: Option<&'a Spanned<Quota>>,
    pub(super) in_flight: Option<&'a Spanned<u64>>,
    pub(super) each: Option<&'a Spanned<Quota>>,
    pub(super) distributed: Option<&'a Spanned<bool>>,
    pub(super) dry_run: Option<&'a Spanned<bool>>,
}

impl RuleTable<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.quota.is_none() && self.in_flight.is_none() && self.each.is_none()
    }

    /// Checks that no setting says how limits apply that are not there.
    pub(super) fn check_unused(&self, source: &Source<'_>) -> Result<(), Problem> {
        for (name, setting) in [("distributed", self.distributed), ("dry_run", self.dry_run)] {
            if let Some(setting) = setting {
                let what = format!("`{name}` has no effect without a quota: write one here, or leave it out");
                return Err(source.problem(Some(setting.span()), what));
            }
        }
        Ok(())
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
        if let Some(distributed) = self.distributed.filter(|_| name.as_str().len() > LONGEST_NAME) {
            let what =
                format!("the name of a distributed limit has at most {LONGEST_NAME} bytes: write a shorter `name`");
            return Err(source.problem(Some(distributed.span()), what));
        }
        Ok(self.rule())
    }

    /// Checks the limits themselves.
    pub(super) fn check_values(&self, source: &Source<'_>) -> Result<(), Problem> {
        self.quota.map_or(Ok(()), |quota| check_shared_quota(source, quota))?;
        self.each.map_or(Ok(()), |quota| check_client_quota(source, quota))?;
        check_cap(source, self.in_flight)?;
        if let (Some(dry_run), Some(_)) = (self.dry_run.filter(|_| self.is_dry_run()), self.in_flight) {
            let what = "`dry_run` is about quotas, and not about tokens in flight: leave out `dry_run` or `in_flight`";
            return Err(source.problem(Some(dry_run.span()), what));
        }
        let quotas = self.quota.into_iter().chain(self.each);
        check_distributed(source, self.distributed, self.is_dry_run(), quotas).map(drop)
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run.is_some_and(|dry_run| *dry_run.as_ref())
    }

    pub(super) fn rule(&self) -> Rule {
        Rule {
            quota: self.quota.map(|quota| *quota.as_ref()),
            in_flight: self.in_flight.map(|cap| *cap.as_ref()),
            each: self.each.map(|quota| *quota.as_ref()),
            is_distributed: self.distributed.is_some_and(|distributed| *distributed.as_ref()),
            dry_run: self.is_dry_run(),
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
