//! Counters of rules, by the names of the metrics under which the rules count.

use crate::bucket::Reason;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The most metrics whose names contain values of requests. Requests beyond it count under the name of their rule.
pub const MOST_DYNAMIC: usize = 10_000;

/// What one metric counts: a rule, or a rule for one of its values. The first five are those of the reference.
#[derive(Debug, Default)]
pub struct Meter {
    /// The meter of the rule, if this one counts for one of its values.
    pub within: Option<Arc<Meter>>,
    /// Tokens that were asked for.
    pub total_hits: AtomicU64,
    /// Tokens above the limit.
    pub over_limit: AtomicU64,
    /// Tokens within the limit and above the ratio that counts as near it.
    pub near_limit: AtomicU64,
    /// Tokens that were granted.
    pub within_limit: AtomicU64,
    /// Tokens above the limit that a rule in shadow mode let pass.
    pub shadow_mode: AtomicU64,
    /// Requests that were granted after a wait.
    pub waits: AtomicU64,
    /// How long they waited, in nanoseconds.
    pub waited: AtomicU64,
    /// Refused requests by reason, in the order of [`Reason::ALL`].
    pub refused: [AtomicU64; Reason::ALL.len()],
}

impl Meter {
    /// Counts a refused request.
    pub fn refuse(&self, reason: Reason) {
        add(&self.refused[reason as usize], 1);
    }

    /// Counts a request that was granted after a wait.
    pub fn wait(&self, time: Duration) {
        add(&self.waits, 1);
        add(&self.waited, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Reads a counter.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// All meters of a service. They outlive the rules, so that a reload resets no counter.
#[derive(Debug, Default)]
pub struct Meters {
    by_name: RwLock<HashMap<Name, Arc<Meter>>>,
    /// How many of the names contain values of requests; more, if two threads made one at once.
    dynamic: AtomicUsize,
}

/// The name of a metric: a domain, and for each level of the rule its key, with `_` and a value if that counts apart.
pub type Name = Box<[String]>;

impl Meters {
    /// Returns the meter of this name.
    pub fn get(&self, name: &[String]) -> Arc<Meter> {
        self.find(name).unwrap_or_else(|| self.insert(name, None))
    }

    /// Returns the meter of a name that contains values of a request, or `otherwise` if there are too many of them.
    pub fn get_dynamic(&self, name: &[String], otherwise: &Arc<Meter>) -> Arc<Meter> {
        if let Some(meter) = self.find(name) {
            return meter;
        }
        if self.dynamic.load(Ordering::Relaxed) >= MOST_DYNAMIC {
            return Arc::clone(otherwise);
        }
        self.dynamic.fetch_add(1, Ordering::Relaxed);
        self.insert(name, Some(Arc::clone(otherwise)))
    }

    /// Returns all meters, in the order of their names.
    pub fn all(&self) -> Vec<(Name, Arc<Meter>)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name.iter().map(|(name, meter)| (name.clone(), Arc::clone(meter))).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Calls `look` for all meters.
    pub fn each(&self, look: impl FnMut(&Arc<Meter>)) {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().for_each(look);
    }

    fn find(&self, name: &[String]) -> Option<Arc<Meter>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn insert(&self, name: &[String], within: Option<Arc<Meter>>) -> Arc<Meter> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let meter = by_name.entry(name.into()).or_insert_with(|| Arc::new(Meter { within, ..Meter::default() }));
        Arc::clone(meter)
    }
}
