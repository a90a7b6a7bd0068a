//! The pauses after refusals that name no time.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The pauses double up to this, unless the first one is longer.
const LONGEST: Duration = Duration::from_secs(60);
/// The targets that are remembered. Beyond that number, all of them begin with the first pause again.
const MOST_TARGETS: usize = 1_024;

/// The latest pause of each target that refuses. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    pauses: Arc<Mutex<HashMap<u64, Pause>>>,
    /// Makes the numbers of the targets.
    pub(super) hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    began: Instant,
    length: Duration,
}

impl Backoff {
    /// Returns the pause after one more refusal: `first`, and twice the latest one while refusals go on, but `at_most` so
    /// long. Responses to requests that were on their way when a pause began do not lengthen it.
    pub(super) fn after_refusal(&self, target: u64, first: Duration, at_most: Duration) -> Duration {
        let now = Instant::now();
        let mut pauses = self.lock();
        let length = match pauses.get(&target) {
            Some(latest) if now.duration_since(latest.began) < latest.length => {
                return latest.length - now.duration_since(latest.began);
            }
            Some(latest) => latest.length.saturating_mul(2).min(LONGEST.max(first)),
            None => first,
        }
        .min(at_most);
        if pauses.len() == MOST_TARGETS && !pauses.contains_key(&target) {
            pauses.clear();
        }
        pauses.insert(target, Pause { began: now, length });
        length
    }

    /// Begins with the first pause again.
    pub(super) fn reset(&self, target: u64) {
        self.lock().remove(&target);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Pause>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
