//! Random histories of a few keys under a parent limiter, compared with a model that simulates every nanosecond: all
//! claims must be granted in the same nanosecond, and no others. The same histories with rare calls keep the rate law,
//! and every claim is served.
//!
//! To run more of them: `PROPTEST_CASES=100000 cargo test --features keyed --test it keyed::parent_histories`.

use super::parent_model::{Id, ParentModel, Rule};
use crate::fixture::*;
use crate::oracle::ops::config;
use tollgate::KeyedGrant;

const KEYS: usize = 3;
static NAMES: [u8; KEYS] = [0, 1, 2];
type Seen<'a> = Result<Held<'a>, ConsumeError>;
type Future<'a> = std::pin::Pin<Box<dyn std::future::Future<Output = Seen<'a>> + 'a>>;

/// A grant of a key, or of the parent limiter.
enum Held<'a> {
    Key(KeyedGrant<'a, u8, std::hash::RandomState>),
    Parent(tollgate::Grant<'a>),
}

impl Held<'_> {
    fn cost(&self) -> u64 {
        match self {
            Held::Key(grant) => grant.cost(),
            Held::Parent(grant) => grant.cost(),
        }
    }
}

struct Live<'a> {
    id: Id,
    /// `None`: of the parent limiter.
    key: Option<usize>,
    cost: u64,
    future: Spawn<Future<'a>>,
    granted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass(u64),
    Try(usize, u64),
    Consume(usize, u64),
    Cancel(usize),
    Poll(usize),
    Settle(usize, u64),
    Drop(usize),
    TryParent(u64),
    ConsumeParent(u64),
    Pause(u64),
    Resume,
    PauseKey(usize, u64),
    ResumeKey(usize),
    /// Pauses of all keys reach them in the order in which they are stored, and what that means for the parent's queue is
    /// not in the model.
    PauseAll(u64),
    ResumeAll,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    prop_oneof![
        6 => (0_u64..9).prop_map(Op::Pass),
        3 => (key.clone(), 0_u64..5).prop_map(|(key, cost)| Op::Try(key, cost)),
        8 => (key.clone(), 1_u64..5).prop_map(|(key, cost)| Op::Consume(key, cost)),
        2 => (0_usize..9).prop_map(Op::Cancel),
        3 => (0_usize..9).prop_map(Op::Poll),
        2 => ((0_usize..9), 0_u64..8).prop_map(|(grant, actual)| Op::Settle(grant, actual)),
        3 => (0_usize..9).prop_map(Op::Drop),
        1 => (0_u64..5).prop_map(Op::TryParent),
        2 => (1_u64..5).prop_map(Op::ConsumeParent),
        1 => (0_u64..9).prop_map(Op::Pause),
        1 => Just(Op::Resume),
        1 => (key.clone(), 0_u64..9).prop_map(|(key, span)| Op::PauseKey(key, span)),
        1 => key.prop_map(Op::ResumeKey),
        1 => (0_u64..9).prop_map(Op::PauseAll),
        1 => Just(Op::ResumeAll),
    ]
}

fn rule(most_amount: u64) -> impl Strategy<Value = Rule> {
    let cap = prop_oneof![2 => Just(None), 1 => (4_u64..9).prop_map(Some)];
    let numbers = (1..=most_amount, 1_u64..9, 1_u64..7, cap);
    numbers.prop_map(|(amount, period, burst, cap)| Rule { amount, period, burst, cap })
}

fn history() -> impl Strategy<Value = (Rule, Rule, bool, Vec<Op>)> {
    (rule(3), rule(5), any::<bool>(), prop::collection::vec(op(), 0..60))
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn keys_under_a_parent_are_granted_as_the_nanosecond_model_says(
        (rule, parent, others, ops) in history(),
    ) {
        let limiters = build(rule, parent);
        Both::new(&limiters, rule, parent, true).live(&ops, others)?;
    }

    #[test]
    fn keys_that_are_seldom_served_keep_the_law_and_are_all_granted((rule, parent, others, ops) in history()) {
        let limiters = build(rule, parent);
        Both::new(&limiters, rule, parent, false).live(&ops, others)?;
    }
}

