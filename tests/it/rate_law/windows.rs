//! The rate law in every window of random histories in which the quota changes, checked on what callers saw, without a model
//! of the limiter. `oracle_histories` checks it for several quotas, for tokens published ahead and for late drivers.

use crate::fixture::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Try(u64),
    Consume(u64),
    /// A claim is cancelled.
    Leave(usize),
    /// A grant is settled for this many tokens.
    Settle(usize, u64),
    /// The quota is replaced by this one.
    Change(Quota),
    Pass(u64),
}

fn quota(tokens: u64, nanos: u64) -> impl Strategy<Value = Quota> {
    let continuous = (1..tokens, 1..nanos, 1..tokens, 0..tokens).prop_map(|(amount, period, burst, initial)| {
        Quota::new(amount, Duration::from_nanos(period)).burst(burst).initial(initial.min(burst))
    });
    let stepped = (1..tokens, 1..nanos, 0..tokens, 0..tokens).prop_map(|(amount, period, more, initial)| {
        let burst = amount + more;
        Quota::new(amount, Duration::from_nanos(period)).burst(burst).initial(initial.min(burst)).stepped()
    });
    let sliding =
        (1..tokens, 1..nanos).prop_map(|(amount, period)| Quota::new(amount, Duration::from_nanos(period)).sliding());
    prop_oneof![3 => continuous, 1 => stepped, 1 => sliding]
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
struct History<'a> {
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    waiters: Vec<Spawn<Consume<'a>>>,
    quota: Quota,
    /// Grants that can be settled.
    grants: Vec<Grant<'a>>,
    events: Vec<Event>,
    /// For a stepped quota: how many nanoseconds of the period have passed.
    passed: u64,
    /// For a sliding quota: the instants of the tokens in the window, and their number. All it could hold came with the change.
    window: Vec<(usize, u64)>,
    /// What each nanosecond has brought, in fractions of a token: evenly, or at the end of a period.
    brought: Vec<(u128, u128)>,
}

impl<'a> History<'a> {
    fn new(limiter: &'a Limiter, clock: &'a ManualClock, quota: Quota) -> Self {
        let (waiters, grants, events) = Default::default();
        let (window, brought) = (vec![(0, quota.capacity())], vec![(Self::evenly(quota), 0)]);
        Self { limiter, clock, waiters, quota, grants, events, passed: 0, window, brought }
    }

    fn evenly(quota: Quota) -> u128 {
        let is_even = !quota.is_stepped() && !quota.is_manual() && !quota.is_sliding();
        if is_even { u128::from(quota.amount()) * PARTS / quota.period().as_nanos() } else { 0 }
    }

    fn see(&mut self, grant: Grant<'a>) {
        let (at, burst) = (self.brought.len() - 1, self.quota.capacity());
        self.events.push(Event::Granted { at, cost: grant.cost(), burst });
        self.window.push((at, grant.cost()));
        if self.quota.is_sliding() {
            // It waited when the amount became less than its cost, which takes the place of the amount.
            self.brought[at].0 += u128::from(grant.cost().saturating_sub(burst)) * PARTS;
        }
        self.grants.push(grant);
    }

    fn look(&mut self) {
        let mut served = Vec::new();
        self.waiters.retain_mut(|claim| {
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
            if self.quota.is_sliding() {
                at_once = self.slide(self.brought.len());
            }
            self.brought.push((Self::evenly(self.quota), at_once));
            self.clock.advance(Duration::from_nanos(1));
            self.limiter.tick();
            self.look();
        }
    }

    /// What leaves the window by `now`, in fractions of a token.
    fn slide(&mut self, now: usize) -> u128 {
        let period = self.quota.period().as_nanos() as usize;
        let (gone, kept): (Vec<_>, _) = self.window.iter().partition(|(at, _)| at + period <= now);
        self.window = kept;
        gone.iter().map(|(_, tokens)| u128::from(*tokens) * PARTS).sum()
    }

    /// The elapsed share of a period carries over from one stepped quota to another.
    fn change(&mut self, quota: Quota) {
        let nanos = |quota: Quota| quota.period().as_nanos() as u64;
        let is_step = self.quota.is_stepped() && quota.is_stepped();
        self.passed = if is_step { self.passed * nanos(quota) / nanos(self.quota) } else { 0 };
        let (now, was) = (self.brought.len() - 1, self.quota);
        self.quota = quota;
        self.limiter.set_quota(0, quota).unwrap();
        if quota.is_sliding() && was.is_sliding() {
            let raised = quota.amount().saturating_sub(was.amount());
            self.brought[now].0 += self.slide(now) + u128::from(raised) * PARTS;
        } else if quota.is_sliding() {
            self.window = vec![(now, quota.amount())];
        }
        // What this nanosecond brings from now on was not brought before the change.
        let now = self.brought.last_mut().unwrap();
        now.0 = now.0.max(Self::evenly(quota));
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Try(cost) => {
                if let Ok(grant) = self.limiter.try_acquire(cost) {
                    self.see(grant);
                }
            }
            Op::Consume(cost) => {
                let mut claim = spawn(self.limiter.consume(cost));
                match claim.poll() {
                    Poll::Ready(Ok(grant)) => self.see(grant),
                    // Above the amount of a sliding quota.
                    Poll::Ready(Err(error)) => assert!(matches!(error, ConsumeError::TooLarge { .. }), "{error}"),
                    Poll::Pending => self.waiters.push(claim),
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
            Op::Leave(place) if !self.waiters.is_empty() => drop(self.waiters.remove(place % self.waiters.len())),
            Op::Leave(_) => {}
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

fn ops(costs: u64, quotas: impl Strategy<Value = Quota>) -> impl Strategy<Value = Vec<Op>> {
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

fn keeps_the_law(quota: Quota, ops: &[Op]) -> Result<(), TestCaseError> {
    let (limiter, clock) = built(Limiter::builder().quota(quota));
    let mut history = History::new(&limiter, &clock, quota);
    ops.iter().for_each(|op| history.play(*op));
    prop_assert_eq!(history.broken(), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The law with refunds: the refunds of a window are subtracted from its grants. And with changes of the quota: a
    /// window can bring what each quota brings in its own time. The queue is served in every nanosecond, so callers see the
    /// schedule itself.
    #[test]
    fn no_window_holds_more_with_refunds_and_changes_of_the_quota(
        first in quota(12, 15),
        ops in ops(14, prop_oneof![6 => quota(12, 15), 1 => (1_u64..12).prop_map(Quota::manual)]),
    ) {
        keeps_the_law(first, &ops)?;
    }
}
