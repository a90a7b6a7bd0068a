//! Counts what the limiter's positions do not show: refusals, and the durations of waits.
//!
//! Refusals are counted here and passed to the recorder on request: a refusal, which an attacker can cause at will, is
//! then an addition to a word of the thread's own and calls no recorder. A wait is recorded when it ends; it has taken
//! about a millisecond anyway.

use super::class_counts::{ClassCounts, ClassTallies};
use super::names::{self, METADATA, RESULTS};
use crate::error::{Bound, Refused};
use crate::observe::Verdict;
use crate::observe::{ClassLabel, Ending, ObservedWait, Observer, QueueInfo, REASONS, Reason};
use crossbeam_utils::CachePadded;
use metrics::{Key, KeyName, Label, SharedString};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Refusals are counted separately for the first quotas of a limiter, and together for all quotas after them.
pub(super) const QUOTAS: usize = 8;

/// This many threads can be refused without writing to the same cache line.
const STRIPES: usize = 8;

/// The counts of one limiter.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(super) name: SharedString,
    stripes: [CachePadded<Stripe>; STRIPES],
    /// Calls that would have been refused but for a dry run, by reason.
    would_refuse: [AtomicU64; REASONS.len()],
    /// The part of them that each of the first [`QUOTAS`] quotas would have refused, and all others together.
    quotas_would_refuse: [AtomicU64; QUOTAS + 1],
    /// The series of waits that calls would have had.
    would_wait: Key,
    /// The series of waits that were granted, refused, and ended by the caller.
    waits: [Key; 3],
    pub(super) classes: ClassTallies,
}

#[derive(Debug, Default)]
struct Stripe {
    calls: [AtomicU64; REASONS.len()],
    /// Calls refused by each of the first [`QUOTAS`] quotas; the last word counts for all others.
    quotas: [AtomicU64; QUOTAS + 1],
    /// Tokens of refused calls that might have been granted at another time.
    tokens: AtomicU64,
}

impl Tally {
    pub(super) fn new(name: SharedString) -> Self {
        let waits = RESULTS.map(|result| {
            let labels = vec![Label::new("key", name.clone()), Label::new("result", result)];
            Key::from_parts(KeyName::from_const_str(names::DURATION), labels)
        });
        let would_wait = Key::from_parts(names::WOULD_WAIT, vec![Label::new("key", name.clone())]);
        Self {
            name,
            stripes: Default::default(),
            would_refuse: Default::default(),
            quotas_would_refuse: Default::default(),
            would_wait,
            waits,
            classes: ClassTallies::default(),
        }
    }

    fn count_refusal(&self, class: Option<&ClassLabel>, cost: u64, refusal: &Refused) {
        if let Some(class) = class {
            self.counts_of(class).count_refusal();
        }
        let reason = Reason::of(refusal);
        let stripe = &self.stripes[own_number() % STRIPES];
        stripe.calls[reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(Bound::Quota(quota)) = refusal.by() {
            stripe.quotas[quota.min(QUOTAS)].fetch_add(1, Ordering::Relaxed);
        }
        if reason.is_for_now() {
            stripe.tokens.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// What is counted of a class.
    pub(super) fn counts_of<'a>(&self, class: &'a ClassLabel) -> &'a ClassCounts {
        class.counts.get_or_init(|| self.classes.of(&self.name, &class.path))
    }

    /// Returns how many calls were refused, by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.iter().map(|reason| (*reason, self.sum(|stripe| &stripe.calls[*reason as usize])))
    }

    /// Returns how many calls were refused by the quota with this index; from [`QUOTAS`] on, by all further quotas.
    pub(super) fn refused_by(&self, quota: usize) -> u64 {
        self.sum(|stripe| &stripe.quotas[quota.min(QUOTAS)])
    }

    /// Returns how many calls would have been refused but for a dry run, by the reasons that there are.
    pub(super) fn would_refuse(&self) -> impl Iterator<Item = (Reason, u64)> {
        let reasons =
            [Reason::Quota, Reason::Queue, Reason::Pause, Reason::QueueFull, Reason::TooLate, Reason::TooLarge];
        reasons.into_iter().map(|reason| (reason, self.would_refuse[reason as usize].load(Ordering::Relaxed)))
    }

    /// The same of the quota with this index; from [`QUOTAS`] on, of all further quotas.
    pub(super) fn would_be_refused_by(&self, quota: usize) -> u64 {
        self.quotas_would_refuse[quota.min(QUOTAS)].load(Ordering::Relaxed)
    }

    /// Returns how many tokens the refused calls asked for.
    pub(super) fn refused_tokens(&self) -> u64 {
        self.sum(|stripe| &stripe.tokens)
    }

    fn sum(&self, word: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(word(stripe).load(Ordering::Relaxed)))
    }
}

impl Observer for Arc<Tally> {
    fn name(&self) -> &str {
        &self.name
    }

    fn records_refusals(&self) -> bool {
        true
    }

    fn refused(&self, class: Option<&ClassLabel>, cost: u64, refusal: Refused) {
        self.count_refusal(class, cost, &refusal);
    }

    fn would(&self, _cost: u64, verdict: Verdict) {
        match verdict {
            Verdict::Refused { reason, by } => {
                self.would_refuse[reason as usize].fetch_add(1, Ordering::Relaxed);
                if let Bound::Quota(quota) = by {
                    self.quotas_would_refuse[quota.min(QUOTAS)].fetch_add(1, Ordering::Relaxed);
                }
            }
            Verdict::AtOnce { .. } | Verdict::Waits { .. } => {
                // Where no clock can tell, there is no number to record.
                let Some(wait) = verdict.wait() else { return };
                metrics::with_recorder(|recorder| recorder.register_histogram(&self.would_wait, &METADATA))
                    .record(wait);
            }
        }
    }

    fn wait(&self, _class: Option<&ClassLabel>, _cost: u64, _queue_info: QueueInfo) -> Option<Arc<dyn ObservedWait>> {
        Some(Arc::<Tally>::clone(self))
    }
}

/// All waits share the counts, so the record of one allocates nothing.
impl ObservedWait for Tally {
    /// Calls user code: the clock and the recorder.
    fn end(&self, class: Option<&ClassLabel>, lasted: &dyn Fn() -> u64, ending: Ending) {
        let result = match ending {
            Ending::Granted => 0,
            Ending::Refused { cost, refusal } => {
                self.count_refusal(class, cost, &refusal);
                1
            }
            Ending::Left => 2,
        };
        let waited = Duration::from_nanos(lasted());
        let counts = class.map(|class| self.counts_of(class));
        for waits in [Some(&self.waits), counts.map(ClassCounts::waits)].into_iter().flatten() {
            let key = &waits[result];
            metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(waited);
        }
    }
}

/// Returns the number of this thread. Threads are numbered from 0 in the order of their first refusal.
fn own_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(own));
        own
    })
}
