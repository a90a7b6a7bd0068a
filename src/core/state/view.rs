//! Read access to the state, for callers that report it.

use super::{MAX_SPAN, State, Totals};
use crate::core::classes::ROOT;
use crate::core::rovers::{Rovers, ahead};
use crate::error::Bound;
use crate::name::{Name, QuotaNames};
use crate::observe::{Observers, QueueInfo};
use std::sync::Arc;

impl State {
    /// The name of the quota with this index, if it has one.
    pub(crate) fn name(&self, index: usize) -> Option<&Arc<str>> {
        Some(&self.rare.as_ref()?.names.get(index)?.as_ref()?.0)
    }

    pub(crate) fn name_quotas(&mut self, names: QuotaNames) {
        if !names.is_empty() || self.rare.is_some() {
            self.rare().names = names;
        }
    }

    /// The name of the quota that this bound is, if it is a quota with a name.
    pub(crate) fn quota_name(&self, by: Bound) -> Name {
        self.rare.as_ref().map_or(Name::NONE, |rare| by.name(&rare.names))
    }

    /// The number of tokens that `try_acquire` could get now.
    pub(crate) fn available(&self, rovers: &Rovers) -> u64 {
        if self.closed || self.supply.is_paused() || !self.is_clear() {
            return 0;
        }
        ahead(self.supply.limit(), rovers.tail()).max(0) as u64
    }

    /// The sum of the costs of all claims that wait, joint claims too.
    pub(crate) fn waiting_tokens(&self) -> u64 {
        let Some(fronts) = self.joint() else { return self.costs() };
        let all = u128::from(self.costs()) - u128::from(fronts.in_classes) + fronts.tokens();
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// The number of tokens by which claims exceed the tokens available.
    pub(crate) fn deficiency(&self, rovers: &Rovers) -> u64 {
        ahead(rovers.tail(), self.supply.limit()).max(0) as u64
    }

    /// Tokens in flight, and the cap on them.
    pub(crate) fn in_flight(&self, rovers: &Rovers) -> Option<(u64, u64)> {
        let (cap, ceiling) = (self.cap.as_ref()?.tokens, self.supply.ceiling()?);
        let claims = rovers.tail().wrapping_sub(self.costs());
        // Includes releases that the state has not read yet: while another queue holds the front claim back, they are
        // read late.
        let unread = self.cap.as_ref().map_or(0, |cap| rovers.released_since(&mut cap.seen.clone()));
        let in_flight = ahead(claims, ceiling.wrapping_sub(cap).wrapping_add(unread));
        Some((in_flight.max(0) as u64, cap))
    }

    /// Tokens granted since the limiter was made. Tokens charged afterwards are included, and so are refunded tokens.
    pub(crate) fn granted(&self, rovers: &Rovers) -> u64 {
        let Totals { origin, skipped, .. } = self.totals;
        rovers.tail().wrapping_sub(origin).wrapping_sub(skipped).wrapping_sub(self.costs())
    }

    /// The state of the queue for a new claim of `cost`, as observers receive it.
    pub(crate) fn queue_info(&mut self, rovers: &Rovers, cost: u64, now: u64) -> QueueInfo {
        let is_near = self.classes().is_none() && (self.queue.is_empty() || self.supply.is_straight());
        let estimate =
            if is_near && Observers::use_estimates() { self.estimate(rovers, ROOT, cost, now) } else { None };
        QueueInfo { since: now, ahead: self.queue.len(), estimate }
    }

    /// How many more tokens may be claimed before the rovers are too far apart to be compared.
    #[inline(always)]
    pub(super) fn space_left(&self, rovers: &Rovers) -> u64 {
        (MAX_SPAN - ahead(rovers.tail(), self.supply.limit())).max(0) as u64
    }
}
