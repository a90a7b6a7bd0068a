//! Quotas in dry run: they hold back no call, and their verdicts are what enforcement would have given.

mod cases;
mod keyed;
mod reports;
mod switching;
mod verdicts;
mod with_enforced;

use crate::fixture::*;

use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::ops::{Dice, Scale, any_rule, cost, slide};
use crate::oracle::ops::{Setup, any_scale};
use crate::oracle::{self, Answer, Id, Int, Oracle, Rule};

/// A grant has 62 bits for a wait, and one value stands for an unknown wait.
const LONGEST: Int = (1 << 62) - 2;

/// What the oracle says about a call, in the words of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Wait(Option<Int>),
    Refused(Bound),
}

fn verdict_of(grant: &Grant<'_>) -> Verdict {
    match (grant.would_have_waited(), grant.would_have_been_refused()) {
        (wait, None) => Verdict::Wait(wait.map(|wait| wait.as_nanos() as Int)),
        (None, Some(by)) => Verdict::Refused(by),
        (Some(_), Some(_)) => panic!("waits and is refused: {grant:?}"),
    }
}

/// A call on a limiter.
#[derive(Clone, Copy, Debug)]
enum Call {
    Try(Int),
    Consume(Int),
    Within(Int, Int),
}

impl Call {
    fn cost(self) -> Int {
        match self {
            Self::Try(cost) | Self::Consume(cost) | Self::Within(cost, _) => cost,
        }
    }

    /// Makes the call on the oracle.
    fn ask(self, oracle: &mut Oracle, now: Int, id: Id) -> Verdict {
        let cost = self.cost();
        let estimate = oracle.estimate(now, cost);
        let answer = match self {
            Self::Try(cost) => oracle.try_acquire(now, id, cost),
            Self::Consume(cost) => oracle.consume(now, id, cost),
            Self::Within(cost, allowed) => oracle.consume_within(now, id, cost, allowed),
        };
        match answer {
            Answer::Granted => Verdict::Wait(Some(0)),
            Answer::Waits => Verdict::Wait(estimate.map(|wait| wait.min(LONGEST))),
            Answer::QueueFull { .. } => Verdict::Refused(Bound::Queue),
            Answer::TooLate { .. } => Verdict::Refused(Bound::Quota(usize::MAX)),
            Answer::TooLarge { .. } => Verdict::Refused(Bound::Quota(usize::MAX)),
            Answer::Denied { by, .. } => Verdict::Refused(match by {
                oracle::Bound::Quota(index) => Bound::Quota(index),
                oracle::Bound::InFlight => Bound::InFlight,
                oracle::Bound::Pause => Bound::Pause,
                oracle::Bound::Queue => Bound::Queue,
            }),
            other => panic!("{other:?}"),
        }
    }

    /// Makes the call on a limiter: a grant, a refusal, or a claim that waits.
    fn make<'a>(self, limiter: &'a Limiter) -> Made<'a> {
        let mut claim = match self {
            Self::Try(cost) => {
                return limiter
                    .try_acquire(unsigned(cost))
                    .map_or_else(|error| Made::Refused(error.to_string()), Made::Granted);
            }
            Self::Consume(cost) => spawn(limiter.consume(unsigned(cost))),
            Self::Within(cost, allowed) => spawn(limiter.consume(unsigned(cost)).within(nanoseconds(allowed))),
        };
        match claim.poll() {
            Poll::Ready(Ok(grant)) => Made::Granted(grant),
            Poll::Ready(Err(ConsumeError::TimedOut { .. })) => Made::TimedOut,
            Poll::Ready(Err(error)) => Made::Refused(error.to_string()),
            Poll::Pending => Made::Waits(claim),
        }
    }
}

#[derive(Debug)]
enum Made<'a> {
    Granted(Grant<'a>),
    Refused(String),
    /// It waited for no time, and left.
    TimedOut,
    Waits(Spawn<Consume<'a>>),
}

/// Whether the limiter's verdict is that of the oracle, which does not name the quota that is too late or too small.
fn agree(own: Verdict, oracle: Verdict) -> bool {
    match (own, oracle) {
        (Verdict::Refused(Bound::Quota(_) | Bound::Pause), Verdict::Refused(Bound::Quota(usize::MAX))) => true,
        (own, oracle) => own == oracle,
    }
}

/// A claim that waits, and the oracle's verdict on it.
type Waiting<'a> = (Id, Verdict, Spawn<Consume<'a>>);

