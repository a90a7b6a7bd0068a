//! The oracle: what a limiter must do, said as plainly as it can be said.
//!
//! A line of waiters in a `VecDeque`, one level per quota, exact integers, no atomics, no positions, no publishing.
//! It knows nothing of how the crate works inside and must stay that way: where the two disagree, one of them is wrong.
//! Everybody advances the model to the present before touching it, so whoever was due has been served, each at the
//! instant the schedule names, before a refund, a cancel or a new quota can change what is due.

mod asking;
mod bucket;
mod by_nanosecond;
pub(crate) mod bytes;
mod changing;
pub(crate) mod checks;
pub(crate) mod echo;
pub(crate) mod hands;
pub(crate) mod law;
pub(crate) mod model;
pub(crate) mod ops;
mod seeing;
pub(crate) mod words;

use std::collections::VecDeque;

pub(crate) use bucket::{Bucket, Refill, Rule};

/// Every number of the model: tokens may be owed, and nothing the tests can name comes near the ends of this type.
pub(crate) type Int = i128;
/// Waiters are numbered in the order they came.
pub(crate) type Id = usize;

/// Clocks know no later instant, 584 years on; who would have to wait longer is told to wait until then.
pub(crate) const END_OF_TIME: Int = u64::MAX as Int;

/// No single request may cost more.
pub(crate) const COST_MAX: Int = 1 << 48;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Waiter {
        id: Id,
        cost: Int,
    },
    /// Tokens a settle charged while others waited: they were here first, whoever comes later pays.
    Debt(Int),
}

/// One line of the log: who was granted, at which instant of the schedule, for how many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    pub(crate) at: Int,
    pub(crate) cost: Int,
}

/// What stood in the way of a refused `try_acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Quota(usize),
    InFlight,
    Pause,
    Queue,
}

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Waits,
    Closed,
    TooLarge { most: Int },
    QueueFull { waiting: usize },
    TooLate { estimate: Int },
    TimedOut { waited: Int },
    Denied { retry_after: Option<Int>, remaining: Int, by: Bound },
}

#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    /// Everything below is true of this instant. Never moves back.
    last: Int,
    buckets: Vec<Bucket>,
    max_in_flight: Option<Int>,
    in_flight: Int,
    /// Nobody passes before this instant.
    gate: Int,
    line: VecDeque<Entry>,
    max_waiting: usize,
    closed: bool,
    log: Vec<Granted>,
    /// Tokens a settle charged on top, and tokens that came back unused.
    charged: Int,
    refunded: Int,
    /// Whether time is lived through rather than calculated.
    by_nanosecond: bool,
}

impl Oracle {
    pub(crate) fn new(rules: &[Rule], max_in_flight: Option<Int>, max_waiting: usize) -> Oracle {
        Oracle {
            last: 0,
            buckets: rules.iter().map(|&rule| Bucket::new(rule)).collect(),
            max_in_flight,
            in_flight: 0,
            gate: 0,
            line: VecDeque::new(),
            max_waiting,
            closed: false,
            log: Vec::new(),
            charged: 0,
            refunded: 0,
            by_nanosecond: false,
        }
    }

    /// The slow twin, for checking the arithmetic of this one.
    pub(crate) fn by_nanosecond(self) -> Oracle {
        Oracle { by_nanosecond: true, ..self }
    }

    /// Serves everybody due by `now`, each at their own instant, and mints up to `now`.
    pub(crate) fn advance(&mut self, now: Int) {
        let now = now.max(self.last);
        if self.by_nanosecond {
            return by_nanosecond::advance(self, now);
        }
        while let Some(at) = self.next_grant().filter(|&at| at <= now) {
            self.mint(at);
            self.grant_front();
        }
        self.mint(now);
    }

    /// When the front waiter is due; `None` if nobody waits, or if time alone will not bring it about.
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
        let Some(Entry::Waiter { id, cost }) = self.line.pop_front() else { unreachable!("a debt is never due") };
        self.take(id, cost);
    }

    fn take(&mut self, id: Id, cost: Int) {
        self.buckets.iter_mut().for_each(|bucket| bucket.level -= cost);
        self.in_flight += cost;
        self.log.push(Granted { id, at: self.last, cost });
    }

    fn pay_debts_at_the_front(&mut self) {
        while let Some(&Entry::Debt(tokens)) = self.line.front() {
            self.line.pop_front();
            self.buckets.iter_mut().for_each(|bucket| bucket.level -= tokens);
        }
    }

    /// The cost of the waiter in front.
    fn front(&self) -> Option<Int> {
        match self.line.front() {
            Some(&Entry::Waiter { cost, .. }) => Some(cost),
            _ => None,
        }
    }

    fn ceiling_lacks(&self, cost: Int) -> bool {
        self.room().is_some_and(|room| cost > room)
    }
}