fn quota(rule: Rule) -> Quota {
    Quota::new(rule.amount, Duration::from_nanos(rule.period)).burst(rule.burst)
}

fn build(rule: Rule, parent: Rule) -> (ManualClock, Limiter, KeyedLimiter<u8>) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(quota(parent)).clock(clock.clone());
    let builder = if let Some(cap) = parent.cap { builder.max_in_flight(cap) } else { builder };
    let global = builder.build().unwrap();
    let builder = KeyedLimiter::builder().quota(quota(rule)).clock(clock.clone()).shards(2).parent(&global);
    let builder = if let Some(cap) = rule.cap { builder.max_in_flight(cap) } else { builder };
    (clock, global.clone(), builder.build().unwrap())
}

struct Both<'a> {
    clock: &'a ManualClock,
    global: &'a Limiter,
    keyed: &'a KeyedLimiter<u8>,
    model: ParentModel,
    rules: (Rule, Rule),
    watched: bool,
    futures: Vec<Live<'a>>,
    grants: Vec<(Option<usize>, Held<'a>)>,
    next: Id,
    now: u64,
    /// The tokens granted to each key and in total, less the refunds.
    spent: [i128; KEYS + 1],
}

impl<'a> Both<'a> {
    fn new(limiters: &'a (ManualClock, Limiter, KeyedLimiter<u8>), rule: Rule, parent: Rule, watched: bool) -> Self {
        let (clock, global, keyed) = limiters;
        let model = ParentModel::new(&[rule; KEYS], parent);
        let (futures, grants, spent) = (Vec::new(), Vec::new(), [0; KEYS + 1]);
        Self { clock, global, keyed, model, rules: (rule, parent), watched, futures, grants, next: 0, now: 0, spent }
    }

    fn live(&mut self, ops: &[Op], others: bool) -> Result<(), TestCaseError> {
        for op in ops {
            match *op {
                Op::TryParent(_) | Op::ConsumeParent(_) if !others => {}
                Op::PauseAll(_) | Op::ResumeAll if self.watched => {}
                op => self.apply(op)?,
            }
            self.look(op)?;
        }
        self.end()
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Pass(span) => (0..span).try_for_each(|_| self.pass())?,
            Op::Try(key, cost) => {
                let answer = self.keyed.try_acquire(&NAMES[key], cost);
                let granted = self.model.try_acquire(key, cost);
                if self.watched {
                    prop_assert_eq!(answer.is_ok(), granted, "{:?}: {:?}", op, answer);
                }
                answer.into_iter().for_each(|grant| self.keep(Some(key), Held::Key(grant)));
            }
            Op::Consume(key, cost) => {
                let consume = self.keyed.consume(&NAMES[key], cost);
                let future: Future<'a> = Box::pin(async move { consume.await.map(Held::Key) });
                self.begin(op, Some(key), cost, future)?;
            }
            Op::TryParent(cost) => {
                let answer = self.global.try_acquire(cost);
                let granted = self.model.try_acquire_parent(cost);
                if self.watched {
                    prop_assert_eq!(answer.is_ok(), granted, "{:?}: {:?}", op, answer);
                }
                answer.into_iter().for_each(|grant| self.keep(None, Held::Parent(grant)));
            }
            Op::ConsumeParent(cost) => {
                let consume = self.global.consume(cost);
                let future: Future<'a> = Box::pin(async move { consume.await.map(Held::Parent) });
                self.begin(op, None, cost, future)?;
            }
            Op::Cancel(place) => self.cancel(place),
            Op::Poll(place) => self.poll(place)?,
            Op::Settle(place, actual) => self.settle(place, actual),
            Op::Drop(place) => self.release(place),
            Op::Pause(span) => {
                self.global.pause_for(Duration::from_nanos(span));
                self.model.pause_parent(span);
            }
            Op::Resume => {
                self.global.resume();
                self.model.resume_parent();
            }
            Op::PauseKey(key, span) => {
                self.keyed.pause_for(&NAMES[key], Duration::from_nanos(span));
                self.model.pause(key, span);
            }
            Op::ResumeKey(key) => {
                self.keyed.resume(&NAMES[key]);
                self.model.resume(key);
            }
            Op::PauseAll(span) => self.keyed.pause_all_for(Duration::from_nanos(span)),
            Op::ResumeAll => self.keyed.resume_all(),
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.clock.advance(NANO);
        self.now += 1;
        self.model.pass_nanosecond();
        if self.watched { self.look(&Op::Pass(1)) } else { Ok(()) }
    }

