//! Checks the rate law for all nodes together, from the reports of each node, in exact integers.

use crate::Failure;
use crate::law::{Law, SECOND};
use crate::log::Log;
use crate::promise::longest;
use std::ops::Deref;

/// The store counts active nodes in epochs of this length.
const EPOCH: u64 = SECOND / 4;

pub(crate) struct Verdict {
    /// When the first node sent its first request. The store did not exist before that.
    pub(crate) began: u64,
    /// From then until the first node stopped sending requests, in nanoseconds.
    pub(crate) elapsed: u64,
    /// The tokens granted in that time.
    pub(crate) tokens: u64,
    /// Tokens granted / (burst + rate x elapsed).
    pub(crate) achieved: f64,
    /// Whole tokens above the allowed number, at the instants of the schedule.
    pub(crate) excess: u64,
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
    /// After this many nanoseconds the last token came that the store had promised to the killed node. From then on the
    /// others have the whole rate.
    pub(crate) promised: u64,
    /// The longest time for which a store promises tokens, by the rules of the nodes.
    pub(crate) bound: u64,
    /// The tokens that the node was leased and did not grant.
    pub(crate) lost: u64,
}

impl Verdict {
    pub(crate) fn is_kept(&self) -> bool {
        self.excess == 0 && self.kill.as_ref().is_none_or(|kill| kill.promised <= kill.bound)
    }
}

pub(crate) fn judge(
    law: &Law,
    logs: &[impl Deref<Target = Log>],
    killed: Option<(usize, u64)>,
) -> Result<Verdict, Failure> {
    let all: Vec<_> = logs.iter().flat_map(|log| log.grants.iter().copied()).collect();
    let began = logs.iter().filter_map(|log| log.began).min().ok_or("no node has begun")?;
    let last = all.iter().map(|batch| batch.last).max().ok_or("nothing was granted")?;
    let end = logs.iter().filter_map(|log| log.ended).min().unwrap_or(last);
    let granted: u64 = all.iter().map(|batch| batch.tokens).sum();
    let tokens: u64 = logs.iter().map(|log| log.tokens_in(began..end + 1)).sum();
    let elapsed = end - began;
    let trips: u64 = logs.iter().map(|log| log.last.round_trips).sum();
    Ok(Verdict {
        tokens,
        began,
        elapsed,
        achieved: tokens as f64 / (law.burst as f64 + law.rate as f64 * elapsed as f64 / 1e9),
        excess: law.excess(&all),
        fairness: fairness(logs, end, killed),
        trips_per_1000: trips as f64 * 1e3 / granted as f64,
        kill: killed.map(|(victim, at)| share_of(law, logs, victim, at, began)),
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

fn share_of(law: &Law, logs: &[impl Deref<Target = Log>], victim: usize, at: u64, began: u64) -> Kill {
    let log = &logs[victim];
    let until = log.leases.iter().map(|lease| lease.until).max().unwrap_or(at);
    let leased: u64 = log.leases.iter().map(|lease| lease.tokens).sum();
    let bound = longest(law, logs.len(), logs.iter().flat_map(|log| &log.leases), at);
    Kill { at: at - began, promised: until.saturating_sub(at), bound, lost: leased.saturating_sub(log.tokens()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Batch;
    use crate::report::Lease;

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
        assert_eq!((verdict.excess, verdict.tokens, verdict.achieved), (0, 18, 1.0));
        // The tokens of the first quarter of a second go to the first nodes.
        assert_eq!(verdict.fairness, 1.0);
        let verdict = judge(&LAW, &[log(&[(0, 9), (300, 5)]), log(&[(310, 4), (400, 1)])], None).unwrap();
        assert_eq!(verdict.fairness, 0.8);
    }

    #[test]
    fn one_token_too_many_between_them_is_seen() {
        let verdict = judge(&LAW, &[log(&[(0, 6), (4, 4)]), log(&[(0, 4), (8, 5)])], None).unwrap();
        assert_eq!(verdict.excess, 1);
        // Late in the run, where the law had a margin since the start; and whatever the lateness of other grants.
        let late = Batch { first: 0, last: 40 * MS, tokens: 1 };
        let mut one = log(&[(0, 1), (50, 8)]);
        one.grants.push(late);
        let verdict = judge(&LAW, &[one, log(&[(51, 5)])], None).unwrap();
        assert_eq!((verdict.excess, verdict.is_kept()), (2, false));
    }

    #[test]
    fn a_share_that_was_promised_for_too_long_is_seen() {
        let lease = |until: u64| Lease { tokens: 30, until: until * MS, took: MS, busy: 2 };
        let kept = |until| {
            let (mut dead, mut alive) = (log(&[(990, 20)]), log(&[(2_000, 20)]));
            dead.leases = vec![lease(960), lease(until)];
            alive.leases = vec![lease(990)];
            let verdict = judge(&Law { rate: 1_000, burst: 100 }, &[dead, alive], Some((0, 1_000 * MS))).unwrap();
            let kill = verdict.kill.as_ref().unwrap();
            assert_eq!((kill.at, kill.promised, kill.lost), (1_000 * MS, (until - 1_000) * MS, 40));
            // 25 ms before the end of a share, two shares of 50 ms, and a round trip.
            assert_eq!(kill.bound, 126 * MS);
            verdict.is_kept()
        };
        assert_eq!([1_000, 1_126, 1_127].map(kept), [true, true, false]);
    }
}
