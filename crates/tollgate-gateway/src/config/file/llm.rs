//! The table `llm`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::redis::DistributedLimits;
use super::rules::RuleTable;
use crate::llm::{ALL, Llm, Models, requests_of};
use crate::request::name::Name;
use crate::request::rule::unlimited;
use crate::request::rule::{Rule, RuleSet};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LlmTable {
    quota: Option<Spanned<Quota>>,
    key_quota: Option<Spanned<Quota>>,
    distributed: Option<Spanned<bool>>,
    dry_run: Option<Spanned<bool>>,
    default_output: Option<Spanned<u64>>,
    bytes_per_token: Option<Spanned<u64>>,
    max_estimate: Option<Spanned<u64>>,
    follow_upstream_limits: Option<Spanned<bool>>,
    #[serde(default)]
    models: Vec<ModelTable>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTable {
    name: Spanned<String>,
    quota: Option<Spanned<Quota>>,
    key_quota: Option<Spanned<Quota>>,
    distributed: Option<Spanned<bool>>,
    dry_run: Option<Spanned<bool>>,
}

impl ModelTable {
    fn limits(&self) -> RuleTable<'_> {
        RuleTable {
            quota: self.quota.as_ref(),
            in_flight: None,
            each: self.key_quota.as_ref(),
            distributed: self.distributed.as_ref(),
            dry_run: self.dry_run.as_ref(),
        }
    }
}

impl LlmTable {
    fn limits(&self) -> RuleTable<'_> {
        RuleTable {
            quota: self.quota.as_ref(),
            in_flight: None,
            each: self.key_quota.as_ref(),
            distributed: self.distributed.as_ref(),
            dry_run: self.dry_run.as_ref(),
        }
    }

    /// Notes the limits that all gateways share.
    pub(super) fn note_distributed(&self, all: &mut DistributedLimits) {
        all.note(self.distributed.as_ref(), self.key_quota.is_some());
        self.models.iter().for_each(|model| all.note(model.distributed.as_ref(), model.key_quota.is_some()));
    }

    /// Adds the limits to `rules`.
    pub(super) fn check(self, source: &Source<'_>, max_wait: Duration, rules: &mut RuleSet) -> Result<Llm, Problem> {
        let output = self.default_output.as_ref().map_or(1_000, |output| *output.as_ref());
        let bytes_per_token = self.bytes_per_token.as_ref().map_or(4, |bytes| *bytes.as_ref());
        let zero = |value: &Option<Spanned<u64>>, what: &str| match value.as_ref().filter(|value| *value.as_ref() == 0)
        {
            Some(value) => Err(source.problem(Some(value.span()), what)),
            None => Ok(()),
        };
        zero(&self.bytes_per_token, "0 bytes per token: write about how many bytes a token has, like 4")?;
        zero(&self.max_estimate, "`max_estimate` is 0: write the most tokens that a request can take, like 128_000")?;
        let check = |name: Name, limits: RuleTable<'_>| {
            if limits.is_empty() {
                limits.check_unused(source)?;
            }
            limits.check_values(source)?;
            // A request that says nothing has to fit.
            limits.check(source, name, output, max_wait)
        };
        let all = Name::new(ALL);
        let rule = check(all, self.limits())?;
        rules.insert(all, rule);
        let follows = self.follow_upstream_limits.as_ref().is_some_and(|follows| *follows.as_ref());
        if let Some(follows) = self.follow_upstream_limits.as_ref().filter(|_| follows && self.models.is_empty()) {
            let what =
                "`follow_upstream_limits` has no effect without models: write `[[llm.models]]` for each limit there";
            return Err(source.problem(Some(follows.span()), what));
        }
        let mut models = Models::default();
        for model in &self.models {
            let name = &model.name;
            let text = name.as_ref().to_lowercase();
            let rule_name = Name::new(&format!("model {}", name.as_ref()));
            if text.trim_end_matches('*').contains('*') || text.trim() != text || text.is_empty() {
                let what = format!("`{text}` is not a model: write a name, or its beginning and `*` at the end");
                return Err(source.problem(Some(name.span()), what));
            }
            let rule = check(rule_name, model.limits())?;
            let is_new = match text.strip_suffix('*') {
                Some(prefix) if models.prefixes.iter().any(|(other, _)| other == prefix) => false,
                Some(prefix) => {
                    models.prefixes.push((prefix.to_owned(), rule_name));
                    true
                }
                None => models.exact.insert(text.clone(), rule_name).is_none(),
            };
            let twice = || {
                let what = format!("the model `{}` is there twice: write one table with all its limits", name.as_ref());
                source.problem(Some(name.span()), what)
            };
            if !is_new {
                return Err(twice());
            }
            add_model(rules, rule_name, rule, follows);
        }
        models.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let max_estimate = self.max_estimate.map(Spanned::into_inner);
        Ok(Llm { default_output: output, bytes_per_token, max_estimate, follows, models })
    }
}

/// Checks that there are settings if a route needs them, and a route if there are settings.
pub(super) fn check_llm(
    source: &Source<'_>,
    table: Option<Spanned<LlmTable>>,
    route: Option<Range<usize>>,
    max_wait: Duration,
    rules: &mut RuleSet,
) -> Result<Option<Arc<Llm>>, Problem> {
    match (table, route) {
        (None, None) => Ok(None),
        (None, Some(route)) => {
            let what = "these requests cost tokens of a language model: write a table `[llm]` with their limits";
            Err(source.problem(Some(route), what))
        }
        (Some(table), None) => {
            let what = "`[llm]` has no effect: write `tokens = true` in a route";
            Err(source.problem(Some(table.span()), what))
        }
        (Some(table), Some(_)) => table.into_inner().check(source, max_wait, rules).map(Arc::new).map(Some),
    }
}

/// Adds a rule. One in dry run follows no upstream. Where it follows, it has a limit in any case, and another one of requests.
fn add_model(all: &mut RuleSet, name: Name, rule: Rule, follows: bool) {
    if follows && !rule.dry_run {
        all.insert(name, Rule { quota: Some(rule.quota.unwrap_or_else(unlimited)), ..rule });
        all.insert(requests_of(name), Rule { quota: Some(unlimited()), ..Rule::default() });
    } else {
        all.insert(name, rule);
    }
}
