//! The visible state of the oracle.

use super::{Entry, Granted, Int, Oracle};

impl Oracle {
    /// The tokens that a `try_acquire` could take at this instant.
    pub(crate) fn available(&self) -> Int {
        let nothing = self.closed || !self.queue.is_empty() || self.last < self.gate;
        if nothing { 0 } else { self.here().max(0) }
    }

    /// How far the claims exceed the tokens: the costs of all claims in the queue, less the tokens for them, for the
    /// quota where that is worst. A pause takes no tokens away.
    pub(crate) fn deficiency(&self) -> Int {
        let by_quota = self.levels().into_iter().map(|level| self.waiting_tokens() + self.debts() - level);
        // The tokens of a debt are in flight already.
        let by_ceiling = self.space().map(|space| self.waiting_tokens() - space);
        by_quota.chain(by_ceiling).max().expect("a limiter has a quota").max(0)
    }

    /// The tokens for the front of the queue: the minimum over the quotas and the ceiling.
    pub(super) fn here(&self) -> Int {
        self.levels().into_iter().chain(self.space()).min().expect("a limiter has a quota")
    }

    pub(super) fn space(&self) -> Option<Int> {
        self.max_in_flight.map(|most| most - self.in_flight)
    }

    pub(crate) fn debts(&self) -> Int {
        let debts = self.queue.iter().filter_map(|entry| match *entry {
            Entry::Debt(tokens) => Some(tokens),
            Entry::Waiter { .. } => None,
        });
        debts.sum()
    }

    pub(crate) fn levels(&self) -> Vec<Int> {
        self.buckets.iter().map(|bucket| bucket.level).collect()
    }

    fn waiters(&self) -> impl Iterator<Item = Int> {
        self.queue.iter().filter_map(|entry| match *entry {
            Entry::Waiter { cost, .. } => Some(cost),
            Entry::Debt(_) => None,
        })
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiters().count() as u64
    }

    pub(crate) fn waiting_tokens(&self) -> Int {
        self.waiters().sum()
    }

    /// Tokens granted or charged, and tokens refunded, since the start.
    pub(crate) fn turnover(&self) -> (Int, Int) {
        (self.log.iter().map(|granted| granted.cost).sum::<Int>() + self.charged, self.refunded)
    }

    pub(crate) fn in_flight(&self) -> Option<Int> {
        self.max_in_flight.map(|_| self.in_flight)
    }

    /// The rest of the pause.
    pub(crate) fn paused_for(&self, now: Int) -> Option<Int> {
        (self.last < self.gate).then(|| self.gate - now)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The latest instant that the model was advanced to.
    pub(crate) fn now(&self) -> Int {
        self.last
    }

    /// Every grant so far, in order.
    pub(crate) fn log(&self) -> &[Granted] {
        &self.log
    }
}
