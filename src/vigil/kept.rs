//! Somebody may be told: a meter that was made for the limiter, or the thread's subscriber.

#[cfg_attr(feature = "metrics", path = "counted.rs")]
#[cfg_attr(not(feature = "metrics"), path = "uncounted.rs")]
mod count;
#[path = "refusal.rs"]
mod refusal;
#[cfg_attr(feature = "tracing", path = "traced.rs")]
#[cfg_attr(not(feature = "tracing"), path = "untraced.rs")]
mod trace;

use super::Outlook;
use crate::error::ConsumeError;
use crate::shared::Shared;
pub(crate) use count::Audience;
#[cfg(feature = "metrics")]
pub(crate) use refusal::REASONS;
pub(crate) use refusal::{Reason, Refusal};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Audience {
    /// Somebody was turned away who asked for `cost` tokens.
    #[cold]
    pub(crate) fn refused(&self, cost: u64, refusal: impl Into<Refusal>) {
        let refusal = refusal.into();
        self.count(cost, refusal);
        quietly(|| trace::refused(cost, refusal));
    }
}

/// A claim's memory of its wait, from the line to its end, if there is somebody to tell.
///
/// In a box, so that futures do not grow by what most of them never need.
#[derive(Debug, Default)]
pub(crate) struct Vigil(Option<Box<Wait>>);

#[derive(Debug)]
struct Wait {
    count: Option<count::Wait>,
    trace: Option<trace::Wait>,
}

/// What became of a wait.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Granted,
    Refused {
        cost: u64,
        refusal: Refusal,
    },
    /// Its caller gave up.
    Left,
}

impl Vigil {
    /// Whether it is worth finding out what lies before a claim. Asks no subscriber.
    pub(crate) fn is_curious() -> bool {
        trace::is_on()
    }

    /// A claim of `cost` stands in the line of `shared`, `since` then.
    pub(crate) fn begin(&mut self, shared: &Shared, cost: u64, outlook: Option<Outlook>, since: impl FnOnce() -> u64) {
        quietly(|| {
            let count = count::Wait::begin(&shared.audience, since);
            let trace = outlook.and_then(|outlook| trace::Wait::begin(cost, outlook));
            if count.is_some() || trace.is_some() {
                self.0 = Some(Box::new(Wait { count, trace }));
            }
        });
    }

    /// The claim was answered, at once or after it had waited.
    #[inline]
    pub(crate) fn end(&mut self, shared: &Shared, cost: u64, answer: Result<(), ConsumeError>) {
        match answer {
            Ok(()) => self.tell(shared, Ending::Granted),
            Err(error) if self.0.is_none() => shared.audience.refused(cost, error),
            Err(error) => {
                shared.audience.count(cost, error.into());
                self.tell(shared, Ending::Refused { cost, refusal: error.into() });
            }
        }
    }

    /// The claim is dropped, and has left the line if it stood there.
    pub(crate) fn leave(&mut self, shared: &Shared) {
        self.tell(shared, Ending::Left);
    }

    fn tell(&mut self, shared: &Shared, ending: Ending) {
        if let Some(wait) = self.0.take() {
            let Wait { count, trace } = *wait;
            // Each on its own: what the one does is not the other's business.
            quietly(|| _ = count.map(|count| count.end(shared, ending)));
            quietly(|| _ = trace.map(|trace| trace.end(ending)));
        }
    }
}

/// Runs code that is not ours, at a place where a panic would be somebody else's loss.
fn quietly(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell)).map_err(std::mem::forget);
}