    fn begin(&mut self, op: Op, key: Option<usize>, cost: u64, future: Future<'a>) -> Result<(), TestCaseError> {
        let caps = if key.is_some() { [self.rules.0.cap, self.rules.1.cap] } else { [None, self.rules.1.cap] };
        let mut future = spawn(future);
        let answer = future.poll();
        if caps.into_iter().flatten().any(|cap| cost > cap) {
            let refused = matches!(answer, Poll::Ready(Err(ConsumeError::TooLarge { .. })));
            prop_assert!(refused, "{:?} was not refused", op);
            return Ok(());
        }
        self.next += 1;
        let id = self.next;
        let at_once = match key {
            Some(key) => self.model.consume(id, key, cost),
            None => self.model.consume_parent(id, cost),
        };
        if self.watched {
            prop_assert_eq!(answer.is_ready(), at_once, "{:?}", op);
        }
        match answer {
            Poll::Ready(Ok(held)) => self.keep(key, held),
            Poll::Ready(Err(error)) => prop_assert!(false, "{:?}: {:?}", op, error),
            Poll::Pending => self.futures.push(Live { id, key, cost, future, granted: false }),
        }
        Ok(())
    }

    fn cancel(&mut self, place: usize) {
        let Some(place) = place.checked_rem(self.futures.len()) else { return };
        let Live { id, key, cost, future, granted } = self.futures.remove(place);
        drop(future);
        match key {
            Some(key) => self.model.cancel(id, key, cost, granted),
            None => self.model.cancel_parent(id, cost, granted),
        }
    }

    fn poll(&mut self, place: usize) -> Result<(), TestCaseError> {
        let Some(place) = place.checked_rem(self.futures.len()) else { return Ok(()) };
        let polled = self.futures[place].future.poll();
        if self.watched {
            prop_assert_eq!(polled.is_ready(), self.futures[place].granted, "polled");
        }
        if let Poll::Ready(answer) = polled {
            let Live { key, .. } = self.futures.remove(place);
            self.keep(key, answer.expect("the claim entered the queue"));
        }
        Ok(())
    }

    fn keep(&mut self, key: Option<usize>, held: Held<'a>) {
        self.spend(key, held.cost().into());
        self.grants.push((key, held));
    }

    fn spend(&mut self, key: Option<usize>, tokens: i128) {
        self.spent[KEYS] += tokens;
        if let Some(key) = key {
            self.spent[key] += tokens;
        }
    }

    fn settle(&mut self, place: usize, actual: u64) {
        let Some(place) = place.checked_rem(self.grants.len()) else { return };
        let (key, held) = &mut self.grants[place];
        let (Some(key), Held::Key(grant)) = (*key, held) else { return };
        let cost = grant.cost();
        // A grant of nothing cannot be settled.
        if cost > 0 {
            grant.settle(&(key as u8), actual);
            self.model.settle(key, cost, actual);
            self.spend(Some(key), i128::from(actual) - i128::from(cost));
        }
    }

