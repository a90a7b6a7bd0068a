//! The in-flight cap: releases raise the ceiling.

use super::State;
use crate::core::rovers::Rovers;

/// The in-flight cap. Its position is `Supply::ceiling`.
#[derive(Debug)]
pub(crate) struct Cap {
    /// The cap: the most tokens in flight.
    pub(crate) tokens: u64,
    /// The last reading of `Rovers::released`.
    pub(crate) seen: u64,
    /// True while releases take the lock, which is whenever a claim waits, joint claims too: for one for which the cap has
    /// no space, the limiter is held until its grant, and this is decided by the present state of the cap.
    pub(crate) watching: bool,
}

impl Cap {
    /// The value that the atomic `Rovers::released` has while it holds no release that this state has not read.
    pub(super) fn word(&self) -> u64 {
        self.seen | u64::from(self.watching)
    }
}

impl State {
    /// Raises the ceiling by the tokens that were released without the lock, and returns their number. From when a claim
    /// waits, releases take the lock, so that each takes effect at its own instant.
    #[inline]
    pub(super) fn refresh_ceiling(&mut self, rovers: &Rovers) -> u64 {
        let Some(cap) = &mut self.cap else { return 0 };
        let watch = self.queue.has_claims();
        let released = if watch && !cap.watching {
            rovers.watch_releases(&mut cap.seen)
        } else {
            if cap.watching && !watch {
                rovers.ignore_releases();
            }
            rovers.released_since(&mut cap.seen)
        };
        cap.watching = watch;
        self.supply.raise_ceiling(released);
        released
    }

    /// Releases `tokens` from the cap at the instant up to which the queue has been served.
    pub(super) fn release_now(&mut self, rovers: &Rovers, tokens: u64) {
        if let Some(cap) = &mut self.cap {
            rovers.count_release(tokens);
            cap.seen = cap.seen.wrapping_add(tokens << 1);
            self.supply.raise_ceiling(tokens);
        }
    }
}
