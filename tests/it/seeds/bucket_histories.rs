//! Random histories of a `Bucket`: grants have the order of the grabs, every window grants at most the burst and the
//! rate, no more is in flight than the cap, and no claim is stranded.

use super::seastar::{bucket, capped};
use crate::fixture::*;
use tollgate::Ticket;

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

struct History<'a, C> {
    bucket: &'a Bucket<C>,
    now: u64,
    replenished: u64,
    waiting: Vec<(Ticket, u64)>,
    seen: Vec<Seen>,
    released: u64,
}

impl<C> History<'_, C> {
    fn replenish(&mut self) -> Result<(), TestCaseError> {
        self.bucket.replenish(Duration::from_nanos(self.now));
        let from = std::mem::replace(&mut self.replenished, self.now);
        self.look(from)
    }

    /// A granted claim comes before every waiting one.
    fn look(&mut self, from: u64) -> Result<(), TestCaseError> {
        let lacks: Vec<u64> = self.waiting.iter().map(|(ticket, _)| self.bucket.deficiency(*ticket)).collect();
        let granted = lacks.iter().take_while(|lacks| **lacks == 0).count();
        let is_fair = lacks[granted..].is_sorted_by(|a, b| a < b) && !lacks[granted..].contains(&0);
        prop_assert!(is_fair, "a claim overtook another: {:?}", lacks);
        let seen = self.waiting.drain(..granted).map(|(_, cost)| Seen { from, at: self.now, cost });
        self.seen.extend(seen);
        Ok(())
    }

    fn in_flight(&self) -> u64 {
        self.seen.iter().map(|seen| seen.cost).sum::<u64>() - self.released
    }

    fn play(&mut self, op: Op, release: impl Fn(u64)) -> Result<(), TestCaseError> {
        match op {
            Op::Grab(cost) => {
                self.waiting.push((self.bucket.grab(cost), cost));
                self.look(self.now)?;
            }
            Op::Pass(time) => self.now += time,
            Op::Replenish => self.replenish()?,
            Op::Release(wanted) => {
                let landing = wanted.min(self.in_flight());
                release(landing);
                self.released += landing;
            }
        }
        Ok(())
    }

    /// A window that opens with a grant seen late is longer by that lateness. Time is counted in whole nanoseconds,
    /// hence the extra one.
    fn keeps_the_rate(&self, burst: u64, period: u64) -> Result<(), TestCaseError> {
        for (index, opens) in self.seen.iter().enumerate() {
            let mut granted = 0;
            for closes in &self.seen[index..] {
                granted += closes.cost;
                let most = burst + (closes.at - opens.from + 1) / period;
                prop_assert!(granted <= most, "{} granted from {:?} to {:?}, at most {}", granted, opens, closes, most);
            }
        }
        Ok(())
    }
}

fn check<C>(
    bucket: &Bucket<C>,
    (burst, cap, period): (u64, u64, u64),
    ops: Vec<Op>,
    release: impl Fn(u64),
) -> Result<(), TestCaseError> {
    let mut history = History { bucket, now: 0, replenished: 0, waiting: Vec::new(), seen: Vec::new(), released: 0 };
    for op in ops {
        history.play(op, &release)?;
        prop_assert!(history.in_flight() <= cap, "more in flight than the cap");
    }
    history.keeps_the_rate(burst, period)?;
    for _ in 0..300 {
        history.play(Op::Release(u64::MAX), &release)?;
        history.replenish()?;
        history.now += 12 * period;
    }
    prop_assert_eq!(history.waiting.len(), 0, "stranded");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_order_the_rate_and_the_cap(
        (burst, cap, ops) in (1_u64..12, prop::option::of(1_u64..12))
            .prop_flat_map(|(burst, cap)| (Just(burst), Just(cap), ops(cap.unwrap_or(burst).min(burst)))),
        period in 1_000_u64..3_000,
    ) {
        let quota = Quota::new(1, Duration::from_nanos(period)).burst(burst);
        match cap {
            None => check(&bucket(quota), (burst, u64::MAX, period), ops, |_| {})?,
            Some(cap) => {
                let bucket = capped(quota, cap);
                check(&bucket, (burst, cap, period), ops, |tokens| bucket.release(tokens))?;
            }
        }
    }
}
