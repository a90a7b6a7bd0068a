//! Reports with at least one of the two features: to a meter of the limiter, and to the thread's subscriber.

#[cfg_attr(feature = "metrics", path = "counted.rs")]
#[cfg_attr(not(feature = "metrics"), path = "uncounted.rs")]
mod count;
#[path = "refusal.rs"]
mod refusal;
#[cfg_attr(feature = "tracing", path = "traced.rs")]
#[cfg_attr(not(feature = "tracing"), path = "untraced.rs")]
mod trace;

use super::QueueInfo;
use crate::core::Core;
use crate::error::{ConsumeError, Refused};
pub(crate) use count::Observers;
#[cfg(feature = "metrics")]
pub(crate) use refusal::{REASONS, Reason};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Observers {
    /// Reports that a call for `cost` tokens was refused.
    #[inline]
    pub(crate) fn refused(&self, cost: u64, refusal: impl Into<Refused>) {
        if self.counts() || trace::records_refusals() {
            self.report(cost, refusal.into());
        }
    }

    #[inline(never)]
    fn report(&self, cost: u64, refusal: Refused) {
        self.count(cost, refusal);
        if trace::records_refusals() {
            quietly(|| trace::refused(cost, refusal));
        }
    }
}

/// A claim's record of its wait, from entering the queue to the end of the wait, if there is an observer.
#[derive(Debug, Default)]
pub(crate) struct WaitRecord {
    count: Option<count::Wait>,
    trace: Option<trace::Wait>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "only spans report all of it"))]
enum Ending {
    Granted,
    Refused {
        cost: u64,
        refusal: Refused,
    },
    /// The caller gave up.
    Left,
}

impl WaitRecord {
    /// True if an observer may want to know how long a claim will wait. Calls no subscriber, so it is safe under a
    /// lock.
    pub(crate) fn is_curious() -> bool {
        trace::records_waits()
    }

    /// Records that a claim of `cost` waits in the queue of `core`.
    pub(crate) fn begin(&mut self, core: &Core, cost: u64, queue_info: QueueInfo) {
        self.count = count::Wait::begin(core.observers(), queue_info.since);
        self.trace = quietly(|| trace::Wait::begin(cost, queue_info)).flatten();
    }

    /// True if an observer was told of the wait, and not yet of its end.
    pub(crate) fn is_some(&self) -> bool {
        self.count.is_some() || self.trace.is_some()
    }

    /// Records the result of the claim, at once or after a wait.
    #[inline]
    pub(crate) fn end(&mut self, core: &Core, cost: u64, answer: Result<(), ConsumeError>) {
        match answer {
            Ok(()) => self.report(core, Ending::Granted),
            Err(error) if !self.is_some() => core.observers().refused(cost, error),
            Err(error) => {
                core.observers().count(cost, error.into());
                self.report(core, Ending::Refused { cost, refusal: error.into() });
            }
        }
    }

    /// Records that the claim was dropped, after it has left the queue.
    pub(crate) fn cancel(&mut self, core: &Core) {
        self.report(core, Ending::Left);
    }

    fn report(&mut self, core: &Core, ending: Ending) {
        // Two separate calls: a panic in one observer must not affect the other.
        if let Some(count) = self.count.take() {
            quietly(|| count.end(core, ending));
        }
        if let Some(trace) = self.trace.take() {
            quietly(|| trace.end(ending));
        }
    }
}

/// Runs foreign code, and catches its panics where a panic would harm the limiter or other callers.
fn quietly<T>(tell: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(tell)).map_err(std::mem::forget).ok()
}
