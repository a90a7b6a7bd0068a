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

    pub(super) fn window_mut(&mut self) -> Option<&mut Window> {
        if let Mint::Sliding(window) = &mut self.mint { Some(window) } else { None }
    }

    /// How many tokens up to `claimed` are not in the window yet. They were granted by the instant up to which it is
    /// advanced.
    pub(super) fn unseen(&self, window: &Window, claimed: u64) -> i64 {
        let seen = self.head.wrapping_sub(self.burst).wrapping_add(window.used);
        ahead(claimed, seen)
    }

    /// Adds all grants up to `claimed` to the window.
    pub(super) fn see(&mut self, claimed: u64) {
        let unseen = self.window().map_or(0, |window| self.unseen(window, claimed));
        let full = claimed.wrapping_add(self.burst);
        if let Mint::Sliding(window) = &mut self.mint {
            if unseen >= 0 {
                window.grant(unseen.unsigned_abs());
            } else {
                // After a dry run: claims that the simulation has granted and the limiter has not.
                window.retract(unseen.unsigned_abs());
            }
            self.head = full.wrapping_sub(window.used);
        }
    }

    /// Adds all grants up to `claimed` to the window, and advances it to `now`.
    pub(crate) fn slide(&mut self, claimed: u64, now: u64) {
        self.see(claimed);
        let back = self.window_mut().map_or(0, |window| window.advance(now));
        self.head = self.head.wrapping_add(back);
    }

    /// Returns `n` tokens to a sliding quota.
    pub(super) fn free(&mut self, n: u64, claimed: u64) {
        self.see(claimed);
        let freed = self.window_mut().map_or(0, |window| window.free(n));
        self.head = self.head.wrapping_add(freed);
    }
}
