//! The oracle: what a limiter must do, as simply as it can be written.
//!
//! A queue of waiters in a `VecDeque`, one level per quota, exact integers; no atomics, no positions, no publishing. It
//! must stay independent of the crate's internals: where the two disagree, one of them is wrong. Every call first
//! advances the model to the present. So each due claim is served at its scheduled instant, before a refund, a
//! cancellation or a new quota can change what is due.

mod bucket;
pub(crate) mod bytes;
mod changes;
pub(crate) mod checks;
mod claims;
pub(crate) mod conversions;
pub(crate) mod executor;
pub(crate) mod law;
pub(crate) mod model;
pub(crate) mod ops;
pub(crate) mod reentrant_wakers;
mod view;

use std::collections::VecDeque;

pub(crate) use bucket::{Bucket, Refill, Rule};

/// Every number of the model. It is signed because of debts, and large enough for all numbers of the tests.
pub(crate) type Int = i128;
/// Waiters are numbered in the order of their arrival.
pub(crate) type Id = usize;

/// The last instant of clocks, after 584 years. A longer wait is reported as a wait until then.
pub(crate) const END_OF_TIME: Int = u64::MAX as Int;

/// The largest cost of a claim.
pub(crate) const COST_MAX: Int = 1 << 48;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Waiter {
        id: Id,
        cost: Int,
    },
    /// Tokens charged by a settlement while claims waited: the claims before it come first, later ones pay.
    Debt(Int),
}

/// One line of the log: the claim, its scheduled instant, its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    pub(crate) at: Int,
    pub(crate) cost: Int,
}

/// The bound that refused a `try_acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Quota(usize),
    InFlight,
    Pause,
    Queue,
}

/// The answer to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Waits,
    Closed,
    TooLarge { most: Int },
    QueueFull { waiting: u64 },
    TooLate { estimate: Int },
    TimedOut { waited: Int },
    Denied { retry_after: Option<Int>, remaining: Int, by: Bound },
}

#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    /// The instant of the whole state. It never moves back.
    last: Int,
    buckets: Vec<Bucket>,
    max_in_flight: Option<Int>,
    in_flight: Int,
    /// No claim passes before this instant.
    gate: Int,
    queue: VecDeque<Entry>,
    max_waiting: u64,
    closed: bool,
    log: Vec<Granted>,
    /// Grants of which a window or a calendar does not know the instant.
    pub(crate) uncounted: Vec<Id>,
    /// Whether the limiter is in dry run: a window then knows no grant that is refunded.
    pub(crate) in_dry_run: bool,
    /// Tokens charged by settlements, and tokens refunded.
    charged: Int,
    refunded: Int,
}

impl Oracle {
    pub(crate) fn new(rules: &[Rule], max_in_flight: Option<Int>, max_waiting: u64) -> Oracle {
        Oracle {
            last: 0,
            buckets: rules.iter().map(|&rule| Bucket::new(rule, 0)).collect(),
            max_in_flight,
            in_flight: 0,
            gate: 0,
            queue: VecDeque::new(),
            max_waiting,
            closed: false,
            log: Vec::new(),
            uncounted: Vec::new(),
            in_dry_run: false,
            charged: 0,
            refunded: 0,
        }
    }

    /// Serves every claim due by `now`, each at its own instant, and mints up to `now`.
    pub(crate) fn advance(&mut self, now: Int) {
        let now = now.max(self.last);
        while let Some(at) = self.next_grant().filter(|&at| at <= now) {
            self.mint(at);
            self.grant_front();
        }
        self.mint(now);
    }

    /// When the front waiter is due; `None` if there is none, or if time alone will not grant it.
    fn next_grant(&mut self) -> Option<Int> {
        self.pay_debts_at_the_front();
        let cost = self.front()?;
        if self.ceiling_lacks(cost) {
            return None;
        }
        let mut due = self.last.max(self.gate);
        for bucket in &self.buckets {
            due = due.max(bucket.when(self.last, cost)?);
        }
        Some(due)
    }

    fn mint(&mut self, to: Int) {
        let front = self.front();
        for bucket in &mut self.buckets {
            bucket.mint(self.last, to, front);
        }
        self.last = to;
    }

    fn grant_front(&mut self) {
        let Some(Entry::Waiter { id, cost }) = self.queue.pop_front() else { unreachable!("a debt is never due") };
        self.take(id, cost);
    }

    fn take(&mut self, id: Id, cost: Int) {
        self.buckets.iter_mut().for_each(|bucket| bucket.take(cost, self.last));
        self.in_flight += cost;
        let has = |refill: fn(&Refill) -> bool| self.buckets.iter().any(|bucket| refill(&bucket.rule.refill));
        let has_instant = has(|refill| matches!(refill, Refill::Calendar { .. }))
            || has(|refill| matches!(refill, Refill::Sliding { .. })) && !self.in_dry_run;
        if !has_instant {
            self.uncounted.push(id);
        }
        self.log.push(Granted { id, at: self.last, cost });
    }

    fn pay_debts_at_the_front(&mut self) {
        while let Some(&Entry::Debt(tokens)) = self.queue.front() {
            self.queue.pop_front();
            self.buckets.iter_mut().for_each(|bucket| bucket.take(tokens, self.last));
        }
    }

    /// The cost of the waiter in front.
    fn front(&self) -> Option<Int> {
        match self.queue.front() {
            Some(&Entry::Waiter { cost, .. }) => Some(cost),
            _ => None,
        }
    }

    fn ceiling_lacks(&self, cost: Int) -> bool {
        self.space().is_some_and(|space| cost > space)
    }
}
