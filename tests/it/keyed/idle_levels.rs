//! Keys that are unused for a nanosecond to decades, whatever the source of their quota: their levels are compared with
//! 128-bit integer arithmetic, written independently here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_test::{assert_pending, task};
use tollgate::{Denied, KeyedLimiter, ManualClock, Quota, TryAcquireError};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const HOUR: u64 = 3_600 * SECOND;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const YEAR: u64 = 365 * DAY;
/// All histories end before the limiter's clock does, after 584 years.
pub(super) const END: u64 = 400 * YEAR;
const KEYS: u64 = 12;

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
    own: bool,
}

impl Bucket {
    pub(super) fn new(rule: Rule, now: u64) -> Self {
        Self { rule, level: rule.full(), at: now, own: false }
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

    /// The same, but a bucket without a debt becomes a new one.
    fn adopt_with_all(&mut self, rule: Rule) {
        if self.own {
            return;
        }
        if self.level >= self.rule.full() {
            *self = Self::new(rule, self.at);
        } else {
            self.adopt(rule);
        }
    }
}

/// How keys get their first quotas.
#[derive(Clone, Copy, Debug)]
enum Source {
    Fixed,
    By,
}

struct World {
    keyed: KeyedLimiter<u64>,
    clock: ManualClock,
    now: u64,
    rules: HashMap<u64, Rule>,
    buckets: HashMap<u64, Bucket>,
}

impl World {
    fn new(source: Source, dice: &mut Dice) -> Self {
        let clock = ManualClock::new();
        let common = Rule::any(dice);
        let rule_of = |dice: &mut Dice| if matches!(source, Source::By) { Rule::any(dice) } else { common };
        let rules: HashMap<u64, Rule> = (0..KEYS).map(|key| (key, rule_of(dice))).collect();
        let mut builder = KeyedLimiter::builder().clock(clock.clone()).shards(1 + dice.below(2) as usize);
        if matches!(source, Source::By) {
            let rules = Arc::new(rules.clone());
            builder = builder.quota_by(move |key| rules[key].quota());
        } else {
            builder = builder.quota(common.quota());
        }
        if dice.below(2) == 0 {
            builder = builder.max_keys(KEYS);
        }
        let buckets = rules.iter().map(|(key, rule)| (*key, Bucket::new(*rule, 0))).collect();
        Self { keyed: builder.build().unwrap(), clock, now: 0, rules, buckets }
    }

    fn rest(&mut self, span: u64) {
        let span = span.min(END - self.now);
        self.clock.advance(Duration::from_nanos(span));
        self.now += span;
        self.buckets.values_mut().for_each(|bucket| bucket.come_to(self.now));
    }

    fn set_quota(&mut self, rule: Rule) {
        self.keyed.set_quota(rule.quota()).unwrap();
        self.rules.values_mut().for_each(|own| *own = rule);
        self.buckets.values_mut().for_each(|bucket| bucket.adopt_with_all(rule));
    }

    fn bucket(&mut self, key: u64) -> &mut Bucket {
        self.buckets.get_mut(&key).unwrap()
    }

    /// Takes `cost` tokens, and settles the grant for `more`.
    fn take(&mut self, key: u64, cost: u64, more: u64, when: &str) {
        let bucket = *self.bucket(key);
        let expected = bucket.tokens() >= cost.into() && cost <= bucket.rule.burst;
        let keyed = self.keyed.clone();
        match keyed.try_acquire(&key, cost) {
            Ok(mut grant) => {
                assert!(expected, "granted {cost} of {bucket:?}, {when}");
                let left = bucket.tokens() - i128::from(cost);
                assert_eq!(i128::from(grant.remaining()), left, "{bucket:?}, {when}");
                grant.settle(cost + more);
                let unit = bucket.rule.scale().1;
                self.bucket(key).level -= i128::from(cost + more) * unit;
            }
            Err(TryAcquireError::Denied(Denied { retry_after, remaining, .. })) => {
                assert!(!expected, "denied {cost} of {bucket:?}, {when}");
                let wait = bucket.wait(cost).map(Duration::from_nanos);
                let observed = (retry_after, i128::from(remaining));
                assert_eq!(observed, (wait, bucket.tokens().max(0)), "{bucket:?}, {when}");
            }
            Err(TryAcquireError::TooLarge { most, .. }) => assert_eq!(most, bucket.rule.burst, "{when}"),
            Err(other) => panic!("{other:?}, {when}"),
        }
    }

