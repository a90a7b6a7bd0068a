//! The in-flight cap: releases raise the ceiling.

use super::State;
use crate::core::rovers::Rovers;
use crate::core::wakes::ReleaseMark;

/// The in-flight cap. Its position is `Supply::ceiling`.
#[derive(Debug)]
pub(crate) struct Cap {
    /// The cap: the most tokens in flight.
    pub(crate) tokens: u64,
    /// The last reading of `Rovers::released`.
    pub(crate) seen: u64,
    /// True while releases report to this limiter, which is whenever a claim waits, in the queue or aside. Parts that
    /// wait aside count because a part for which the cap has no space is held at the front until its claim is granted,
    /// and the queue must make this decision by the present state of the cap.
    pub(crate) watching: bool,
}

impl Cap {
    /// The value that the atomic `Rovers::released` has while it holds no release that this state has not read.
    pub(super) fn word(&self) -> u64 {
        self.seen | u64::from(self.watching)
    }
}

impl State {
    /// Reads how many tokens were released, raises the ceiling by that number, and returns it. While a claim waits,
    /// also asks every later release to report, so that each takes effect at its own instant.
    ///
    /// While a claim waits, this counts only releases that had been made before the caller read the time, by
    /// `release_mark`. Returns `None` if there are only later releases: they may have been made after that reading, so
    /// the caller must read the time anew.
    #[inline]
    pub(super) fn refresh_ceiling(&mut self, rovers: &Rovers, release_mark: &mut ReleaseMark) -> Option<u64> {
        let Some(cap) = &mut self.cap else { return Some(0) };
        let (watch, seen) = (self.queue.has_claims(), cap.seen);
        let mut released = if watch && !cap.watching {
            rovers.watch_releases(&mut cap.seen)
        } else {
            if cap.watching && !watch {
                rovers.ignore_releases();
            }
            rovers.released_since(&mut cap.seen)
        };
        cap.watching = watch;
        if watch && released > 0 {
            let count = std::mem::replace(&mut cap.seen, seen);
            released = release_mark.of(rovers, released, count);
            if released == 0 {
                release_mark.note(rovers, count);
                return None;
            }
            cap.seen = seen.wrapping_add(released << 1);
        }
        self.supply.raise_ceiling(released);
        Some(released)
    }
}
