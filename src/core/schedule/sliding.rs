//! Sliding quotas: their grants are put into the [window](crate::core::window), and their heads follow it.

use super::{Mint, Schedule};
use crate::core::rovers::ahead;
use crate::core::window::Window;

impl Schedule {
    pub(crate) fn is_sliding(&self) -> bool {
        self.window().is_some()
    }

    /// The window of a sliding quota.
    #[inline]
    pub(super) fn window(&self) -> Option<&Window> {
        if let Mint::Sliding(window) = &self.mint { Some(window) } else { None }
    }

    /// How many tokens up to `claimed` are not in the window yet. They were granted by the instant up to which it is
    /// advanced.
    pub(super) fn unseen(&self, window: &Window, claimed: u64) -> i64 {
        let seen = self.head.wrapping_sub(self.burst).wrapping_add(window.used);
        ahead(claimed, seen)
    }

    /// Adds all grants up to `claimed` to the window, and advances it to `now`.
    pub(crate) fn slide(&mut self, claimed: u64, now: u64) {
        let unseen = self.window().map_or(0, |window| self.unseen(window, claimed));
        let Mint::Sliding(window) = &mut self.mint else { return };
        if unseen >= 0 {
            window.grant(unseen.unsigned_abs());
        } else {
            // The quota has become a sliding one, or comes from a dry run, which has granted other claims.
            window.retract(unseen.unsigned_abs());
        }
        window.advance(now);
        self.head = claimed.wrapping_add(self.burst).wrapping_sub(window.used);
    }
}
