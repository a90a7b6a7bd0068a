//! Random histories of grabs, replenishes and releases: grants have the order of the grabs, and every window grants at
//! most the burst and the rate.

use super::{bucket, capped, nanos};
use proptest::prelude::*;
use tollgate::{Bucket, Quota, Ticket};

#[derive(Clone, Copy, Debug)]
enum Op {
    Grab(u64),
    Pass(u64),
    Replenish,
    Release(u64),
}

fn ops(most: u64) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1..=most).prop_map(Op::Grab),
        2 => (1_u64..3_000).prop_map(Op::Pass),
        3 => Just(Op::Replenish),
        2 => (1_u64..5).prop_map(Op::Release),
    ];
    prop::collection::vec(op, 1..150)
}

/// A claim that was seen granted: it was due at `from`, the previous replenish, at the earliest.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: u64,
    at: u64,
    cost: u64,
}

/// The bucket of one history.
struct History<C> {
    bucket: Bucket<C>,
    now: u64,
    replenished: u64,
    waiting: Vec<(Ticket, u64)>,
    seen: Vec<Seen>,
}

impl<C> History<C> {
    fn new(bucket: Bucket<C>) -> Self {
        Self { bucket, now: 0, replenished: 0, waiting: Vec::new(), seen: Vec::new() }
    }

    fn grab(&mut self, cost: u64) -> Result<(), TestCaseError> {
        let ticket = self.bucket.grab(cost);
        self.waiting.push((ticket, cost));
        self.look(self.now)
    }

    fn replenish(&mut self) -> Result<(), TestCaseError> {
        self.bucket.replenish(nanos(self.now));
        let from = std::mem::replace(&mut self.replenished, self.now);
        self.look(from)
    }

    /// A granted claim comes before every waiting one: grants have the order of the grabs.
    fn look(&mut self, from: u64) -> Result<(), TestCaseError> {
        let lacking = |&(ticket, _): &(Ticket, u64)| self.bucket.deficiency(ticket);
        let granted = self.waiting.iter().take_while(|claim| lacking(claim) == 0).count();
        let left: Vec<u64> = self.waiting[granted..].iter().map(lacking).collect();
        prop_assert!(left.iter().all(|&lacks| lacks > 0), "a claim overtook another: {:?}", left);
        prop_assert!(left.is_sorted_by(|a, b| a < b), "{:?}", left);
        let seen = self.waiting.drain(..granted).map(|(_, cost)| Seen { from, at: self.now, cost });
        self.seen.extend(seen);
        Ok(())
    }

    fn granted(&self) -> u64 {
        self.seen.iter().map(|seen| seen.cost).sum()
    }

    /// Every window grants at most the burst and what the rate brings, at `micros` per token. A window that opens with
    /// a grant seen late is longer by that lateness. Time is counted in whole nanoseconds, hence the extra one.
    fn check(&self, burst: u64, micros: u64) -> Result<(), TestCaseError> {
        for (index, opens) in self.seen.iter().enumerate() {
            let mut granted = 0;
            for closes in &self.seen[index..] {
                granted += closes.cost;
                let most = burst + (closes.at - opens.from + 1) / (micros * 1_000);
                prop_assert!(granted <= most, "{} granted from {:?} to {:?}, at most {}", granted, opens, closes, most);
            }
        }
        Ok(())
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_keeps_the_order_and_the_rate(
        (burst, ops) in (1_u64..12).prop_flat_map(|burst| (Just(burst), ops(burst))),
        micros in 1_u64..3,
    ) {
        keep_order_and_rate(burst, micros, ops)?;
    }

    #[test]
    fn any_capped_history_keeps_the_order_the_rate_and_the_cap(
        burst in 1_u64..12,
        cap in 1_u64..12,
        micros in 1_u64..3,
        ops in ops(1),
    ) {
        keep_order_rate_and_cap(burst, cap, micros, ops)?;
    }

    #[test]
    fn any_capped_history_with_large_claims_keeps_the_order_the_rate_and_the_cap(
        (burst, cap, ops) in (2_u64..12, 2_u64..12).prop_flat_map(|(burst, cap)| (Just(burst), Just(cap), ops(burst.min(cap)))),
        micros in 1_u64..3,
    ) {
        keep_order_rate_and_cap(burst, cap, micros, ops)?;
    }
}

fn keep_order_and_rate(burst: u64, micros: u64, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut history = History::new(bucket(Quota::new(1, nanos(micros * 1_000)).burst(burst)));
    for op in ops {
        match op {
            Op::Grab(cost) => history.grab(cost)?,
            Op::Pass(time) => history.now += time,
            Op::Replenish => history.replenish()?,
            Op::Release(_) => {}
        }
    }
    history.check(burst, micros)?;
    // A claim on a bucket that may have been full counts from the next replenish; the second one brings its tokens.
    history.replenish()?;
    history.now += 150 * 12 * micros * 1_000;
    history.replenish()?;
    prop_assert_eq!(history.waiting.len(), 0, "stranded");
    Ok(())
}

fn keep_order_rate_and_cap(burst: u64, cap: u64, micros: u64, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut history = History::new(capped(Quota::new(1, nanos(micros * 1_000)).burst(burst), cap));
    let mut released = 0;
    for op in ops {
        match op {
            Op::Grab(cost) => history.grab(cost)?,
            Op::Pass(time) => history.now += time,
            Op::Replenish => history.replenish()?,
            Op::Release(wanted) => {
                let landing = wanted.min(history.granted() - released);
                history.bucket.release(landing);
                released += landing;
            }
        }
        prop_assert!(history.granted() - released <= cap, "more in flight than the cap");
    }
    history.check(burst, micros)?;
    for _ in 0..300 {
        history.bucket.release(history.granted() - released);
        released = history.granted();
        history.replenish()?;
        history.now += 12 * micros * 1_000;
    }
    prop_assert_eq!(history.waiting.len(), 0, "stranded");
    Ok(())
}
