//! What the state looks like from outside.

use super::{MOST_SPAN, State, Totals};
use crate::rovers::{Rovers, ahead};
use crate::vigil::{Outlook, Vigil};
use std::sync::Arc;

impl State {
    /// Of the quota of this index, if it has one.
    pub(crate) fn name(&self, index: usize) -> Option<&Arc<str>> {
        self.rare.as_ref()?.names.get(index)?.as_ref()
    }

    /// What `try_acquire` could have now.
    pub(crate) fn available(&self, rovers: &Rovers) -> u64 {
        if self.closed || self.supply.is_paused() || !self.line.is_empty() {
            return 0;
        }
        ahead(self.supply.limit(), rovers.tail()).max(0) as u64
    }

    /// By how much claims overrun the tokens.
    pub(crate) fn deficiency(&self, rovers: &Rovers) -> u64 {
        let claims = rovers.tail().wrapping_sub(self.totals.holes);
        ahead(claims.wrapping_add(self.line.part_tokens()), self.supply.limit()).max(0) as u64
    }

    /// Tokens in flight, and the cap on them.
    pub(crate) fn in_flight(&self, rovers: &Rovers) -> Option<(u64, u64)> {
        let (cap, ceiling) = (self.cap.as_ref()?.tokens, self.supply.ceiling()?);
        let claims = rovers.tail().wrapping_sub(self.totals.holes).wrapping_sub(self.line.tokens());
        // A line that is held reads its releases late; they have landed all the same.
        let unread = self.cap.as_ref().map_or(0, |cap| rovers.released_since(&mut cap.seen.clone()));
        let flying = ahead(claims, ceiling.wrapping_sub(cap).wrapping_add(unread));
        Some((flying.max(0) as u64, cap))
    }

    /// Tokens granted since the beginning, those charged afterwards included, those refunded too.
    pub(crate) fn granted(&self, rovers: &Rovers) -> u64 {
        let Totals { origin, skipped, .. } = self.totals;
        rovers.tail().wrapping_sub(origin).wrapping_sub(skipped).wrapping_sub(self.line.tokens())
    }

    /// What lies before a claim of `cost` made now.
    pub(crate) fn outlook(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Outlook {
        let is_near = self.line.is_empty() || self.supply.is_straight();
        let estimate = if is_near && Vigil::is_curious() { self.estimate(rovers, cost, now) } else { None };
        Outlook { since: now, ahead: self.line.len(), estimate }
    }

    /// How many more tokens may be claimed before the rovers are too far apart to be compared.
    pub(super) fn room(&self, rovers: &Rovers) -> u64 {
        (MOST_SPAN - ahead(rovers.tail(), self.supply.limit())).max(0) as u64
    }
}
