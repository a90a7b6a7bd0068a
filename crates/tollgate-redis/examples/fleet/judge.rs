//! Checks the rate law for all nodes together, from the reports of each node, in exact integers.

use crate::Failure;
use crate::law::{Law, SECOND};
use crate::log::Log;
use std::ops::Deref;

/// The store counts active nodes in epochs of this length.
const EPOCH: u64 = SECOND / 4;
/// The step of the search for the tokens that a killed node took. The last part of the run is left out, because late
/// tokens may still come there.
const STEP: u64 = SECOND / 100;
const GLANCE: u64 = SECOND / 5;

pub(crate) struct Verdict {
    /// When the first node sent its first request. The store did not exist before that.
    pub(crate) began: u64,
    /// From then until the first node stopped sending requests, in nanoseconds.
    pub(crate) elapsed: u64,
    /// The tokens granted in that time.
    pub(crate) tokens: u64,
    /// Tokens granted / (burst + rate x elapsed).
    pub(crate) achieved: f64,
    /// Whole tokens above burst + rate x time, at the worst moment since `began`. A late grant counts late, so this
    /// needs no allowance.
    pub(crate) excess_since_start: u64,
    /// The same in the worst of all windows, against burst + rate x (window + `late`): a grant that a timer delivers
    /// late is seen in another window than that of its schedule.
    pub(crate) excess_in_windows: u64,
    /// The longest lateness of a grant, in nanoseconds.
    pub(crate) late: u64,
    /// The fewest tokens of a node / the most, since all nodes were known to the store: the burst at the start goes to
    /// the first nodes.
    pub(crate) fairness: f64,
    pub(crate) trips_per_1000: f64,
    pub(crate) kill: Option<Kill>,
}

/// What happened to the share of a killed node.
pub(crate) struct Kill {
    /// Nanoseconds since the start of the run.
    pub(crate) at: u64,
    /// After this many nanoseconds the others had the whole rate: 95 % of the tokens that no node ever got were lost by
    /// then.
    pub(crate) made_up: u64,
    /// Those tokens.
    pub(crate) lost: u64,
}

impl Verdict {
    pub(crate) fn excess(&self) -> u64 {
        self.excess_since_start.max(self.excess_in_windows)
    }
}

pub(crate) fn judge(
    law: &Law,
    logs: &[impl Deref<Target = Log>],
    killed: Option<(usize, u64)>,
) -> Result<Verdict, Failure> {
    let mut all: Vec<_> = logs.iter().flat_map(|log| log.grants.iter().copied()).collect();
    all.sort_by_key(|batch| batch.last);
    let began = logs.iter().filter_map(|log| log.began).min().ok_or("no node has begun")?;
    let last = all.last().ok_or("nothing was granted")?.last;
    let end = logs.iter().filter_map(|log| log.ended).min().unwrap_or(last);
    let granted: u64 = all.iter().map(|batch| batch.tokens).sum();
    let tokens: u64 = logs.iter().map(|log| log.tokens_in(began..end + 1)).sum();
    let late = logs.iter().map(|log| log.last.late).max().unwrap_or(0);
    let elapsed = end - began;
    let trips: u64 = logs.iter().map(|log| log.last.round_trips).sum();
    Ok(Verdict {
        tokens,
        began,
        elapsed,
        achieved: tokens as f64 / (law.burst as f64 + law.rate as f64 * elapsed as f64 / 1e9),
        excess_since_start: law.excess_since(began, &all),
        excess_in_windows: law.excess(late, &all),
        late,
        fairness: fairness(logs, end, killed),
        trips_per_1000: trips as f64 * 1e3 / granted as f64,
        kill: killed.map(|(victim, at)| made_up(law, logs, victim, at, began, end)),
    })
}

/// While all nodes live; then among the survivors, if that is less fair.
fn fairness(logs: &[impl Deref<Target = Log>], end: u64, killed: Option<(usize, u64)>) -> f64 {
    let all_there = logs.iter().filter_map(|log| log.began).max().unwrap_or(end) + EPOCH;
    let (until, victim) = killed.map_or((end, None), |(victim, at)| (at, Some(victim)));
    let all = ratio(logs.iter().map(|log| log.tokens_in(all_there..until)));
    let survivors = logs.iter().enumerate().filter(|(number, _)| Some(*number) != victim);
    all.min(ratio(survivors.map(|(_, log)| log.tokens_in(until + EPOCH..end))))
}

