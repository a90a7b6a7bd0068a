//! Random feedback: the rate stays within its bounds, the rate law of the current quota holds, and no signal counts
//! twice.

use crate::fixture::*;
use crate::oracle::ops::config;
use crate::oracle::{Answer, Int, Oracle, Refill, Rule};
use tollgate::adaptive::{AdaptiveConsume, AdaptiveGrant};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Nanoseconds.
    Pass(u64),
    Consume(u64),
    /// Indices of outstanding grants, modulo their number.
    Cancel(usize),
    Succeed(usize),
    Throttle(usize, Option<Duration>),
    Ignore(usize),
    /// Feedback on a request that did not get its tokens here.
    Attempt(u64, bool, Option<Duration>),
}

fn pause() -> impl Strategy<Value = Option<Duration>> {
    let extremes = prop_oneof![Just(Duration::ZERO), Just(Duration::MAX), Just(Duration::from_nanos(1))];
    prop_oneof![4 => Just(None), 2 => (0..3_000u64).prop_map(|ms| Some(Duration::from_millis(ms))), 1 => extremes.prop_map(Some)]
}

fn op() -> impl Strategy<Value = Op> {
    let cost = prop_oneof![8 => 0..4u64, 1 => 4..200u64];
    prop_oneof![
        4 => (0..400_000_000u64).prop_map(Op::Pass),
        1 => (0..100_000_000_000u64).prop_map(Op::Pass),
        6 => cost.clone().prop_map(Op::Consume),
        1 => any::<usize>().prop_map(Op::Cancel),
        4 => any::<usize>().prop_map(Op::Succeed),
        2 => (any::<usize>(), pause()).prop_map(|(place, pause)| Op::Throttle(place, pause)),
        1 => any::<usize>().prop_map(Op::Ignore),
        1 => (any::<u64>(), any::<bool>(), pause()).prop_map(|(cost, waited, pause)| Op::Attempt(cost, waited, pause)),
    ]
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn the_law_of_the_current_rate_holds_under_random_feedback(
        ops in prop::collection::vec(op(), 0..80),
        slowest in 1..50u64,
        span in 0..10_000u64,
        burst in prop::option::of(1..30u64),
    ) {
        World::new(slowest, slowest + span, burst).run(&ops)?;
    }
}

/// The limiter, the oracle, and the feedback so far.
struct World {
    adaptive: Adaptive,
    clock: ManualClock,
    bounds: (f64, f64),
    oracle: Oracle,
    now: Int,
    waiting: VecDeque<(usize, Spawn<AdaptiveConsume>)>,
    sent: Vec<AdaptiveGrant>,
    callers: usize,
    granted: Vec<usize>,
    accepted: u64,
    refused: u64,
}

fn rule(quota: Quota) -> Rule {
    let refill = Refill::Continuous { amount: quota.amount().into(), period: quota.period().as_nanos() as Int };
    Rule { refill, burst: quota.capacity().into(), initial: quota.capacity().into() }
}

impl World {
    fn new(slowest: u64, fastest: u64, burst: Option<u64>) -> Self {
        let clock = ManualClock::new();
        let mut settings = Adaptive::between(Quota::per_second(slowest), Quota::per_second(fastest)).seed(1);
        if let Some(burst) = burst {
            settings = settings.burst(burst);
        }
        let start = settings.clone().build().unwrap().snapshot().rate;
        let limiter = Limiter::builder().quota(start).clock(clock.clone()).build().unwrap();
        let adaptive = settings.drive(&limiter).unwrap();
        Self {
            bounds: (slowest as f64, fastest as f64),
            oracle: Oracle::new(&[rule(start)], None, u64::MAX),
            now: 0,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            callers: 0,
            granted: Vec::new(),
            accepted: 0,
            refused: 0,
            adaptive,
            clock,
        }
    }

