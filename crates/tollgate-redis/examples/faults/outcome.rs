//! What a fault did, from the grants of all nodes.

use crate::law::{Batch, Law, SECOND};

/// The rate is whole again when the fleet is granted this many hundredths of it from then on.
const WHOLE: i128 = 95;

/// Instants of a trial, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The nodes began to claim.
    pub(crate) began: u64,
    /// The fault began.
    pub(crate) fault: u64,
    /// The fault ended; the same instant if it was one of an instant.
    pub(crate) end: u64,
    /// The nodes were told to stop.
    pub(crate) stopped: u64,
}

/// A change of the quota during the trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) to: Law,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Whole tokens that no lawful schedule explains.
    pub(crate) excess: u64,
    /// The documented bound on the excess.
    pub(crate) allowed: u64,
    /// The tokens granted while the fault lasted, or in the second after a fault of an instant, as a share of the rate.
    pub(crate) kept: f64,
    /// From the end of the fault until the whole rate was granted again, in nanoseconds.
    pub(crate) recovery: u64,
    /// Connections made from the fault on.
    pub(crate) connections: u64,
}

impl Outcome {
    pub(crate) fn of(
        law: Law,
        change: Option<Change>,
        grants: &[Batch],
        times: Times,
        connections: u64,
        allowed: u64,
    ) -> Self {
        // After a change the time runs faster or slower, so that the rate is that of the first quota in all of it.
        let scaled = |at: u64| match change {
            Some(change) if at > change.at => change.at + (at - change.at) * change.to.rate / law.rate,
            _ => at,
        };
        let scale = |batch: &Batch| Batch { first: scaled(batch.first), last: scaled(batch.last), ..*batch };
        let mut grants: Vec<Batch> = grants.iter().map(scale).collect();
        grants.sort_by_key(|batch| batch.last);
        let Times { fault, end, stopped, .. } = times;
        let during = if end - fault < SECOND / 2 { fault..fault + SECOND } else { fault..end };
        let during = scaled(during.start)..scaled(during.end);
        let tokens: u64 = grants.iter().filter(|batch| during.contains(&batch.last)).map(|batch| batch.tokens).sum();
        let law = Law { burst: change.map_or(law.burst, |change| law.burst.max(change.to.burst)), ..law };
        Self {
            excess: law.excess(&grants),
            allowed,
            kept: tokens as f64 / (law.rate as f64 * (during.end - during.start) as f64 / SECOND as f64),
            recovery: recovery(law, &grants, scaled(end), scaled(stopped)),
            connections,
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.excess <= self.allowed
    }
}

/// The time from `end` to the first instant from which on the fleet was granted nineteen twentieths of the rate for a
/// second: in every time that begins there and is no longer. If there is no such instant before `stopped`, the time to the
/// last one that could still be it.
fn recovery(law: Law, grants: &[Batch], end: u64, stopped: u64) -> u64 {
    let due = |at: u64| i128::from(law.rate) * i128::from(at - end) * WHOLE / 100;
    let (mut granted, mut furthest, mut since) = (0, 0, end);
    let after = grants.iter().filter(|batch| (end..stopped).contains(&batch.last));
    for (at, tokens) in after.map(|batch| (batch.last, batch.tokens)).chain([(stopped.max(end), 0)]) {
        // Between two grants the fleet falls behind.
        if granted - due(at.min(since + SECOND)) < furthest {
            (furthest, since) = (granted - due(at), at);
        } else if at > since + SECOND {
            break;
        }
        granted += i128::from(tokens) * i128::from(SECOND);
    }
    since - end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LAW: Law = Law { rate: 1_000, burst: 10 };

    /// One token in each of these milliseconds.
    fn grants(millis: impl Iterator<Item = u64>) -> Vec<Batch> {
        millis.map(|at| Batch { first: at * MS, last: at * MS, tokens: 1 }).collect()
    }

    fn outcome(grants: &[Batch], fault: u64, end: u64) -> Outcome {
        let times = Times { began: 0, fault: fault * MS, end: end * MS, stopped: 4_000 * MS };
        Outcome::of(LAW, None, grants, times, 0, 0)
    }

    #[test]
    fn an_outage_costs_what_it_lasts_and_recovery_counts_from_its_end() {
        let all = grants((0..1_000).chain(1_100..4_000));
        let Outcome { excess, kept, recovery, .. } = outcome(&all, 1_000, 1_000);
        assert_eq!((excess, kept, recovery), (0, 0.9, 100 * MS));
        let Outcome { kept, recovery, .. } = outcome(&grants((0..1_000).chain(2_040..4_000)), 1_000, 2_000);
        assert_eq!((kept, recovery), (0.0, 40 * MS));
        let Outcome { kept, recovery, .. } = outcome(&grants((0..1_000).chain(2_400..4_000)), 1_000, 1_000);
        assert_eq!((kept, recovery), (0.0, 1_400 * MS));
    }

    #[test]
    fn a_fleet_that_loses_nothing_recovers_at_once_and_one_that_stays_slow_does_not_recover() {
        assert_eq!(outcome(&grants(0..4_000), 1_000, 1_000).recovery, 0);
        assert!(outcome(&grants((0..1_000).chain((1_000..4_000).step_by(2))), 1_000, 1_000).recovery > 2_990 * MS);
        // A pause a second later is no part of the fault.
        assert_eq!(outcome(&grants((0..2_100).chain(3_000..4_000)), 1_000, 1_000).recovery, 0);
    }

    #[test]
    fn more_than_the_burst_on_top_of_the_rate_is_an_excess() {
        let mut all = grants(0..4_000);
        all.push(Batch { first: 2_000 * MS, last: 2_000 * MS, tokens: 13 });
        let outcome = outcome(&all, 1_000, 1_000);
        assert_eq!((outcome.excess, outcome.is_kept()), (4, false));
    }

    #[test]
    fn after_a_change_the_new_rate_counts() {
        let change = Change { at: 2_000 * MS, to: Law { rate: 2_000, burst: 20 } };
        let times = Times { began: 0, fault: 2_000 * MS, end: 3_000 * MS, stopped: 4_000 * MS };
        let mut all = grants(0..4_000);
        all.extend(grants(2_000..4_000));
        let changed = Outcome::of(LAW, Some(change), &all, times, 0, 0);
        assert_eq!((changed.excess, changed.kept, changed.recovery), (0, 1.0, 0));
        all.push(Batch { first: 1_000 * MS, last: 1_000 * MS, tokens: 22 });
        // A token of 1,000 ms, and one more than the rate at 2,000 ms, come on top.
        assert_eq!(Outcome::of(LAW, Some(change), &all, times, 0, 0).excess, 4);
    }
}