/// The fewest / the most.
fn ratio(tokens: impl Iterator<Item = u64> + Clone) -> f64 {
    match (tokens.clone().min(), tokens.max()) {
        (Some(least), Some(most)) if most > 0 => least as f64 / most as f64,
        _ => 1.0,
    }
}

/// Late tokens still arrive; tokens promised to a dead node do not. So the tokens lost for good by an instant are the
/// fewest that are missing at any later instant.
fn made_up(law: &Law, logs: &[impl Deref<Target = Log>], victim: usize, at: u64, began: u64, end: u64) -> Kill {
    let others = || logs.iter().enumerate().filter(|(number, _)| *number != victim);
    let due = |time: u64| (u128::from(law.rate) * u128::from(time) / u128::from(SECOND)) as u64;
    let missing = |until: u64| {
        let got: u64 = others().map(|(_, log)| log.tokens_in(at..until)).sum();
        due(until - at).saturating_sub(got)
    };
    let instants: Vec<_> = (at..end.saturating_sub(GLANCE).max(at + 1)).step_by(STEP as usize).collect();
    let mut lost: Vec<_> = instants.iter().map(|until| missing(*until)).collect();
    for i in (1..lost.len()).rev() {
        lost[i - 1] = lost[i - 1].min(lost[i]);
    }
    let all = lost.last().copied().unwrap_or(0);
    let last_step = lost.partition_point(|lost| lost * 20 < all * 19).min(lost.len() - 1);
    Kill { at: at - began, made_up: instants[last_step] - at, lost: all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Batch;

    const LAW: Law = Law { rate: 1_000, burst: 10 };
    const MS: u64 = 1_000_000;

    /// (milliseconds, tokens)
    fn log(grants: &[(u64, u64)]) -> Box<Log> {
        let batch = |&(ms, tokens): &(u64, u64)| Batch { first: ms * MS, last: ms * MS, tokens };
        Box::new(Log { began: Some(0), grants: grants.iter().map(batch).collect(), ..Log::default() })
    }

    #[test]
    fn nodes_that_keep_the_law_together_achieve_one() {
        let verdict = judge(&LAW, &[log(&[(0, 6), (4, 4)]), log(&[(0, 4), (8, 4)])], None).unwrap();
        assert_eq!((verdict.excess(), verdict.tokens, verdict.achieved), (0, 18, 1.0));
        // The tokens of the first quarter of a second go to the first nodes.
        assert_eq!(verdict.fairness, 1.0);
        let verdict = judge(&LAW, &[log(&[(0, 9), (300, 5)]), log(&[(310, 4), (400, 1)])], None).unwrap();
        assert_eq!(verdict.fairness, 0.8);
    }

    #[test]
    fn one_token_too_many_between_them_is_seen() {
        let verdict = judge(&LAW, &[log(&[(0, 6), (4, 4)]), log(&[(0, 4), (8, 5)])], None).unwrap();
        assert_eq!((verdict.excess_since_start, verdict.excess_in_windows), (1, 1));
        // Late in the run, where the law had a margin since the start.
        let verdict = judge(&LAW, &[log(&[(0, 1), (50, 8)]), log(&[(51, 5)])], None).unwrap();
        assert_eq!((verdict.excess_since_start, verdict.excess_in_windows), (0, 2));
    }

    #[test]
    fn a_share_that_is_made_up_late_is_seen() {
        let steady = |from: u64, to: u64, tokens| (from..to).map(move |ms| (ms, tokens)).collect::<Vec<_>>();
        let dead = log(&steady(0, 1_000, 1));
        let alive = log(&[steady(0, 1_300, 1), steady(1_300, 3_000, 2)].concat());
        let law = Law { rate: 2_000, burst: 10 };
        let verdict = judge(&law, &[dead, alive], Some((0, 1_000 * MS))).unwrap();
        let kill = verdict.kill.as_ref().unwrap();
        assert_eq!((kill.at, kill.lost), (1_000 * MS, 300));
        assert!((280..=300).contains(&(kill.made_up / MS)), "{} ms", kill.made_up / MS);
        assert_eq!(verdict.excess(), 0);
    }
}
