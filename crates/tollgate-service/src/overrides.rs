//! Limits that requests bring along, in place of the configured ones.

use crate::meter::Meters;
use crate::problem::{Place, Source};
use crate::proto::{Entry, LimitOverride, Unit};
use crate::rule::{Level, Path, Rule};
use crate::terms::{Limit, Refill, Terms};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The most different limits of requests. Each has a limiter.
const MOST: usize = 1_000;
/// The longest list of keys with a limit, in bytes. They are kept, and each metric has them.
const LONGEST: usize = 1_024;

/// The rules that requests bring along: one for each domain, list of keys, and limit.
#[derive(Debug, Default)]
pub struct Overrides {
    by_limit: RwLock<HashMap<Id, Arc<Rule>>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Id {
    domain: String,
    keys: Vec<String>,
    requests: u32,
    unit: Unit,
}

/// Why a request cannot bring its limit along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOverride {
    /// The unit is unknown.
    #[error("the limit of a descriptor has the unit {0}, which is none: send 1 to 7")]
    Unit(i32),
    /// There are too many limits already.
    #[error("requests bring {MOST} different limits along, and this one is new: configure it")]
    TooMany,
    /// The keys of the descriptor are too long.
    #[error("the keys of a descriptor with a limit have {0} bytes, the most is {LONGEST}: send shorter ones")]
    TooLong(usize),
}

impl Overrides {
    /// Returns the rules of all limits.
    pub fn all(&self) -> Vec<Arc<Rule>> {
        self.by_limit.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Returns the rule of a limit, which may be in quota mode.
    ///
    /// # Errors
    ///
    /// Returns a [`BadOverride`] if the unit is unknown, the keys are too long, or the limit is new and there are 1,000
    /// already.
    pub fn rule(
        &self,
        domain: &str,
        entries: &[Entry],
        limit: &LimitOverride,
        quota: bool,
        meters: &Meters,
    ) -> Result<Arc<Rule>, BadOverride> {
        let unit = Unit::try_from(limit.unit).ok().filter(|unit| *unit != Unit::Unknown);
        let unit = unit.ok_or(BadOverride::Unit(limit.unit))?;
        let length = entries.iter().map(|entry| entry.key.len() + 1).sum();
        if length > LONGEST {
            return Err(BadOverride::TooLong(length));
        }
        let keys = entries.iter().map(|entry| entry.key.clone()).collect();
        let id = Id { domain: domain.to_owned(), keys, requests: limit.requests_per_unit, unit };
        if let Some(rule) = self.by_limit.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(Arc::clone(rule));
        }
        let mut by_limit = self.by_limit.write().unwrap_or_else(PoisonError::into_inner);
        if by_limit.len() >= MOST && !by_limit.contains_key(&id) {
            return Err(BadOverride::TooMany);
        }
        let rule = by_limit.entry(id).or_insert_with_key(|id| Arc::new(id.rule(quota, meters)));
        Ok(Arc::clone(rule))
    }
}

impl Id {
    fn rule(&self, quota: bool, meters: &Meters) -> Rule {
        let level = |key: &String| Level { key: key.clone(), value: String::new(), is_open: true };
        let limit = Limit { requests: self.requests, unit: self.unit, refill: Refill::Windows };
        let terms = Terms { limits: vec![limit], quota, ..Terms::default() };
        let source = Arc::new(Source { name: "a request".to_owned(), text: String::new() });
        let place = Place { source, line: 1, column: 1, length: 1 };
        let (domain, levels) = (self.domain.as_str().into(), self.keys.iter().map(level).collect());
        let rule = Rule::new(Path { domain, levels, named: Vec::new() }, terms, place);
        rule.count_among(meters);
        rule
    }
}
