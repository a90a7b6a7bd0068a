//! Observers: they receive a report of each wait and each refusal of a limiter.
//!
//! A limiter can have one observer of its own, its meter (`metrics/`). In builds with the feature `tracing`, the
//! tracing subscriber also observes every limiter (`spans.rs`).
//!
//! A report ends in foreign code, a recorder or a subscriber, which may panic or call this very limiter. So reports
//! are made outside of the lock, when the claim already waits in the queue or has left it for good. Panics of foreign
//! code end here: the panic hook reports them, and no caller loses a place, a token or a wake-up.
//!
//! A grant without waiting calls this module only with the verdict of a dry run.
//!
//! | file | holds |
//! |---|---|
//! | `observe.rs` | the trait `Observer`, and the observers of a limiter |
//! | `wait_record.rs` | a claim's record of its wait |
//! | `class_label.rs` | how observers name a class |
//! | `refusal.rs` | the reason of a refusal |
//! | `spans.rs` | the observer that reports to tracing |
//! | `store_event.rs` | events of the store of a distributed quota |
//! | `verdict.rs` | the verdict of a dry run on a call |
//! | `grant_word.rs` | what a limiter notes about a grant |

mod class_label;
mod grant_word;
mod refusal;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "distributed")]
mod store_event;
mod verdict;
mod wait_record;

use crate::clock::Time;
use crate::core::quietly;
use crate::error::Refused;
use std::fmt::Debug;
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use class_label::ClassLabel;
pub(crate) use grant_word::GrantWord;
pub(crate) use refusal::{REASONS, Reason};
#[cfg(feature = "distributed")]
pub(crate) use store_event::{StoreEvent, report};
pub(crate) use verdict::Verdict;
pub(crate) use wait_record::WaitRecord;

/// Whether this build has any observers. Without them all reports compile to nothing.
pub(crate) const OBSERVED: bool = cfg!(any(feature = "metrics", feature = "tracing"));

/// The observer of all limiters.
#[cfg(feature = "tracing")]
const GLOBAL: Option<&'static dyn Observer> = Some(&spans::Spans);
#[cfg(not(feature = "tracing"))]
const GLOBAL: Option<&'static dyn Observer> = None;

/// Receives reports of waits and refusals. Every method may call foreign code, except those that say otherwise.
pub(crate) trait Observer: Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Whether a refusal reported now would be recorded. Calls no foreign code.
    fn records_refusals(&self) -> bool;

    /// Whether this observer uses [`QueueInfo::estimate`]. Calls no foreign code, because it is called under the
    /// limiter's lock.
    fn uses_estimates(&self) -> bool {
        false
    }

    /// A call for `cost` tokens was refused, and this observer has no record of its wait. `class` is the class in which
    /// it was made.
    fn refused(&self, class: Option<&ClassLabel>, cost: u64, refusal: Refused);

    /// A call for `cost` tokens passed because of a dry run, and would have waited or been refused otherwise.
    fn would(&self, cost: u64, verdict: Verdict);

    /// Something happened to the store of a distributed quota.
    #[cfg(feature = "distributed")]
    fn store_event(&self, _event: &StoreEvent<'_>) {}

    /// A claim of `cost` tokens waits in the queue. Returns `None` if the end of the wait is of no interest.
    fn wait(&self, class: Option<&ClassLabel>, cost: u64, queue_info: QueueInfo) -> Option<Arc<dyn ObservedWait>>;
}

/// An observer's record of one wait.
pub(crate) trait ObservedWait: Debug + Send + Sync {
    /// The wait has ended. `lasted` reads the clock and returns the duration in nanoseconds.
    fn end(&self, class: Option<&ClassLabel>, lasted: &dyn Fn() -> u64, ending: Ending);
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Granted,
    Refused {
        cost: u64,
        refusal: Refused,
    },
    /// The caller gave up.
    Left,
}

/// The state of the queue when a claim enters it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueInfo {
    /// When the claim enters the queue, in the limiter's nanoseconds.
    pub(crate) since: u64,
    /// How many callers are in front of it.
    pub(crate) ahead: u64,
    /// How long it will wait according to the schedule; `None` if no observer asks, or if the answer takes a step per
    /// waiter.
    pub(crate) estimate: Option<Duration>,
}

/// The observers of a limiter. Clones share one set: all live entries of a keyed limiter have the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    /// Set once, when a meter is made for the limiter.
    #[cfg(feature = "metrics")]
    own: Arc<OnceLock<Box<dyn Observer>>>,
}

/// The observers of a limiter, its clock, and the class that a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub(crate) observers: &'a Observers,
    pub(crate) time: &'a Time,
    pub(crate) class: Option<&'a ClassLabel>,
}

impl Observers {
    /// Adds the limiter's own observer. If there is one already, returns the name of that one.
    #[cfg(feature = "metrics")]
    pub(crate) fn admit(&self, observer: Box<dyn Observer>) -> Result<(), String> {
        self.own.set(observer).map_err(|_| self.own.get().map_or_else(String::new, |own| own.name().to_string()))
    }

    /// Whether an observer uses [`QueueInfo::estimate`]. Calls no foreign code, so it is safe under a lock.
    pub(crate) fn use_estimates() -> bool {
        GLOBAL.is_some_and(|observer| observer.uses_estimates())
    }

    /// Reports that a call for `cost` tokens was refused.
    #[inline]
    pub(crate) fn refused(&self, cost: u64, refusal: impl Into<Refused>) {
        self.refused_in(None, cost, refusal);
    }

    /// Reports that a call for `cost` tokens, made in a class, was refused.
    #[inline]
    pub(crate) fn refused_in(&self, class: Option<&ClassLabel>, cost: u64, refusal: impl Into<Refused>) {
        let records = |observer: Option<&dyn Observer>| observer.is_some_and(|observer| observer.records_refusals());
        if OBSERVED && (records(self.own()) || records(GLOBAL)) {
            self.report(class, cost, refusal.into());
        }
    }

    #[inline(never)]
    fn report(&self, class: Option<&ClassLabel>, cost: u64, refusal: Refused) {
        for observer in self.each().into_iter().flatten() {
            refused_by(observer, class, cost, refusal);
        }
    }

    /// Reports what a dry run says about a granted call for `cost` tokens, if the grant's `word` holds a verdict.
    #[inline]
    pub(crate) fn verdict(&self, cost: u64, word: GrantWord) {
        if OBSERVED {
            if let Some(verdict) = word.verdict() {
                self.report_verdict(cost, verdict);
            }
        }
    }

    #[cold]
    fn report_verdict(&self, cost: u64, verdict: Verdict) {
        if verdict.wait() == Some(Duration::ZERO) {
            return;
        }
        for observer in self.each().into_iter().flatten() {
            quietly(|| observer.would(cost, verdict));
        }
    }

    /// The limiter's own observer and the global one.
    fn each(&self) -> [Option<&dyn Observer>; 2] {
        [self.own(), GLOBAL]
    }

    /// The limiter's own observer.
    #[cfg(feature = "metrics")]
    #[inline]
    fn own(&self) -> Option<&dyn Observer> {
        self.own.get().map(|own| &**own)
    }

    #[cfg(not(feature = "metrics"))]
    fn own(&self) -> Option<&dyn Observer> {
        None
    }
}

fn refused_by(observer: &dyn Observer, class: Option<&ClassLabel>, cost: u64, refusal: Refused) {
    if observer.records_refusals() {
        quietly(|| observer.refused(class, cost, refusal));
    }
}
