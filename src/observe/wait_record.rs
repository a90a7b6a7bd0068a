//! Somebody may be told: a meter that was made for the limiter, or the thread's subscriber.

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
use crate::error::ConsumeError;
pub(crate) use count::Observers;
pub(crate) use refusal::Refusal;
#[cfg(feature = "metrics")]
pub(crate) use refusal::{REASONS, Reason};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Observers {
    /// Somebody was turned away who asked for `cost` tokens.
    #[inline]
    pub(crate) fn refused(&self, cost: u64, refusal: impl Into<Refusal>) {
        if self.counts() || trace::hears_refusals() {
            self.tell(cost, refusal.into());
        }
    }

    #[inline(never)]
    fn tell(&self, cost: u64, refusal: Refusal) {
        self.count(cost, refusal);
        if trace::hears_refusals() {
            quietly(|| trace::refused(cost, refusal));
        }
    }
}

/// A claim's memory of its wait, from the line to its end, if there is somebody to tell.
///
/// On the heap, so that futures do not grow by what most of them never need. Nobody shares it; but what an `Arc` does when it
/// is dropped is a call and not inlined, as a box's is, so that the drop of a future that never waited is.
#[derive(Debug, Default)]
pub(crate) struct WaitRecord(Option<Arc<Wait>>);

#[derive(Debug)]
struct Wait {
    count: Option<count::Wait>,
    trace: Option<trace::Wait>,
}

/// What became of a wait.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "only spans tell all of it"))]
enum Ending {
    Granted,
    Refused {
        cost: u64,
        refusal: Refusal,
    },
    /// Its caller gave up.
    Left,
}

impl WaitRecord {
    /// Whether anybody might want to know how long a claim will wait. Asks no subscriber, and so can be asked under a lock.
    pub(crate) fn is_curious() -> bool {
        trace::hears_waits()
    }

    /// A claim of `cost` stands in the line of `core`.
    pub(crate) fn begin(&mut self, core: &Core, cost: u64, queue_info: QueueInfo) {
        let count = count::Wait::begin(core.observers(), queue_info.since);
        let trace = quietly(|| trace::Wait::begin(cost, queue_info)).flatten();
        if count.is_some() || trace.is_some() {
            self.0 = Some(Arc::new(Wait { count, trace }));
        }
    }

    /// The claim was answered, at once or after it had waited.
    #[inline]
    pub(crate) fn end(&mut self, core: &Core, cost: u64, answer: Result<(), ConsumeError>) {
        match answer {
            Ok(()) => self.tell(core, Ending::Granted),
            Err(error) if self.0.is_none() => core.observers().refused(cost, error),
            Err(error) => {
                core.observers().count(cost, error.into());
                self.tell(core, Ending::Refused { cost, refusal: error.into() });
            }
        }
    }

    /// The claim is dropped, and has left the line if it stood there.
    pub(crate) fn leave(&mut self, core: &Core) {
        self.tell(core, Ending::Left);
    }

    fn tell(&mut self, core: &Core, ending: Ending) {
        if let Some(Wait { count, trace }) = self.0.take().and_then(Arc::into_inner) {
            // Each on its own: what the one does is not the other's business.
            quietly(|| count.map(|count| count.end(core, ending)));
            quietly(|| trace.map(|trace| trace.end(ending)));
        }
    }
}

/// Runs code that is not ours, at a place where a panic would be somebody else's loss.
fn quietly<T>(tell: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(tell)).map_err(std::mem::forget).ok()
}