    fn release(&mut self, place: usize) {
        let Some(place) = place.checked_rem(self.grants.len()) else { return };
        let (key, held) = self.grants.remove(place);
        let cost = held.cost();
        drop(held);
        match key {
            Some(key) => self.model.release(key, cost),
            None => self.model.release_parent(cost),
        }
    }

    /// Compares everything visible, in the order in which the model makes things happen.
    fn look(&mut self, op: &Op) -> Result<(), TestCaseError> {
        if !self.watched {
            return Ok(());
        }
        let now = self.now;
        self.global.tick();
        // Each key in turn before anything is compared: all can see what one of them does in the parent.
        NAMES.iter().for_each(|key| _ = self.keyed.available(key));
        let keys: Vec<u64> = NAMES.iter().map(|key| self.keyed.available(key)).collect();
        for id in self.model.take_granted() {
            if let Some(live) = self.futures.iter_mut().find(|live| live.id == id) {
                live.granted = true;
            }
        }
        for live in &self.futures {
            let claim = (live.id, live.key);
            prop_assert_eq!(live.future.is_woken(), live.granted, "claim {:?} at {} ns, after {:?}", claim, now, op);
        }
        let parent = (self.global.available(), self.global.snapshot().waiting_tasks);
        prop_assert_eq!(parent, self.model.view(None), "parent, {} ns, {:?}", now, op);
        let mut waiting = 0;
        for (key, available) in keys.into_iter().enumerate() {
            let view = self.model.view(Some(key));
            prop_assert_eq!(available, view.0, "key {} at {} ns, after {:?}", key, now, op);
            waiting += view.1;
        }
        prop_assert_eq!(self.keyed.snapshot().waiting_tasks, waiting, "at {} ns, after {:?}", now, op);
        Ok(())
    }

    /// All work ends, then all waiters are served, by the rules. Then everything is as at the start.
    fn end(&mut self) -> Result<(), TestCaseError> {
        while !self.grants.is_empty() {
            self.release(0);
        }
        for _ in 0..4_000 {
            if self.futures.is_empty() {
                break;
            }
            self.pass()?;
            if !self.watched {
                self.keyed.tick();
            }
            while let Some(place) = self.futures.iter().position(|live| live.future.is_woken()) {
                let before = self.futures.len();
                self.poll(place)?;
                prop_assert!(self.futures.len() < before, "woken without a grant");
            }
            while !self.grants.is_empty() {
                self.release(0);
            }
        }
        prop_assert!(self.futures.is_empty(), "{} wait for ever", self.futures.len());
        for (index, spent) in self.spent.iter().enumerate() {
            let rule = if index < KEYS { self.rules.0 } else { self.rules.1 };
            // Refunded tokens may have been granted again at once, but there were never more.
            let [amount, period, burst, now] = [rule.amount, rule.period, rule.burst, self.now].map(i128::from);
            let most = burst * period + amount * now + self.owed(index);
            prop_assert!(spent * period <= most, "{index}: {spent} by {now} ns");
        }
        self.clock.advance(Duration::from_secs(1));
        self.keyed.tick();
        prop_assert_eq!(self.keyed.snapshot().keys, 0, "no key is in debt");
        let parent = self.rules.1;
        prop_assert_eq!(self.global.available(), parent.burst.min(parent.cap.unwrap_or(u64::MAX)));
        let snapshot = self.global.snapshot();
        prop_assert_eq!(i128::from(snapshot.granted) - i128::from(snapshot.refunded), self.spent[KEYS]);
        Ok(())
    }

    /// Debts that are not paid off yet, in fractions of a token.
    fn owed(&self, index: usize) -> i128 {
        let (debt, rule) = if index < KEYS {
            (self.keyed.deficiency(&NAMES[index]), self.rules.0)
        } else {
            (self.global.deficiency(), self.rules.1)
        };
        i128::from((debt + 1) * rule.period)
    }
}
