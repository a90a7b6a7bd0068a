//! Counts what the limiter's positions do not show: refusals, and the durations of waits.
//!
//! Refusals are counted here and passed to the recorder on request: an attacker can cause refusals at will, so a
//! refusal only adds to a word that few threads share, and calls no recorder. A wait is recorded when it ends: compared
//! with the wait, which takes about a millisecond, the record is cheap.

use super::class_counts::{ClassTallies, Counted};
use super::names::{self, METADATA, OTHERS, RESULTS};
use crate::error::{Bound, Refused};
use crate::name::Name;
use crate::observe::Verdict;
use crate::observe::{ClassLabel, Ending, ObservedWait, Observer, QueueInfo, REASONS, Reason};
use crossbeam_utils::CachePadded;
use metrics::{Key, KeyName, Label, SharedString};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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
    /// How many of these calls each of the first [`QUOTAS`] quotas would have refused; the last word counts for all
    /// others.
    quotas_would_refuse: [AtomicU64; QUOTAS + 1],
    /// The series of waits that calls would have had.
    would_wait: Key,
    /// The series of waits that were granted, refused, and ended by the caller.
    waits: [Key; 3],
    pub(super) classes: ClassTallies,
    /// For a keyed limiter, which may have different quotas for each key: the quotas that have refused, in the order of
    /// their first refusal.
    labels: Option<[OnceLock<QuotaLabel>; QUOTAS]>,
}

/// A quota of the keys of a keyed limiter: its name, or its index if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuotaLabel {
    Name(Name),
    Index(usize),
}

impl QuotaLabel {
    fn of(index: usize, name: Name) -> Self {
        if name == Name::NONE { Self::Index(index) } else { Self::Name(name) }
    }
}

#[derive(Debug, Default)]
struct Stripe {
    calls: [AtomicU64; REASONS.len()],
    /// Calls refused by each of the first [`QUOTAS`] quotas; the last word counts for all others. By index, or of a keyed
    /// limiter by [`labels`](Tally::labels).
    quotas: [AtomicU64; QUOTAS + 1],
    /// Tokens of refused calls that might have been granted at another time.
    tokens: AtomicU64,
}

impl Tally {
    /// `is_keyed`: quotas are distinguished by name, since an index may stand for a different quota of each key.
    pub(super) fn new(name: SharedString, is_keyed: bool) -> Self {
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
            labels: is_keyed.then(Default::default),
        }
    }

    fn count_refusal(&self, class: Option<&ClassLabel>, cost: u64, refusal: &Refused) {
        if let Some(class) = class {
            self.counted(class).counts.count_refusal();
        }
        let reason = Reason::of(refusal);
        let stripe = &self.stripes[own_number() % STRIPES];
        stripe.calls[reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(Bound::Quota(quota)) = refusal.by() {
            let position = match &self.labels {
                Some(labels) => position(labels, QuotaLabel::of(quota, refusal.name())),
                None => quota.min(QUOTAS),
            };
            stripe.quotas[position].fetch_add(1, Ordering::Relaxed);
        }
        if reason.is_for_now() {
            stripe.tokens.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// A class, and its counts.
    pub(super) fn counted<'a>(&self, class: &'a ClassLabel) -> &'a Counted {
        let counted = class.observed.get_or_init(|| Box::new(Counted::new(self.classes.of(&self.name, &class.path))));
        counted.downcast_ref().expect("a limiter has one meter, which alone sets this")
    }

    /// Returns how many calls were refused, by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.iter().map(|reason| (*reason, self.sum(|stripe| &stripe.calls[*reason as usize])))
    }

    /// Returns how many calls were refused by the quota with this index; from [`QUOTAS`] on, by all further quotas.
    pub(super) fn refused_by(&self, quota: usize) -> u64 {
        self.sum(|stripe| &stripe.quotas[quota.min(QUOTAS)])
    }

    /// For a keyed limiter, returns how many calls were refused by each quota that has refused, by name or index; the
    /// last number is for all other quotas.
    #[cfg_attr(not(feature = "keyed"), allow(dead_code, reason = "meters of keyed limiters publish it"))]
    pub(super) fn refused_by_label(&self) -> impl Iterator<Item = (SharedString, u64)> {
        let known = self.labels.iter().flatten().map_while(OnceLock::get);
        // All refusals are by the only quota, which has no name.
        let is_only = known.clone().eq([&QuotaLabel::Index(0)]);
        let labels = known.filter(move |_| !is_only).map(|label| match label {
            QuotaLabel::Name(name) => SharedString::const_str(name.text().unwrap_or_default()),
            QuotaLabel::Index(index) => index.to_string().into(),
        });
        let others = (SharedString::const_str(OTHERS), self.refused_by(QUOTAS));
        let labels = labels.enumerate().map(|(position, label)| (label, self.refused_by(position)));
        labels.chain(Some(others).filter(|(_, calls)| *calls > 0))
    }

    /// Returns how many calls would have been refused but for a dry run, by the reasons that there are.
    pub(super) fn would_refuse(&self) -> impl Iterator<Item = (Reason, u64)> {
        let reasons =
            [Reason::Quota, Reason::Queue, Reason::Pause, Reason::QueueFull, Reason::TooLate, Reason::TooLarge];
        reasons.into_iter().map(|reason| (reason, self.would_refuse[reason as usize].load(Ordering::Relaxed)))
    }

    /// Returns how many calls the quota with this index would have refused but for a dry run; from [`QUOTAS`] on, all
    /// further quotas.
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
                // If the wait is unknown, there is no number to record.
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
        let counts = class.map(|class| self.counted(class).counts.waits());
        for waits in [Some(&self.waits), counts].into_iter().flatten() {
            let key = &waits[result];
            metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(waited);
        }
    }
}

/// The position of a quota among `labels`, where it is entered if there is space; [`QUOTAS`] if there is none.
fn position(labels: &[OnceLock<QuotaLabel>; QUOTAS], label: QuotaLabel) -> usize {
    labels.iter().position(|known| *known.get_or_init(|| label) == label).unwrap_or(QUOTAS)
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
