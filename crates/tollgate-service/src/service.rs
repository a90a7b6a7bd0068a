//! The state of the service: its rules, what it counted, and how it answers.

use crate::bucket::{Maker, Reason};
use crate::meter::{Meters, add};
use crate::overrides::Overrides;
use crate::page::refusals::Refusals;
use crate::rules::Rules;
use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How the service answers, apart from its rules.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Whether all requests pass, whatever the rules say.
    pub shadow: bool,
    /// Whether the limits that requests bring along are in quota mode.
    pub quota: bool,
    /// The part of a limit from which tokens count as near the limit.
    pub near: f64,
    /// The names of the header fields for limit, remaining and reset; `None` for none.
    pub fields: Option<[String; 3]>,
}

impl Default for Manner {
    fn default() -> Self {
        Self { shadow: false, quota: false, near: 0.8, fields: None }
    }
}

/// The state of the service.
#[derive(Debug)]
pub struct Service {
    /// The rules of the present configuration.
    pub rules: ArcSwap<Rules>,
    /// The limits that requests bring along.
    pub overrides: Overrides,
    /// What the rules counted.
    pub meters: Arc<Meters>,
    /// What the service counted.
    pub totals: Totals,
    /// The refused values, if there is a page to show them.
    pub refusals: OnceLock<Refusals>,
    /// How it answers.
    pub manner: Manner,
    /// What its limiters are made with.
    pub maker: Maker,
}

/// Counters of the whole service.
#[derive(Debug, Default)]
pub struct Totals {
    /// Requests that were answered.
    pub requests: AtomicU64,
    /// Requests that could not be answered.
    pub errors: AtomicU64,
    /// Requests to domains that are not configured.
    pub unknown_domains: AtomicU64,
    /// Requests that passed only because all requests pass.
    pub shadowed: AtomicU64,
    /// Descriptors that could not be counted because the store was away.
    pub store_away: AtomicU64,
    /// When that was logged last, in seconds since 1970.
    outage_logged: AtomicU64,
    /// Configurations that were loaded.
    pub loads: AtomicU64,
    /// Configurations that were refused.
    pub load_errors: AtomicU64,
    /// What is wrong with the files as they are now; the rules are those of before.
    pub problems: AtomicU64,
    /// Refused requests by reason, in the order of [`Reason::ALL`].
    pub refused: [AtomicU64; Reason::ALL.len()],
}

impl Service {
    /// Creates a service with these rules.
    pub fn new(rules: Rules, meters: Arc<Meters>, manner: Manner, maker: Maker) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules),
            overrides: Overrides::default(),
            meters,
            totals: Totals::default(),
            refusals: OnceLock::new(),
            manner,
            maker,
        }
    }
}

/// How often an outage is logged.
const LOG_EACH: u64 = 10;

impl Totals {
    /// Counts a descriptor for which the store was away, and logs it now and then.
    pub fn note_outage(&self, now: Duration) {
        add(&self.store_away, 1);
        let last = self.outage_logged.load(Ordering::Relaxed);
        let is_due = now.as_secs() >= last + LOG_EACH;
        if is_due
            && self.outage_logged.compare_exchange(last, now.as_secs(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            tracing::error!(
                "the store is away: requests pass, wait or are refused, as the `outage` of their rule says"
            );
        }
    }
}
