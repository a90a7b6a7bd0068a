//! A claim's record of its wait, for the observers of the limiter.

use super::{ClassLabel, Ending, OBSERVED, Observed, ObservedWait, Observer, Observers, QueueInfo, refused_by};
use crate::core::quietly;
use crate::error::ConsumeError;
use std::sync::Arc;

/// A claim's record of its wait, from entering the queue to the end of the wait. Empty if no observer wants it.
///
/// In builds without observers the array is empty and takes no space at all.
#[derive(Debug, Default)]
pub(crate) struct WaitRecord([Option<Wait>; OBSERVED as usize]);

#[derive(Debug)]
struct Wait {
    /// The beginning of the wait, in the limiter's nanoseconds.
    since: u64,
    /// The record of each observer, in the order of [`Observers::each`].
    records: [Option<Arc<dyn ObservedWait>>; 2],
}

impl WaitRecord {
    /// Records that a claim of `cost` waits in the queue.
    pub(crate) fn begin(
        &mut self,
        observers: &Observers,
        class: Option<&ClassLabel>,
        cost: u64,
        queue_info: QueueInfo,
    ) {
        let Some(slot) = self.0.first_mut() else { return };
        let observers = observers.each();
        if observers.iter().all(Option::is_none) {
            return;
        }
        let record = |observer: &dyn Observer| quietly(|| observer.wait(class, cost, queue_info)).flatten();
        let records = observers.map(|observer| observer.and_then(record));
        if records.iter().any(Option::is_some) {
            *slot = Some(Wait { since: queue_info.since, records });
        }
    }

    /// True from the beginning of an observed wait to its end.
    pub(crate) fn is_some(&self) -> bool {
        self.0.first().is_some_and(Option::is_some)
    }

    /// Records the result of the claim, at once or after a wait.
    #[inline]
    pub(crate) fn end(&mut self, observed: Observed<'_>, cost: u64, answer: Result<(), ConsumeError>) {
        match (self.take(), answer) {
            (None, Ok(())) => {}
            (None, Err(error)) => observed.observers.refused_in(observed.class, cost, error),
            (Some(wait), Ok(())) => wait.end(observed, Ending::Granted),
            (Some(wait), Err(error)) => wait.end(observed, Ending::Refused { cost, refusal: error.into() }),
        }
    }

    /// Records that the claim was dropped, after it has left the queue.
    pub(crate) fn cancel(&mut self, observed: Observed<'_>) {
        if let Some(wait) = self.take() {
            wait.end(observed, Ending::Left);
        }
    }

    #[inline]
    fn take(&mut self) -> Option<Wait> {
        self.0.first_mut()?.take()
    }
}

impl Wait {
    fn end(self, observed: Observed<'_>, ending: Ending) {
        let Self { since, records } = self;
        let lasted = || observed.time.now().saturating_sub(since);
        for (observer, record) in observed.observers.each().into_iter().zip(records) {
            // Separate calls: a panic in one observer must not affect the other, and a record must not be dropped while
            // a panic unwinds.
            match (record, ending, observer) {
                (Some(record), ..) => {
                    quietly(|| record.end(observed.class, &lasted, ending));
                    quietly(|| drop(record));
                }
                (None, Ending::Refused { cost, refusal }, Some(observer)) => {
                    refused_by(observer, observed.class, cost, refusal)
                }
                _ => {}
            }
        }
    }
}
