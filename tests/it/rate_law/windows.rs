//! The rate law in every window of random histories, checked on what callers saw, without a model of the limiter.

use proptest::prelude::*;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{Consume, Grant, Limiter, ManualClock, Quota};

#[derive(Clone, Copy, Debug)]
enum Op {
    Try(u64),
    Consume(u64),
    /// A claim is cancelled.
    Leave(usize),
    /// A grant is settled for this many tokens.
    Settle(usize, u64),
    /// The first quota is replaced by this one.
    Change(Quota),
    Pass(u64),
}

/// One grant, as its caller saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: u64,
    cost: u64,
}

fn quota(tokens: u64, nanos: u64) -> impl Strategy<Value = Quota> {
    let continuous = (1..tokens, 1..nanos, 1..tokens, 0..tokens).prop_map(|(amount, period, burst, initial)| {
        Quota::new(amount, Duration::from_nanos(period)).burst(burst).initial(initial.min(burst))
    });
    let stepped = (1..tokens, 1..nanos, 0..tokens, 0..tokens).prop_map(|(amount, period, more, initial)| {
        let burst = amount + more;
        Quota::new(amount, Duration::from_nanos(period)).burst(burst).initial(initial.min(burst)).stepped()
    });
    prop_oneof![3 => continuous, 1 => stepped]
}

fn ops(tokens: u64, nanos: u64) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1..tokens).prop_map(Op::Try),
        3 => (1..tokens * 2).prop_map(Op::Consume),
        1 => any::<usize>().prop_map(Op::Leave),
        4 => (1..nanos).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 1..80)
}

struct World<'a> {
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    now: u64,
    waiters: Vec<(u64, Spawn<Consume<'a>>)>,
    log: Vec<Seen>,
}

impl World<'_> {
    fn see(&mut self, cost: u64) {
        self.log.push(Seen { at: self.now, cost });
    }

    /// Advances the time in steps of `step`; served claims see their grant then. Without waiters no poll is needed.
    fn pass(&mut self, nanos: u64, step: u64) {
        let end = self.now + nanos;
        while self.now < end {
            let step = step.min(end - self.now);
            self.now += step;
            self.clock.advance(Duration::from_nanos(step));
            if !self.waiters.is_empty() || nanos.is_multiple_of(3) {
                self.limiter.tick();
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let mut served = Vec::new();
        self.waiters.retain_mut(|(cost, claim)| {
            let ready = claim.is_woken() && claim.poll().is_ready();
            served.extend(ready.then_some(*cost));
            !ready
        });
        served.into_iter().for_each(|cost| self.see(cost));
    }

    fn play(&mut self, op: Op, step: u64) {
        match op {
            Op::Try(cost) if self.limiter.try_acquire(cost).is_ok() => self.see(cost),
            Op::Try(_) => {}
            Op::Consume(cost) => {
                let mut claim = spawn(self.limiter.consume(cost));
                match claim.poll() {
                    Poll::Ready(_) => self.see(cost),
                    Poll::Pending => self.waiters.push((cost, claim)),
                }
            }
            Op::Leave(place) if !self.waiters.is_empty() => drop(self.waiters.remove(place % self.waiters.len())),
            Op::Leave(_) => {}
            Op::Pass(nanos) => self.pass(nanos, step),
            Op::Settle(..) | Op::Change(_) => unreachable!("only in histories that change"),
        }
        self.look();
    }
}

/// The tokens that `from ..= to` can bring. Time is counted in whole nanoseconds, so the one in which a window opens
/// counts.
fn minted(quota: Quota, from: u64, to: u64) -> u128 {
    let (amount, period) = (u128::from(quota.amount()), quota.period().as_nanos());
    let (from, to) = (u128::from(from), u128::from(to));
    if quota.is_stepped() { (to / period - from / period) * amount } else { (to - from + 1) * amount / period }
}

/// The first window with more grants than `quota` allows, as text. A grant seen at an instant may have been due up to
/// `late` before it. Tokens are saved for a claim above the burst, so a window may open with one.
fn broken(quota: Quota, log: &[Seen], late: u64) -> Option<String> {
    for (place, opens) in log.iter().enumerate() {
        let from = opens.at.saturating_sub(late);
        let mut passed = 0;
        for closes in &log[place..] {
            passed += u128::from(closes.cost);
            let most = u128::from(quota.capacity().max(opens.cost)) + minted(quota, from, closes.at);
            if passed > most {
                return Some(format!("{passed} from {opens:?} to {closes:?}, at most {most} by {quota}, {log:?}"));
            }
        }
    }
    None
}

/// Executes the ops, polls every `step` nanoseconds, and checks the grants against every quota.
fn keeps_the_law(quotas: &[Quota], ops: &[Op], step: u64, stride: Option<u64>) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let builder = quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota));
    let builder = stride.into_iter().fold(builder, |builder, stride| builder.stride(stride));
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let mut world = World { limiter: &limiter, clock: &clock, now: 0, waiters: Vec::new(), log: Vec::new() };
    ops.iter().for_each(|op| world.play(*op, step));
    let lateness = limiter.snapshot().lateness.as_nanos() as u64;
    prop_assert!(lateness < step, "{} late, though the queue was served every {} ns", lateness, step);
    for quota in quotas {
        prop_assert_eq!(broken(*quota, &world.log, lateness), None);
    }
    Ok(())
}

