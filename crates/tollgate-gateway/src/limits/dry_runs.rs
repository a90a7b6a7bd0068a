//! The rules in dry run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::ConfigError;

use super::builders::Builders;
use super::dry_run_rule::{DryRunGrant, DryRunRule};
use super::saved_level::SavedLevel;
use crate::config::Config;
use crate::request::name::Name;
use crate::request::rule::{Charge, Rule};

/// The levels of quotas that go into dry run, or leave it.
type Levels = HashMap<Name, SavedLevel>;

pub(crate) struct DryRuns {
    rules: ArcSwap<HashMap<Name, Arc<DryRunRule>>>,
    config: Arc<ArcSwap<Config>>,
    builders: Builders,
}

impl DryRuns {
    pub(crate) fn new(config: &Arc<ArcSwap<Config>>, builders: &Builders) -> Result<Self, ConfigError> {
        let dry_runs = Self { rules: ArcSwap::default(), config: Arc::clone(config), builders: builders.clone() };
        let mut rules = HashMap::new();
        for (name, rule) in of(&config.load()) {
            rules.insert(name, Arc::new(dry_runs.build(name, rule, None)?));
        }
        dry_runs.rules.store(Arc::new(rules));
        Ok(dry_runs)
    }

    /// Notes a request that the limits in force have admitted.
    pub(crate) fn note(&self, charges: &[Charge], max_wait: Duration) -> Vec<DryRunGrant> {
        let rules = self.rules.load();
        charges.iter().filter_map(|charge| Some(rules.get(&charge.rule)?.note(charge, max_wait))).collect()
    }

    /// Takes the rules of `new`. Those that go into dry run continue from `levels`. Returns the levels of those that leave
    /// it.
    ///
    /// # Panics
    ///
    /// Panics if a rule of `new` was not checked.
    pub(crate) fn change(&self, new: &Config, mut levels: Levels) -> Levels {
        let old = self.rules.load_full();
        let mut rules = HashMap::new();
        for (name, rule) in of(new) {
            let kept = old.get(&name).filter(|dry_run| dry_run.is_of(&rule)).cloned();
            let level = levels.remove(&name).or_else(|| old.get(&name).filter(|_| kept.is_none())?.level());
            let build = || Arc::new(self.build(name, rule, level).expect("the rule was checked"));
            rules.insert(name, kept.unwrap_or_else(build));
        }
        let left = old.iter().filter(|(name, _)| !rules.contains_key(*name));
        let left = left.filter_map(|(name, dry_run)| Some((*name, dry_run.level()?))).collect();
        self.rules.store(Arc::new(rules));
        left
    }

    fn build(&self, name: Name, rule: Rule, level: Option<SavedLevel>) -> Result<DryRunRule, ConfigError> {
        DryRunRule::new(name, rule, level, &self.config, &self.builders)
    }

    pub(crate) fn publish(&self) {
        self.rules.load().values().for_each(|dry_run| dry_run.publish());
    }
}

fn of(config: &Config) -> impl Iterator<Item = (Name, Rule)> {
    config.rules.iter().filter(|(_, rule)| rule.dry_run).map(|(name, rule)| (*name, *rule))
}