    fn run(mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for op in ops {
            let before = self.adaptive.snapshot();
            self.apply(*op);
            let seen = self.adaptive.snapshot();
            self.poll();
            let (slowest, fastest) = self.bounds;
            prop_assert!((slowest..=fastest).contains(&self.adaptive.tokens_per_second()));
            prop_assert!(seen.rate.amount() > 0 && seen.rate.check_rate(slowest, fastest), "{}", seen.rate);
            prop_assert_eq!(self.adaptive.limiter().snapshot().quotas[0].quota, seen.rate);
            prop_assert_eq!((seen.accepted, seen.refused), (self.accepted, self.refused));
            let changes = |it: &tollgate::adaptive::AdaptiveSnapshot| it.changes().iter().map(|(_, n)| n).sum::<u64>();
            let signals = seen.accepted + seen.refused - before.accepted - before.refused;
            prop_assert!(changes(&seen) - changes(&before) <= signals, "a signal changed the rate twice");
            let log: Vec<usize> = self.oracle.log().iter().map(|grant| grant.id).collect();
            prop_assert_eq!(&self.granted, &log, "the oracle grants the same callers");
            prop_assert_eq!(Int::from(self.adaptive.limiter().available()), self.oracle.available());
        }
        Ok(())
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass(nanos) => {
                self.clock.advance(Duration::from_nanos(nanos));
                self.now += Int::from(nanos);
                self.adaptive.limiter().tick();
                self.oracle.advance(self.now);
            }
            Op::Consume(cost) => self.consume(cost),
            Op::Cancel(place) if !self.waiting.is_empty() => {
                let place = place % self.waiting.len();
                let (id, claim) = self.waiting.remove(place).unwrap();
                drop(claim);
                self.oracle.cancel(self.now, id);
            }
            Op::Succeed(place) | Op::Throttle(place, _) | Op::Ignore(place) if !self.sent.is_empty() => {
                let grant = self.sent.swap_remove(place % self.sent.len());
                match op {
                    Op::Throttle(_, pause) => self.throttle(grant.cost(), pause, |pause| grant.throttled(pause)),
                    Op::Ignore(_) => grant.ignored(),
                    _ => self.succeed(|| grant.succeeded()),
                }
            }
            Op::Attempt(cost, waited, Some(pause)) => {
                let attempt = self.adaptive.attempt(cost, waited);
                self.throttle(cost, Some(pause), |pause| attempt.throttled(pause));
            }
            Op::Attempt(cost, waited, None) => {
                let attempt = self.adaptive.attempt(cost, waited);
                self.succeed(|| drop(attempt));
            }
            _ => {}
        }
    }

    fn consume(&mut self, cost: u64) {
        let id = self.callers;
        self.callers += 1;
        let mut claim = spawn(self.adaptive.consume(cost));
        let answer = self.oracle.consume(self.now, id, cost.into());
        match claim.poll() {
            Poll::Ready(grant) => {
                assert_eq!(answer, Answer::Granted);
                self.granted.push(id);
                self.sent.push(grant.unwrap());
            }
            Poll::Pending => self.waiting.push_back((id, claim)),
        }
    }

    fn succeed(&mut self, report: impl FnOnce()) {
        report();
        self.accepted += 1;
        self.follow();
    }

    fn throttle(&mut self, cost: u64, pause: Option<Duration>, report: impl FnOnce(Option<Duration>)) {
        let paused = |adaptive: &Adaptive| adaptive.limiter().snapshot().paused_for.unwrap_or_default();
        let before = paused(&self.adaptive);
        report(pause);
        self.refused += 1;
        self.follow();
        // The bounds in the documentation: the pause that the server wants, and at most two intervals more.
        let longest = Duration::from_secs(600);
        let pause = pause.unwrap_or_default().min(longest);
        let intervals = Duration::try_from_secs_f64(2.0 * cost.max(1) as f64 / self.bounds.0).unwrap_or(longest);
        let after = paused(&self.adaptive);
        assert!(after >= pause.max(before) && after <= pause.saturating_add(intervals).min(longest).max(before));
        self.oracle.pause_for(self.now, after.as_nanos() as Int);
    }

    /// Gives the oracle the quota that the limiter now has.
    fn follow(&mut self) {
        self.oracle.set_quota(self.now, 0, rule(self.adaptive.snapshot().rate));
    }

    fn poll(&mut self) {
        while let Some((id, claim)) = self.waiting.front_mut() {
            let Poll::Ready(grant) = claim.poll() else { break };
            self.granted.push(*id);
            self.sent.push(grant.unwrap());
            self.waiting.pop_front();
        }
    }
}

trait CheckRate {
    fn check_rate(&self, slowest: f64, fastest: f64) -> bool;
}

impl CheckRate for Quota {
    /// Compares exactly, in integers.
    fn check_rate(&self, slowest: f64, fastest: f64) -> bool {
        let tokens = u128::from(self.amount()) * 1_000_000_000;
        let within = |rate: f64| rate as u128 * self.period().as_nanos();
        tokens >= within(slowest) && tokens <= within(fastest)
    }
}
