//! What a meter is told.

use super::{Ending, Refusal};
use crate::core::Core;
use crate::metrics::{Outcome, Tally};
use std::sync::{Arc, OnceLock};

/// Those who want to know about a limiter. Clones share it: all seats of a keyed limiter have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    /// Set once, when a meter is made for the limiter.
    tally: Arc<OnceLock<Arc<Tally>>>,
}

impl Observers {
    /// Has `tally` count from now on; or hands back the one that does.
    pub(crate) fn admit(&self, tally: Arc<Tally>) -> Result<(), Arc<Tally>> {
        self.tally.set(tally).map_err(|_| Arc::clone(self.tally().expect("somebody was faster")))
    }

    pub(crate) fn tally(&self) -> Option<&Arc<Tally>> {
        self.tally.get()
    }

    pub(super) fn counts(&self) -> bool {
        self.tally().is_some()
    }

    pub(super) fn count(&self, cost: u64, refusal: Refusal) {
        if let Some(tally) = self.tally() {
            tally.count_refusal(cost, refusal.reason());
        }
    }
}

/// A wait that is counted: since when, in the limiter's nanoseconds.
#[derive(Debug)]
pub(super) struct Wait {
    since: u64,
}

impl Wait {
    pub(super) fn begin(observers: &Observers, since: u64) -> Option<Self> {
        observers.tally().map(|_| Self { since })
    }

    pub(super) fn end(self, core: &Core, ending: Ending) {
        let Some(tally) = core.observers().tally() else { return };
        let outcome = match ending {
            Ending::Granted => Outcome::Allowed,
            Ending::Refused { .. } => Outcome::Denied,
            Ending::Left => Outcome::Left,
        };
        tally.record_wait(core.time.now().saturating_sub(self.since), outcome);
    }
}
