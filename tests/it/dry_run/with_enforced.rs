//! Quotas in dry run beside enforced ones: the enforced ones grant, delay and refuse as if they were alone.

use crate::fixture::*;

use super::{Call, Made, Step, Trace, trace};
use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::ops::config;
use crate::oracle::{Refill, Rule};

/// A limiter in a trace.
struct Side<'a> {
    limiter: &'a Limiter,
    /// The index that each quota of the trace has here; `None` if it is missing.
    quotas: Vec<Option<usize>>,
    grants: Vec<Option<Grant<'a>>>,
    waiting: Vec<(usize, tokio_test::task::Spawn<tollgate::Consume<'a>>)>,
}

impl<'a> Side<'a> {
    /// A bound, with the index that its quota has in the trace.
    fn bound(&self, by: Bound) -> String {
        match by {
            Bound::Quota(index) => format!("quota {:?}", self.quotas.iter().position(|own| *own == Some(index))),
            by => format!("{by:?}"),
        }
    }

    /// Does `step`, and returns what its caller sees: of a refusal also by which quota of the trace.
    fn step(&mut self, step: &Step) -> String {
        let mut seen = String::new();
        match *step {
            Step::Pass(_) => {}
            Step::Call(Call::Try(cost)) => {
                let answer = self.limiter.try_acquire(unsigned(cost));
                seen = match &answer {
                    Ok(_) => "granted".to_string(),
                    Err(TryAcquireError::Denied(denied)) => {
                        format!("{} {:?} {}", self.bound(denied.by), denied.retry_after, denied.remaining)
                    }
                    Err(TryAcquireError::TooLarge { cost, most, by, .. }) => {
                        format!("{cost} is more than {most} of {}", self.bound(*by))
                    }
                    Err(error) => format!("{error:?}"),
                };
                self.grants.push(answer.ok());
            }
            Step::Call(call) => match call.make(self.limiter) {
                Made::Granted(grant) => {
                    seen = "granted".to_string();
                    self.grants.push(Some(grant));
                }
                Made::Refused(error) => {
                    // The name of the bound has another index on each side.
                    seen =
                        error.split(" by ").next().unwrap_or_default().split("quota").next().unwrap_or_default().into();
                    self.grants.push(None);
                }
                Made::TimedOut => {
                    seen = "timed out".to_string();
                    self.grants.push(None);
                }
                Made::Waits(claim) => {
                    self.waiting.push((self.grants.len(), claim));
                    self.grants.push(None);
                }
            },
            Step::Settle(place, actual) => {
                let count = self.grants.len().max(1);
                if let Some(Some(grant)) = self.grants.get_mut(place % count) {
                    grant.settle(unsigned(actual));
                }
            }
            Step::SetQuota(index, rule) => {
                if let Some(own) = self.quotas[index] {
                    self.limiter.set_quota(own, quota(rule)).expect("valid");
                }
            }
            // Which quotas it fills depends on whether a manual one is there.
            Step::Replenish(_) => {}
            Step::Pause(span) => self.limiter.pause_for(nanoseconds(span)),
            Step::Resume => self.limiter.resume(),
            Step::Cancel(place) => {
                if !self.waiting.is_empty() {
                    let place = place % self.waiting.len();
                    drop(self.waiting.remove(place));
                }
            }
        }
        self.limiter.tick();
        for (place, mut claim) in std::mem::take(&mut self.waiting) {
            match claim.poll() {
                Poll::Pending => self.waiting.push((place, claim)),
                Poll::Ready(answer) => {
                    seen += &format!(", {place} after its wait: {}", answer.is_ok());
                    self.grants[place] = answer.ok();
                }
            }
        }
        let state = self.limiter.snapshot();
        let levels: Vec<i64> = self
            .quotas
            .iter()
            .flatten()
            .map(|own| &state.quotas[*own])
            .filter(|own| !own.dry_run)
            .map(|own| own.level)
            .collect();
        format!("{seen}; {levels:?} {} {} {}", state.waiting_tasks, state.granted, state.refunded)
    }
}

/// Runs the trace on a limiter with all of its quotas, those in `dry` in dry run, and on one with the other quotas only.
fn compare(trace: &Trace, dry: u8) {
    let count = trace.rules.len();
    let is_dry = |index: usize| index + 1 < count && dry >> index & 1 == 1;
    let clock = ManualClock::new();
    let both =
        (0..count).filter(|index| is_dry(*index)).fold(trace.builder(&clock), |it, index| it.dry_run_quota(index));
    let both = both.build().expect("valid");
    let mut quotas = Vec::new();
    let mut kept = Vec::new();
    for (index, rule) in trace.rules.iter().enumerate() {
        quotas.push((!is_dry(index)).then_some(kept.len()));
        kept.extend((!is_dry(index)).then_some(*rule));
    }
    let alone = Trace { rules: kept, ..trace.clone() }.builder(&clock).build().expect("valid");
    let side = |limiter, quotas| Side { limiter, quotas, grants: Vec::new(), waiting: Vec::new() };
    let mut both = side(&both, (0..count).map(Some).collect());
    let mut alone = side(&alone, quotas);
    // A refund of a call that would have waited frees nothing of a calendar quota.
    let is_calendar = |rule: &Rule| matches!(rule.refill, Refill::Calendar { .. });
    let becomes_calendar = |step: &Step| matches!(step, Step::SetQuota(_, rule) if is_calendar(rule));
    let has_calendar = trace.rules.iter().any(is_calendar) || trace.steps.iter().any(becomes_calendar);
    for (number, step) in trace.steps.iter().enumerate() {
        if has_calendar && matches!(step, Step::Settle(..)) {
            continue;
        }
        if let Step::Pass(span) = step {
            clock.advance(nanoseconds(*span));
        }
        assert_eq!(both.step(step), alone.step(step), "{number}: {step:?}");
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn enforced_quotas_do_what_they_do_alone(trace in trace(true), dry in any::<u8>()) {
        compare(&trace, dry);
    }
}
