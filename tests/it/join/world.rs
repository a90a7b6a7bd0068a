//! Three limiters, their claims, and the grants of the callers.

use super::oracle::{QUEUES, Rule};
use crate::fixture::*;

pub(crate) fn build(rule: Rule, clock: &ManualClock) -> Limiter {
    let quota = Quota::new(rule.amount, Duration::from_nanos(rule.period)).burst(rule.burst).initial(rule.initial);
    let builder = Limiter::builder().quota(quota).clock(clock.clone());
    rule.cap.into_iter().fold(builder, tollgate::Builder::max_in_flight).build().unwrap()
}

pub(crate) enum Future<'a> {
    Joint(Spawn<Join<'a, QUEUES>>),
    Plain(Spawn<Consume<'a>>),
}

/// A claim, held by its caller.
pub(crate) struct Claim<'a> {
    future: Future<'a>,
    pub(crate) costs: [u64; QUEUES],
}

impl<'a> Claim<'a> {
    pub(crate) fn is_woken(&self) -> bool {
        match &self.future {
            Future::Joint(future) => future.is_woken(),
            Future::Plain(future) => future.is_woken(),
        }
    }

    fn is_plain(&self) -> bool {
        matches!(self.future, Future::Plain(_))
    }

    /// Whether a later joint claim over the limiters of `later` could not pass this one.
    fn has_limiters_of(&self, later: &Self) -> bool {
        !later.is_plain() && self.costs.map(|cost| cost > 0) == later.costs.map(|cost| cost > 0)
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
    pub(crate) limiters: &'a [Limiter; QUEUES],
    pub(crate) next: usize,
    pub(crate) waiting: BTreeMap<usize, Claim<'a>>,
    pub(crate) held: BTreeMap<usize, ([u64; QUEUES], Vec<Grant<'a>>)>,
    /// The joint claims of which the caller named the limiters in reverse order.
    pub(crate) turned: BTreeSet<usize>,
    /// The tokens of all grants that a caller received and did not refund, for each queue.
    spent: [u64; QUEUES],
}

impl<'a> World<'a> {
    pub(crate) fn new(clock: &'a ManualClock, limiters: &'a [Limiter; QUEUES]) -> Self {
        let (waiting, held, turned) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { clock, limiters, next: 0, waiting, held, turned, spent: [0; QUEUES] }
    }

    pub(crate) fn tick(&self) {
        self.limiters.iter().for_each(Limiter::tick);
    }

    fn claim(&mut self, future: Future<'a>, costs: [u64; QUEUES]) -> (usize, Option<bool>) {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Claim { future, costs });
        (number, self.poll(number))
    }

    pub(crate) fn joint(&mut self, costs: [u64; QUEUES], turned: bool) -> (usize, Option<bool>) {
        let claims = order(turned).map(|queue| (&self.limiters[queue], costs[queue]));
        if turned {
            self.turned.insert(self.next);
        }
        self.claim(Future::Joint(spawn(join(claims))), costs)
    }

    pub(crate) fn plain(&mut self, queue: usize, cost: u64) -> (usize, Option<bool>) {
        let mut costs = [0; QUEUES];
        costs[queue] = cost;
        self.claim(Future::Plain(spawn(self.limiters[queue].consume(cost))), costs)
    }

    pub(crate) fn try_joint(&mut self, costs: [u64; QUEUES]) -> Option<usize> {
        let grants = try_join(order(false).map(|queue| (&self.limiters[queue], costs[queue]))).ok()?;
        self.next += 1;
        self.keep(self.next - 1, costs, grants.into());
        Some(self.next - 1)
    }

    /// Whether the claim was granted; `None` while it waits.
    pub(crate) fn poll(&mut self, number: usize) -> Option<bool> {
        let answer = self.waiting.get_mut(&number)?.poll()?;
        let claim = self.waiting.remove(&number)?;
        let granted = answer.is_some();
        if let Some(grants) = answer {
            self.keep(number, claim.costs, grants);
        }
        Some(granted)
    }

    fn keep(&mut self, number: usize, costs: [u64; QUEUES], grants: Vec<Grant<'a>>) {
        self.held.insert(number, (costs, grants));
        (0..QUEUES).for_each(|queue| self.spent[queue] += costs[queue]);
    }

    /// The claim that arrived `ago` claims ago, if its caller still has it.
    pub(crate) fn back(&self, ago: usize) -> Option<usize> {
        self.waiting.keys().rev().nth(ago).copied()
    }

    pub(crate) fn granted_unseen(&self) -> Vec<usize> {
        self.waiting.iter().filter(|(_, claim)| claim.is_woken()).map(|(number, _)| *number).collect()
    }

    /// Checks what holds at any time: in each queue plain claims are granted in the order of arrival, and so are joint
    /// claims of the same limiters; no later joint claim passes a plain claim; and all tokens are accounted for.
    pub(crate) fn check(&self) -> Result<(), TestCaseError> {
        for (queue, limiter) in self.limiters.iter().enumerate() {
            let (mut unseen, mut waiting, mut tokens) = (0, 0, 0);
            let mut behind: Vec<&Claim<'_>> = Vec::new();
            for claim in self.waiting.values().filter(|claim| claim.costs[queue] > 0) {
                if claim.is_woken() {
                    let passed = behind.iter().find(|earlier| earlier.is_plain() || earlier.has_limiters_of(claim));
                    prop_assert!(passed.is_none(), "in queue {}, a claim was passed", queue);
                    unseen += claim.costs[queue];
                } else {
                    behind.push(claim);
                    (waiting, tokens) = (waiting + 1, tokens + claim.costs[queue]);
                }
            }
            let seen = limiter.snapshot();
            prop_assert_eq!((seen.waiting_tasks, seen.waiting_tokens), (waiting, tokens));
            prop_assert_eq!(seen.granted - seen.refunded, self.spent[queue] + unseen);
            let held: u64 = self.held.values().map(|(costs, _)| costs[queue]).sum();
            prop_assert!(seen.in_flight.is_none_or(|in_flight| in_flight == held + unseen));
        }
        Ok(())
    }
}

/// The order in which a caller names the limiters.
pub(crate) fn order(turned: bool) -> [usize; QUEUES] {
    if turned { [2, 1, 0] } else { [0, 1, 2] }
}

/// Limiters with these rules, in ascending order of their addresses. Queues are locked in that order, so a history then
/// runs the same way wherever the allocator puts the limiters.
pub(crate) fn build_ascending(rules: [Rule; QUEUES], clock: &ManualClock) -> [Limiter; QUEUES] {
    const { assert!(size_of::<Limiter>() == size_of::<usize>()) };
    // SAFETY: a limiter is one pointer, as large as a `usize`.
    let address = |limiter: &Limiter| unsafe { std::mem::transmute_copy::<Limiter, usize>(limiter) };
    let mut least = 0;
    // Limiters at lower addresses are kept until all are built: otherwise the next one would have the same address.
    let mut spare = Vec::new();
    rules.map(|rule| {
        loop {
            let limiter = build(rule, clock);
            if address(&limiter) > least {
                least = address(&limiter);
                return limiter;
            }
            spare.push(limiter);
        }
    })
}