/// Polls the claims that wait. Returns the grants, with the verdicts that they should have.
fn poll_all<'a>(waiting: &mut Vec<Waiting<'a>>, oracle: &mut Oracle, now: Int) -> Vec<(Id, Grant<'a>)> {
    let mut grants = Vec::new();
    for (id, verdict, mut claim) in std::mem::take(waiting) {
        match claim.poll() {
            Poll::Pending => waiting.push((id, verdict, claim)),
            Poll::Ready(Ok(grant)) => {
                assert!(agree(verdict_of(&grant), verdict), "{id} waited: {grant:?}, {verdict:?}");
                grants.push((id, grant));
            }
            Poll::Ready(Err(error)) => {
                assert!(matches!(error, ConsumeError::TimedOut { .. }), "{id}: {error}");
                leave(oracle, now, id, verdict);
            }
        }
    }
    grants
}

/// A claim has left the limiter's queue; the oracle had this verdict on it.
fn leave(oracle: &mut Oracle, now: Int, id: Id, verdict: Verdict) {
    if !matches!(verdict, Verdict::Refused(_)) {
        oracle.cancel(now, id);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(Int),
    Call(Call),
    /// Settles one of the grants.
    Settle(usize, Int),
    SetQuota(usize, Rule),
    Replenish(Int),
    Pause(Int),
    Resume,
    /// Drops a claim that waits.
    Cancel(usize),
}

#[derive(Clone, Debug)]
struct Trace {
    rules: Vec<Rule>,
    max_waiting: u64,
    rovers_at: u64,
    steps: Vec<Step>,
}

impl Trace {
    fn oracle(&self) -> Oracle {
        let mut oracle = Oracle::new(&self.rules, None, self.max_waiting);
        oracle.in_dry_run = true;
        oracle
    }

    /// Makes half of the rules sliding.
    fn with_windows(mut self) -> Self {
        self.rules.iter_mut().step_by(2).for_each(slide);
        for step in &mut self.steps {
            if let Step::SetQuota(_, rule) = step
                && rule.initial == rule.burst
            {
                slide(rule);
            }
        }
        self
    }

    fn builder(&self, clock: &ManualClock) -> Builder {
        let builder = Limiter::builder().clock(clock.clone()).max_waiting(self.max_waiting).rovers_at(self.rovers_at);
        self.rules.iter().fold(builder, |builder, &rule| builder.quota(quota(rule)))
    }
}

/// Traces of arrivals, and with `changes` of everything else that changes a queue.
fn trace(changes: bool) -> impl Strategy<Value = Trace> {
    let dice = any::<Dice>;
    let rules = prop::collection::vec(dice(), 1..4);
    let max_waiting = prop_oneof![4 => Just(1_000), 1 => 0_u64..5];
    let rovers_at = prop_oneof![2 => Just(0), 1 => (0_u64..300).prop_map(|below| u64::MAX - below)];
    (any_scale(), rules, max_waiting, rovers_at, prop::collection::vec(dice(), 1..80)).prop_map(
        move |(scale, rules, max_waiting, rovers_at, dice)| {
            let rules: Vec<Rule> = rules.into_iter().map(|dice| any_rule(scale, dice)).collect();
            let setup = Setup { rules: rules.clone(), max_in_flight: None, max_waiting, rovers_at, watched: false };
            let steps = dice.into_iter().map(|dice| step(&setup, scale, dice, changes)).collect();
            Trace { rules, max_waiting, rovers_at, steps }
        },
    )
}

fn step(setup: &Setup, scale: Scale, (kind, a, b, c): Dice, changes: bool) -> Step {
    let price = cost(setup, scale, a, b).max(1);
    let span = Int::from(c % 64) * scale.nanoseconds / Int::from(1 + a % 4);
    match kind % 32 {
        0..=8 => Step::Call(Call::Consume(price)),
        9..=12 => Step::Call(Call::Try(price)),
        13..=16 => Step::Call(Call::Within(price, span)),
        17..=18 if changes => Step::Settle(b.into(), price / 2 * Int::from(c % 4)),
        19 if changes => Step::SetQuota(usize::from(b) % setup.rules.len(), any_rule(scale, (a as u8, b, c, a))),
        20 if changes => Step::Replenish(price),
        21 if changes => Step::Pause(span),
        24 if changes => Step::Resume,
        22..=23 if changes => Step::Cancel(b.into()),
        _ => Step::Pass(span),
    }
}