/// A token is counted in this many fractions: all periods up to 14 ns divide it.
const PARTS: u128 = 360_360;

/// An event that the law counts, in its order.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This many tokens were granted, under this burst.
    Granted { at: usize, cost: u64, burst: u64 },
    /// This many tokens were refunded.
    Refunded(u64),
}

/// A history in which grants are settled and the one quota changes, and the tokens that each nanosecond of it can
/// bring.
struct Changing<'a> {
    world: World<'a>,
    quota: Quota,
    /// Grants that can be settled.
    grants: Vec<Grant<'a>>,
    events: Vec<Event>,
    /// For a stepped quota: how many nanoseconds of the period have passed.
    passed: u64,
    /// What each nanosecond has brought, in fractions of a token: evenly, or at the end of a period.
    brought: Vec<(u128, u128)>,
}

impl<'a> Changing<'a> {
    fn new(limiter: &'a Limiter, clock: &'a ManualClock, quota: Quota) -> Self {
        let world = World { limiter, clock, now: 0, waiters: Vec::new(), log: Vec::new() };
        let evenly = Self::evenly(quota);
        Self { world, quota, grants: Vec::new(), events: Vec::new(), passed: 0, brought: vec![(evenly, 0)] }
    }

    fn evenly(quota: Quota) -> u128 {
        let is_even = !quota.is_stepped() && !quota.is_manual();
        if is_even { u128::from(quota.amount()) * PARTS / quota.period().as_nanos() } else { 0 }
    }

    fn see(&mut self, grant: Grant<'a>) {
        let (at, burst) = (self.brought.len() - 1, self.quota.capacity());
        self.events.push(Event::Granted { at, cost: grant.cost(), burst });
        self.grants.push(grant);
    }

    fn look(&mut self) {
        let World { waiters, .. } = &mut self.world;
        let mut served = Vec::new();
        waiters.retain_mut(|(_, claim)| {
            let answer = if claim.is_woken() { claim.poll() } else { Poll::Pending };
            let Poll::Ready(answer) = answer else { return true };
            served.extend(answer.ok());
            false
        });
        served.into_iter().for_each(|grant| self.see(grant));
    }

    fn pass(&mut self, nanos: u64) {
        for _ in 0..nanos {
            let mut at_once = 0;
            if self.quota.is_stepped() {
                self.passed += 1;
                if u128::from(self.passed) == self.quota.period().as_nanos() {
                    (self.passed, at_once) = (0, u128::from(self.quota.amount()) * PARTS);
                }
            }
            self.brought.push((Self::evenly(self.quota), at_once));
            self.world.clock.advance(Duration::from_nanos(1));
            self.world.limiter.tick();
            self.look();
        }
    }

    /// The elapsed share of a period carries over from one stepped quota to another.
    fn change(&mut self, quota: Quota) {
        let nanos = |quota: Quota| quota.period().as_nanos() as u64;
        let is_step = self.quota.is_stepped() && quota.is_stepped();
        self.passed = if is_step { self.passed * nanos(quota) / nanos(self.quota) } else { 0 };
        self.quota = quota;
        self.world.limiter.set_quota(0, quota).unwrap();
        // What this nanosecond brings from now on was not brought before the change.
        let now = self.brought.last_mut().unwrap();
        now.0 = now.0.max(Self::evenly(quota));
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Try(cost) => {
                if let Ok(grant) = self.world.limiter.try_acquire(cost) {
                    self.see(grant);
                }
            }
            Op::Consume(cost) => {
                let mut claim = spawn(self.world.limiter.consume(cost));
                match claim.poll() {
                    Poll::Ready(grant) => self.see(grant.unwrap()),
                    Poll::Pending => self.world.waiters.push((cost, claim)),
                }
            }
            Op::Settle(place, actual) if !self.grants.is_empty() => {
                let place = place % self.grants.len();
                let grant = &mut self.grants[place];
                if actual < grant.cost() {
                    self.events.push(Event::Refunded(grant.cost() - actual));
                }
                grant.settle(actual);
            }
            Op::Settle(..) => {}
            Op::Change(quota) => self.change(quota),
            Op::Pass(nanos) => self.pass(nanos),
            Op::Leave(_) => self.world.play(op, 1),
        }
        self.look();
    }

    /// The first run of events that grants more, less its refunds, than the burst at its start and what time has
    /// brought since.
    fn broken(&self) -> Option<String> {
        for (place, opens) in self.events.iter().enumerate() {
            let Event::Granted { at: from, cost: first, burst } = *opens else { continue };
            let (mut granted, mut back) = (0, 0);
            for closes in &self.events[place..] {
                let to = match *closes {
                    Event::Granted { at, cost, .. } => {
                        granted += u128::from(cost);
                        at
                    }
                    Event::Refunded(tokens) => {
                        back += u128::from(tokens);
                        continue;
                    }
                };
                let evenly: u128 = self.brought[from..=to].iter().map(|it| it.0).sum();
                let at_once: u128 = self.brought[from + 1..to + 1].iter().map(|it| it.1).sum();
                let most = u128::from(burst.max(first)) + (evenly + at_once) / PARTS;
                if granted > most + back {
                    return Some(format!(
                        "{granted} less {back} from {opens:?} to {closes:?}, at most {most}: {:?}",
                        self.events
                    ));
                }
            }
        }
        None
    }
}

