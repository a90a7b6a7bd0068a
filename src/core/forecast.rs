//! When a claim behind a first-come, first-served queue is granted, if no caller does anything from now on.
//!
//! Every arrival with a deadline needs this, so the cost must not grow with the queue. The ways to compute it, from the
//! cheapest to the most expensive:
//!
//! 1. The queue is empty, or one continuous quota alone decides ([`Supply::is_straight`]): the answer follows from the
//!    position of the claim alone. Callers look at this first.
//! 2. There are only continuous quotas, with bursts that cannot interfere, or one stepped quota whose steps never
//!    overrun the bucket ([`Supply::scheduled_behind`]): the latest of the instants that the quotas give for this position.
//! 3. Everything else: the queue is served ahead of time, on a copy of the supply. The [`Forecast`] keeps that copy,
//!    and an arrival adds only the claims that came since. A grant at the front does not change the forecast. A
//!    cancellation in the middle, a refund, or a change of the limiter does: then the next estimate serves the whole
//!    queue again.

use crate::core::steps;
use crate::core::supply::Supply;

/// A claim that waits: its number, its cost, and the debt behind it. Numbers grow along the queue.
pub(crate) type Claim = (u64, u64, u64);

/// A queue, without its claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The positions at which the first claim begins, and at which the last one and the debt behind it end.
    pub(crate) base: u64,
    pub(crate) tail: u64,
    /// The number and the cost of the first claim.
    pub(crate) first: (u64, u64),
    /// No claim costs more.
    pub(crate) largest: u64,
}

impl Line {
    /// The instant at which a claim of `cost` behind the queue is granted, if positions alone decide.
    fn scheduled(&self, supply: &Supply, cost: u64) -> Option<u64> {
        let front = self.base.wrapping_add(self.first.1);
        // Claims that the last reading of the time has not seen are not in the bounds yet.
        let may_decide = supply.claimed() == self.base;
        if may_decide { supply.scheduled_behind(front, self.largest, self.tail.wrapping_add(cost)) } else { None }
    }
}

/// What is known of a queue that was served ahead of time.
#[derive(Debug, Default)]
pub(crate) struct Forecast(Option<Ahead>);

/// The supply as it will be once the last claim that is covered has been granted.
#[derive(Debug)]
struct Ahead {
    supply: Supply,
    /// The position in `supply` at which the next claim begins.
    base: u64,
    /// Claims with lower numbers are covered.
    until: u64,
    /// The value of [`Supply::changes`] in the queue's own supply when this was computed. It is valid while that value has
    /// not changed.
    changes: u64,
}

impl Forecast {
    /// The instant at which a claim of `cost` behind a queue is granted. `None` if no clock can tell. `claims` lists the
    /// claims with this number or a higher one.
    pub(crate) fn predict<I: Iterator<Item = Claim>>(
        &mut self,
        supply: &Supply,
        line: Line,
        cost: u64,
        claims: impl FnOnce(u64) -> I,
    ) -> Option<u64> {
        line.scheduled(supply, cost).or_else(|| {
            let (ahead, base) = self.behind(supply, line.base, line.first.0, claims)?;
            ahead.scheduled(base.wrapping_add(cost))
        })
    }

    /// Serves at most this many claims ahead of time for [`predict`](Self::predict). Returns whether that was all it takes.
    pub(crate) fn prepare<I: Iterator<Item = Claim>>(
        &mut self,
        supply: &Supply,
        line: Line,
        cost: u64,
        claims: impl FnOnce(u64) -> I,
        most: usize,
    ) -> bool {
        line.scheduled(supply, cost).is_some() || {
            let known = self.known(supply, line.base, line.first.0);
            let mut more = claims(known.until);
            known.cover(more.by_ref().take(most)).is_none() || more.next().is_none()
        }
    }

    /// The supply as it will be once the last claim has been granted, and the position in it at which the next claim begins.
    /// `None` if no clock can tell. The first claim begins at `base` and has the number `first`.
    pub(crate) fn behind<I: Iterator<Item = Claim>>(
        &mut self,
        supply: &Supply,
        base: u64,
        first: u64,
        claims: impl FnOnce(u64) -> I,
    ) -> Option<(&Supply, u64)> {
        let known = self.known(supply, base, first);
        known.cover(claims(known.until))?;
        Some((&known.supply, known.base))
    }

    /// What is known, if it still holds.
    fn known(&mut self, supply: &Supply, base: u64, first: u64) -> &mut Ahead {
        let changes = supply.changes();
        // External tokens change without a call of `note_change`.
        let holds = |known: &Ahead| known.changes == changes && known.until > first && supply.source().is_none();
        let known = self.0.take().filter(holds);
        self.0.insert(known.unwrap_or_else(|| Ahead { supply: supply.clone(), base, until: 0, changes }))
    }

    /// Claim number `number` was cancelled, and the one before it has taken over its `debt`.
    pub(crate) fn note_leave(&mut self, number: u64, debt: u64) {
        self.0 = self.0.take().filter(|known| number >= known.until && debt == 0);
    }

    /// A debt was charged behind the last claim, which has this number.
    pub(crate) fn note_debt(&mut self, last: u64, tokens: u64) {
        if let Some(known) = self.0.as_mut().filter(|known| last < known.until) {
            known.charge(tokens);
        }
    }
}

impl Ahead {
    /// Covers more claims. `None` if no clock can tell when one of them is granted.
    fn cover(&mut self, mut claims: impl Iterator<Item = Claim>) -> Option<()> {
        claims.try_for_each(|(number, cost, debt)| {
            steps::count();
            self.supply.serve_ahead(self.base, cost)?;
            self.base = self.base.wrapping_add(cost);
            self.charge(debt);
            self.until = number + 1;
            Some(())
        })
    }

    fn charge(&mut self, tokens: u64) {
        self.supply.claim(tokens);
        self.base = self.base.wrapping_add(tokens);
    }
}
