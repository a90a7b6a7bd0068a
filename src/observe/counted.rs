//! Reports to a meter.

use super::Ending;
use super::refusal::Reason;
use crate::core::Core;
use crate::error::Refused;
use crate::metrics::{Outcome, Tally};
use std::sync::{Arc, OnceLock};

/// The observers of a limiter. Clones share one set: all live entries of a keyed limiter have the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    /// Set once, when a meter is made for the limiter.
    tally: Arc<OnceLock<Arc<Tally>>>,
}

impl Observers {
    /// Makes `tally` count from now on. If the limiter has a tally already, returns that one.
    pub(crate) fn admit(&self, tally: Arc<Tally>) -> Result<(), Arc<Tally>> {
        self.tally.set(tally).map_err(|_| Arc::clone(self.tally().expect("`set` fails only if a tally is set")))
    }

    pub(crate) fn tally(&self) -> Option<&Arc<Tally>> {
        self.tally.get()
    }

    pub(super) fn counts(&self) -> bool {
        self.tally().is_some()
    }

    pub(super) fn count(&self, cost: u64, refusal: Refused) {
        if let Some(tally) = self.tally() {
            tally.count_refusal(cost, Reason::of(&refusal));
        }
    }
}

/// A wait that is counted. `since` is its beginning in the limiter's nanoseconds.
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