fn changing_ops(costs: u64, quotas: impl Strategy<Value = Quota>) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1..costs).prop_map(Op::Try),
        3 => (1..costs * 2).prop_map(Op::Consume),
        1 => any::<usize>().prop_map(Op::Leave),
        2 => (any::<usize>(), 0..costs * 2).prop_map(|(place, actual)| Op::Settle(place, actual)),
        2 => quotas.prop_map(Op::Change),
        4 => (1_u64..20).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 1..60)
}

fn keeps_the_law_while_it_changes(quota: Quota, ops: &[Op]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let mut history = Changing::new(&limiter, &clock, quota);
    ops.iter().for_each(|op| history.play(*op));
    prop_assert_eq!(history.broken(), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The queue is served in every nanosecond, so callers see the schedule itself.
    #[test]
    fn no_window_of_a_single_quota_holds_more_than_the_burst_and_the_rate(quota in quota(12, 15), ops in ops(14, 20)) {
        keeps_the_law(&[quota], &ops, 1, None)?;
    }

    #[test]
    fn no_window_holds_more_than_any_of_several_quotas_allows(
        quotas in prop::collection::vec(quota(12, 15), 2..4),
        ops in ops(14, 20),
    ) {
        keeps_the_law(&quotas, &ops, 1, None)?;
    }

    /// The fast path, which does not read the clock, never grants early: with a bucket of thousands, and up to one
    /// token in a nanosecond.
    #[test]
    fn no_window_holds_more_when_tokens_are_published_ahead(
        quotas in prop::collection::vec(quota(3_000, 5_000), 1..3),
        ops in ops(300, 300),
        stride in prop::option::of(1_u64..500),
    ) {
        keeps_the_law(&quotas, &ops, 7, stride)?;
    }

    /// The law with refunds: the refunds of a window are subtracted from its grants. And with changes of the quota: a
    /// window can bring what each quota brings in its own time.
    #[test]
    fn no_window_holds_more_with_refunds_and_changes_of_the_quota(
        first in quota(12, 15),
        ops in changing_ops(14, prop_oneof![6 => quota(12, 15), 1 => (1_u64..12).prop_map(Quota::manual)]),
    ) {
        keeps_the_law_while_it_changes(first, &ops)?;
    }

    /// The queue is served seldom: a window then contains what the rate brings in it and in the lateness.
    #[test]
    fn no_window_holds_more_than_the_lateness_adds(
        quotas in prop::collection::vec(quota(1_000, 1_000_000_000), 1..4),
        ops in ops(1_200, 200_000_000),
        step in 1_000_000_u64..300_000_000,
    ) {
        keeps_the_law(&quotas, &ops, step, None)?;
    }
}

/// Histories that failed once. In both, half a token was saved above the burst for a giant that was cancelled.
#[test]
fn savings_of_a_giant_above_the_burst_are_lost_to_the_last_fraction() {
    let per_four_nanos = |burst| Quota::new(1, Duration::from_nanos(4)).burst(burst);
    let one = [per_four_nanos(6)];
    let ops = [Op::Consume(7), Op::Pass(2), Op::Leave(0), Op::Consume(1), Op::Pass(2), Op::Try(6)];
    keeps_the_law(&one, &ops, 1, None).unwrap();

    let two = [per_four_nanos(9).initial(0), Quota::new(1, Duration::from_nanos(1)).burst(9).initial(0)];
    let ops = [Op::Pass(35), Op::Consume(10), Op::Consume(10), Op::Pass(2), Op::Leave(0), Op::Pass(1)];
    let then = [Op::Consume(1), Op::Leave(0), Op::Consume(9), Op::Pass(1), Op::Pass(1)];
    keeps_the_law(&two, &[&ops[..], &then].concat(), 1, None).unwrap();
}

/// Tests the check itself: a burst twice in the same nanosecond is too much, and so is an early token.
#[test]
fn the_check_detects_an_excess() {
    let quota = Quota::new(1, Duration::from_nanos(10)).burst(3);
    let seen = |log: &[(u64, u64)]| {
        let log: Vec<Seen> = log.iter().map(|(at, cost)| Seen { at: *at, cost: *cost }).collect();
        broken(quota, &log, 0).is_some()
    };
    assert!(!seen(&[(0, 3), (10, 1), (20, 1)]) && !seen(&[(0, 3), (50, 3)]) && !seen(&[(7, 30), (37, 3)]));
    assert!(seen(&[(0, 3), (0, 1)]) && seen(&[(0, 3), (8, 1)]) && seen(&[(0, 3), (10, 1), (18, 1)]));
    assert!(seen(&[(0, 1), (0, 1), (0, 2)]) && seen(&[(7, 30), (35, 3)]));
}