    fn look(&mut self, key: u64, when: &str) {
        let bucket = *self.bucket(key);
        let seen = (i128::from(self.keyed.available(&key)), i128::from(self.keyed.deficiency(&key)));
        assert_eq!(seen, (bucket.tokens().max(0), (-bucket.tokens()).max(0)), "key {key}, {bucket:?}, {when}");
        // To the nanosecond, and so to the fraction of a token.
        for cost in [1, bucket.rule.burst.min(1 << 48), (bucket.tokens() + 1).max(1) as u64] {
            let wait = bucket.wait(cost).map(Duration::from_nanos);
            assert_eq!(self.keyed.estimate(&key, cost), wait, "{cost} of key {key}, {bucket:?}, {when}");
        }
        assert_eq!(self.keyed.quotas(&key), bucket.rule.quota().into(), "key {key}, {when}");
    }

    fn act(&mut self, dice: &mut Dice, when: &str) {
        let key = dice.below(KEYS);
        let burst = self.bucket(key).rule.burst;
        match dice.below(16) {
            // Whole bursts show a bucket that is read wrongly.
            0..3 => self.take(key, burst, 0, when),
            3..5 => {
                let cost = self.bucket(key).tokens().max(1) as u64;
                self.take(key, cost, 0, when);
            }
            5 => self.take(key, 1 + dice.below(burst), 0, when),
            6 => {
                let most = dice.one_of(&[1 << 4, 1 << 20, 1 << 47]);
                let more = 1 + dice.below(most);
                self.take(key, 1, more, when);
            }
            7 => {
                // No claim can be larger.
                let cost = (self.bucket(key).tokens() + 1).clamp(1, 1 << 48) as u64;
                assert_pending!(task::spawn(self.keyed.consume(&key, cost)).poll());
            }
            8..12 => {
                let scale = dice.one_of(&[2, 1_000, SECOND, 4 * SECOND, 10 * HOUR, 200 * DAY, YEAR, 20 * YEAR]);
                self.rest(1 + dice.below(scale));
            }
            12 if dice.below(3) == 0 => {
                // Several changes in a row without a call in between: each applies from its own instant on.
                for _ in 0..dice.one_of(&[1, 1, 2, 5, 40]) {
                    self.set_quota(Rule::any(dice));
                    let scale = dice.one_of(&[1, 1_000, SECOND, DAY]);
                    self.rest(dice.below(scale));
                }
            }
            13 if dice.below(3) == 0 => {
                let rule = Rule::any(dice);
                self.keyed.set_quota_for(&key, rule.quota()).unwrap();
                self.bucket(key).adopt(rule);
                self.bucket(key).own = true;
            }
            14 if self.bucket(key).own => {
                self.keyed.reset_quota_for(&key);
                let rule = self.rules[&key];
                self.bucket(key).adopt(rule);
                self.bucket(key).own = false;
            }
            _ => self.look(key, when),
        }
    }
}

fn histories(source: Source) {
    for seed in 0..2_500 {
        let mut dice = Dice(seed);
        let mut world = World::new(source, &mut dice);
        for step in 0..60 {
            world.act(&mut dice, &format!("{source:?}, seed {seed}, step {step}"));
        }
        (0..KEYS).for_each(|key| world.look(key, &format!("{source:?}, seed {seed}, at the end")));
    }
}

#[test]
fn levels_of_a_common_quota_are_exact_after_any_idle_time() {
    histories(Source::Fixed);
}

#[test]
fn levels_of_quotas_by_key_are_exact_after_any_idle_time() {
    histories(Source::By);
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
