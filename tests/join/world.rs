//! Two limiters, those who claim from them, and what they hold.

use super::oracle::Rule;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{Consume, Grant, Join, Limiter, ManualClock, Quota, join, try_join};

pub(crate) fn build(rule: Rule, clock: &ManualClock) -> Limiter {
    let quota = Quota::new(rule.amount, Duration::from_nanos(rule.period)).burst(rule.burst).initial(rule.initial);
    let builder = Limiter::builder().quota(quota).clock(clock.clone());
    rule.cap.into_iter().fold(builder, tollgate::Builder::max_in_flight).build().unwrap()
}

pub(crate) enum Future<'a> {
    Joint(Spawn<Join<'a, 2>>),
    Plain(Spawn<Consume<'a>>),
}

/// A claim as its caller holds it.
pub(crate) struct Claim<'a> {
    future: Future<'a>,
    pub(crate) costs: [u64; 2],
    pub(crate) turned: bool,
}

impl<'a> Claim<'a> {
    pub(crate) fn is_woken(&self) -> bool {
        match &self.future {
            Future::Joint(future) => future.is_woken(),
            Future::Plain(future) => future.is_woken(),
        }
    }

    /// `None` if it waits, `Some(None)` if it was refused.
    pub(crate) fn poll(&mut self) -> Option<Option<Vec<Grant<'a>>>> {
        match &mut self.future {
            Future::Joint(future) => match future.poll() {
                Poll::Ready(grants) => Some(grants.ok().map(Vec::from)),
                Poll::Pending => None,
            },
            Future::Plain(future) => match future.poll() {
                Poll::Ready(grant) => Some(grant.ok().map(|grant| vec![grant])),
                Poll::Pending => None,
            },
        }
    }
}

pub(crate) struct World<'a> {
    pub(crate) clock: &'a ManualClock,
    pub(crate) limiters: &'a [Limiter; 2],
    pub(crate) next: usize,
    pub(crate) waiting: BTreeMap<usize, Claim<'a>>,
    pub(crate) held: BTreeMap<usize, ([u64; 2], Vec<Grant<'a>>)>,
    /// Tokens that ever stayed with somebody who saw them, in each line.
    spent: [u64; 2],
}

impl<'a> World<'a> {
    pub(crate) fn new(clock: &'a ManualClock, limiters: &'a [Limiter; 2]) -> Self {
        Self { clock, limiters, next: 0, waiting: BTreeMap::new(), held: BTreeMap::new(), spent: [0, 0] }
    }

    pub(crate) fn tick(&self) {
        self.limiters.iter().for_each(Limiter::tick);
    }

    fn claim(&mut self, future: Future<'a>, costs: [u64; 2], turned: bool) -> (usize, Option<bool>) {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Claim { future, costs, turned });
        (number, self.poll(number))
    }

    pub(crate) fn joint(&mut self, costs: [u64; 2], turned: bool) -> (usize, Option<bool>) {
        let [a, b] = self.limiters;
        let claims = if turned { [(b, costs[1]), (a, costs[0])] } else { [(a, costs[0]), (b, costs[1])] };
        self.claim(Future::Joint(spawn(join(claims))), costs, turned)
    }

    pub(crate) fn plain(&mut self, line: usize, cost: u64) -> (usize, Option<bool>) {
        let mut costs = [0, 0];
        costs[line] = cost;
        self.claim(Future::Plain(spawn(self.limiters[line].consume(cost))), costs, false)
    }

    pub(crate) fn try_joint(&mut self, costs: [u64; 2]) -> Option<usize> {
        let [a, b] = self.limiters;
        let grants = try_join([(a, costs[0]), (b, costs[1])]).ok()?;
        self.next += 1;
        self.keep(self.next - 1, costs, grants.into());
        Some(self.next - 1)
    }

    /// Whether it was granted; `None` while it waits.
    pub(crate) fn poll(&mut self, number: usize) -> Option<bool> {
        let answer = self.waiting.get_mut(&number)?.poll()?;
        let claim = self.waiting.remove(&number)?;
        let granted = answer.is_some();
        if let Some(mut grants) = answer {
            // In the order of the limiters, as the oracle releases them.
            if claim.turned {
                grants.reverse();
            }
            self.keep(number, claim.costs, grants);
        }
        Some(granted)
    }

    fn keep(&mut self, number: usize, costs: [u64; 2], grants: Vec<Grant<'a>>) {
        self.held.insert(number, (costs, grants));
        (0..2).for_each(|line| self.spent[line] += costs[line]);
    }

    /// The claim that arrived `ago` claims ago, if its caller has not left it.
    pub(crate) fn back(&self, ago: usize) -> Option<usize> {
        self.waiting.keys().rev().nth(ago).copied()
    }

    pub(crate) fn granted_unseen(&self) -> Vec<usize> {
        self.waiting.iter().filter(|(_, claim)| claim.is_woken()).map(|(number, _)| *number).collect()
    }

    /// What holds at any time: in each queue plain claims are granted in order, and so are joint claims over the same
    /// limiters; and all tokens are accounted for.
    pub(crate) fn check(&self) -> Result<(), TestCaseError> {
        for line in 0..2 {
            let mut kinds = Vec::new();
            for claim in self.waiting.values().filter(|claim| claim.costs[line] > 0) {
                let kind = (matches!(claim.future, Future::Joint(_)), claim.costs[1 - line] > 0);
                if claim.is_woken() {
                    prop_assert!(!kinds.contains(&kind), "in queue {}, a claim was overtaken by its like", line);
                } else {
                    kinds.push(kind);
                }
            }
        }
        self.check_tokens()
    }

    /// The second half of that.
    pub(crate) fn check_tokens(&self) -> Result<(), TestCaseError> {
        for (line, limiter) in self.limiters.iter().enumerate() {
            let (mut unseen, mut waiting, mut tokens) = (0, 0, 0);
            for claim in self.waiting.values().filter(|claim| claim.costs[line] > 0) {
                if claim.is_woken() {
                    unseen += claim.costs[line];
                } else {
                    (waiting, tokens) = (waiting + 1, tokens + claim.costs[line]);
                }
            }
            let seen = limiter.snapshot();
            prop_assert_eq!((seen.waiting_tasks, seen.waiting_tokens), (waiting, tokens));
            prop_assert_eq!(seen.granted - seen.refunded, self.spent[line] + unseen);
            let held: u64 = self.held.values().map(|(costs, _)| costs[line]).sum();
            prop_assert!(seen.in_flight.is_none_or(|flying| flying == held + unseen));
        }
        Ok(())
    }
}
