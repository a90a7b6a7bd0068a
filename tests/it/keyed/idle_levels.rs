//! The level of a key that is unused for a nanosecond to decades, in 128-bit integer arithmetic, for the histories of
//! `several.rs`.

use crate::fixture::*;

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const HOUR: u64 = 3_600 * SECOND;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const YEAR: u64 = 365 * DAY;
/// All histories end before the limiter's clock does, after 584 years.
pub(super) const END: u64 = 400 * YEAR;

/// Random numbers from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 31) as u128 * u128::from(sides)) >> 33) as u64
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) amount: u64,
    pub(super) period: u64,
    pub(super) burst: u64,
    pub(super) stepped: bool,
}

impl Rule {
    /// Rates with packed levels that can be read for decades, for hours or for two seconds, or that have none.
    pub(super) fn any(dice: &mut Dice) -> Self {
        let (amount, period) = dice.one_of(&[
            (1, SECOND),
            (10, SECOND),
            (999, SECOND),
            (1_000_003, SECOND),
            (999_999_937, SECOND),
            (1_000_003, DAY),
            (7, 3 * SECOND),
            (3, 2),
            (1_000_000_000, 1),
            (1, 30 * DAY),
            (999_999_893, 999_999_937),
        ]);
        let burst = dice.one_of(&[1, 5, 999, 1_000_003, 1 << 40]);
        let stepped = amount <= burst && dice.below(4) == 0;
        Self { amount, period, burst, stepped }
    }

    pub(super) fn quota(&self) -> Quota {
        let quota = Quota::new(self.amount, Duration::from_nanos(self.period)).burst(self.burst);
        if self.stepped { quota.stepped() } else { quota }
    }

    /// Units that arrive with each tick, units in a token, and nanoseconds in a tick.
    pub(super) fn scale(&self) -> (i128, i128, u64) {
        if self.stepped {
            return (self.amount.into(), 1, self.period);
        }
        let (mut common, mut rest) = (self.amount, self.period);
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        ((self.amount / common).into(), (self.period / common).into(), 1)
    }

    pub(super) fn full(&self) -> i128 {
        i128::from(self.burst) * self.scale().1
    }

    /// What exceeds a full bucket is lost, except the fraction that came with the last token in this very tick.
    pub(super) fn burn(&self, level: i128) -> i128 {
        let (amount, unit, _) = self.scale();
        if level >= self.full() + amount.min(unit) { self.full() } else { level }
    }
}

/// The level of a key, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) rule: Rule,
    pub(super) level: i128,
    at: u64,
}

impl Bucket {
    pub(super) fn new(rule: Rule, now: u64) -> Self {
        Self { rule, level: rule.full(), at: now }
    }

    pub(super) fn come_to(&mut self, now: u64) {
        let (amount, _, tick) = self.rule.scale();
        self.level = self.rule.burn(self.level + i128::from(now / tick - self.at / tick) * amount);
        self.at = now;
    }

    pub(super) fn tokens(&self) -> i128 {
        self.level.div_euclid(self.rule.scale().1)
    }

    /// In how many nanoseconds the level reaches `cost` tokens, ignoring the burst; `None` after the end of time.
    pub(super) fn wait(&self, cost: u64) -> Option<u64> {
        let (amount, unit, tick) = self.rule.scale();
        let need = i128::from(cost) * unit - self.level;
        if need <= 0 {
            return Some(0);
        }
        let ticks = (need + amount - 1) / amount;
        let at = (i128::from(self.at / tick) + ticks).checked_mul(tick.into())?;
        u64::try_from(at).ok().map(|at| at - self.at)
    }

    /// Continues with another rule: keeps the tokens, up to the new burst, and the fraction of a token.
    pub(super) fn adopt(&mut self, rule: Rule) {
        let (tokens, (_, unit, old_tick), (_, new, new_tick)) = (self.tokens(), self.rule.scale(), rule.scale());
        let fraction = if old_tick == 1 && new_tick == 1 { self.level.rem_euclid(unit) * new / unit } else { 0 };
        let level = if tokens > rule.burst.into() { rule.full() } else { tokens * new + fraction };
        (self.level, self.rule) = (rule.burn(level), rule);
    }
}

/// A key with its own rate is the fifth in its table. A free slot for it is looked for among the others first.
#[test]
fn a_key_inserted_into_a_full_table_is_read_correctly_after_hours() {
    for (rate, rest) in [(1_000_003, 3 * HOUR), (999, 120 * DAY)] {
        let clock = ManualClock::new();
        let by = move |key: &u64| Quota::per_second(if *key == 4 { rate } else { 1 });
        let keyed = KeyedLimiter::builder().quota_by(by).clock(clock.clone()).shards(1).build().unwrap();
        (0..4).for_each(|key| drop(keyed.try_acquire(&key, 1).unwrap()));
        drop(keyed.try_acquire(&4, rate).unwrap());
        clock.advance(Duration::from_nanos(rest));
        assert_eq!((keyed.available(&4), keyed.estimate(&4, rate)), (rate, Some(Duration::ZERO)));
        assert!(keyed.try_acquire(&4, rate).is_ok());
    }
}
