//! The one invariant and the exact hint, over random configurations of one quota and random calls.

use super::{MOST, NANO, YEAR};
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Denied, Limiter, ManualClock, Quota, TryAcquireError};

#[derive(Clone, Copy, Debug)]
enum Refill {
    Continuous,
    Stepped,
    Manual,
}

#[derive(Clone, Debug)]
struct Config {
    refill: Refill,
    amount: u64,
    period: u64,
    burst: u64,
    initial: u64,
    rovers_at: u64,
    stride: Option<u64>,
}

impl Config {
    fn build(&self, clock: &ManualClock) -> Limiter {
        let quota = Quota::new(self.amount, Duration::from_nanos(self.period)).burst(self.burst);
        let quota = match self.refill {
            Refill::Continuous => quota,
            Refill::Stepped => quota.stepped(),
            Refill::Manual => Quota::manual(self.burst),
        };
        let builder = Limiter::builder().quota(quota.initial(self.initial)).clock(clock.clone());
        let builder = builder.rovers_at(self.rovers_at);
        self.stride.into_iter().fold(builder, |builder, stride| builder.stride(stride)).build().unwrap()
    }

    /// The most tokens that can accrue in `from ..= to`. Time is counted in whole nanoseconds, and a part of the first
    /// one may have passed. So the first one counts as a whole.
    fn accrued(&self, from: u64, to: u64) -> u128 {
        let (amount, period) = (u128::from(self.amount), u128::from(self.period));
        match self.refill {
            Refill::Continuous => (u128::from(to - from) + 1) * amount / period,
            Refill::Stepped => u128::from(to / self.period - from / self.period) * amount,
            Refill::Manual => 0,
        }
    }

    /// Whether `tokens` may take longer than to the end of time, which is 64 bits of nanoseconds.
    fn is_beyond_time(&self, now: u64, tokens: u64) -> bool {
        let (amount, period, tokens) = (u128::from(self.amount), u128::from(self.period), u128::from(tokens));
        let at_most = match self.refill {
            Refill::Continuous => (tokens * period).div_ceil(amount),
            Refill::Stepped => tokens.div_ceil(amount) * period,
            Refill::Manual => u128::MAX / 2,
        };
        u128::from(now) + at_most >= u128::from(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Try(u64),
    Pass(u64),
    StepBack(u64),
    Look,
}

/// All orders of magnitude with the same probability.
fn magnitude(most: u64) -> impl Strategy<Value = u64> + Clone {
    (0..=most.ilog2()).prop_flat_map(move |bits| (1 << bits)..=most.min(u64::MAX >> (63 - bits)))
}

fn config() -> impl Strategy<Value = Config> {
    let refill = prop_oneof![4 => Just(Refill::Continuous), 2 => Just(Refill::Stepped), 1 => Just(Refill::Manual)];
    let burst = prop_oneof![3 => 1_u64..300, 1 => magnitude(MOST)];
    let rovers_at = prop_oneof![2 => Just(0), 1 => (0_u64..500).prop_map(|before| u64::MAX - before)];
    let stride = prop_oneof![3 => Just(None), 1 => Just(Some(0)), 1 => (1_u64..100).prop_map(Some)];
    (refill, magnitude(1 << 40), magnitude(1 << 50), burst, any::<u64>(), rovers_at, stride).prop_map(
        |(refill, amount, period, burst, part, rovers_at, stride)| {
            // A step larger than its bucket is refused at construction.
            let amount = if matches!(refill, Refill::Stepped) { amount.min(burst) } else { amount };
            let initial = if part % 3 == 0 { burst } else { part % (burst + 1) };
            Config { refill, amount, period, burst, initial, rovers_at, stride }
        },
    )
}

/// Calls that suit a quota: costs around its burst, times around its period and the time of a token.
fn calls(config: &Config, most: usize) -> impl Strategy<Value = Vec<Call>> + use<> {
    let per_token = (config.period / config.amount).max(1);
    let time = prop_oneof![
        3 => 1..per_token.saturating_mul(5),
        2 => Just(per_token),
        1 => 1..config.period.saturating_mul(3),
        1 => magnitude(1 << 57),
    ];
    let burst = config.burst;
    let cost = prop_oneof![6 => 0..burst.min(20) + 1, 2 => 0..=burst, 1 => magnitude(u64::MAX), 1 => Just(burst)];
    let call = prop_oneof![
        6 => cost.prop_map(Call::Try),
        4 => time.clone().prop_map(Call::Pass),
        1 => time.prop_map(Call::StepBack),
        1 => Just(Call::Look),
    ];
    prop::collection::vec(call, 1..most)
}

fn config_and_calls(most: usize) -> impl Strategy<Value = (Config, Vec<Call>)> {
    config().prop_flat_map(move |config| (Just(config.clone()), calls(&config, most)))
}

/// A limiter, and the time of its clock in nanoseconds of the limiter's life. It lives for 500 years at most.
struct Life {
    limiter: Limiter,
    clock: ManualClock,
    now: u64,
    /// The latest time that the clock has shown to the limiter.
    latest: u64,
}

impl Life {
    const END: u64 = 500 * YEAR.as_nanos() as u64;

    fn new(config: &Config) -> Self {
        let clock = ManualClock::new();
        Self { limiter: config.build(&clock), clock, now: 0, latest: 0 }
    }

    fn pass(&mut self, nanos: u64) {
        let nanos = nanos.min(Self::END - self.now);
        self.clock.advance(Duration::from_nanos(nanos));
        self.now += nanos;
    }

    /// The limiter first reads the clock. Otherwise it may never see the latest time: calls between two strides do not
    /// read the clock.
    fn step_back(&mut self, nanos: u64) {
        self.latest = self.latest.max(self.now);
        self.limiter.tick();
        let nanos = nanos.min(self.now);
        self.clock.step_back(Duration::from_nanos(nanos));
        self.now -= nanos;
    }

    fn take(&mut self, cost: u64) -> Result<(), TryAcquireError> {
        self.latest = self.latest.max(self.now);
        self.limiter.try_acquire(cost).map(drop)
    }
}

fn never_over_grants(config: &Config, calls: &[Call]) -> Result<(), TestCaseError> {
    let mut life = Life::new(config);
    let mut grants: Vec<(u64, u64)> = Vec::new();
    for &call in calls {
        match call {
            Call::Try(cost) => {
                if life.take(cost).is_ok() {
                    grants.push((life.latest, cost));
                }
            }
            Call::Pass(nanos) => life.pass(nanos),
            Call::StepBack(nanos) => life.step_back(nanos),
            Call::Look => {
                life.latest = life.latest.max(life.now);
                let snapshot = life.limiter.snapshot();
                let level = snapshot.quotas[0].level;
                prop_assert!((0..=config.burst as i64).contains(&level), "the level is {}", level);
                prop_assert_eq!(life.limiter.available(), level as u64);
            }
        }
    }
    let total: u128 = grants.iter().map(|&(_, cost)| u128::from(cost)).sum();
    let most = u128::from(config.initial) + config.accrued(0, life.latest);
    prop_assert!(total <= most, "{} granted, but only {} were available", total, most);
    for (index, &(from, _)) in grants.iter().enumerate() {
        let mut granted = 0;
        for &(to, cost) in &grants[index..] {
            granted += u128::from(cost);
            let most = u128::from(config.burst) + config.accrued(from, to);
            prop_assert!(granted <= most, "{} granted from {} to {}, expected at most {}", granted, from, to, most);
        }
    }
    Ok(())
}

fn hint_is_honest(config: &Config, calls: &[Call], cost: u64) -> Result<(), TestCaseError> {
    let mut life = Life::new(config);
    for &call in calls {
        match call {
            Call::Try(cost) => drop(life.take(cost)),
            Call::Pass(nanos) => life.pass(nanos),
            Call::StepBack(nanos) => life.step_back(nanos),
            Call::Look => life.limiter.tick(),
        }
    }
    let denied = match life.take(cost) {
        Ok(()) => return Ok(()),
        Err(TryAcquireError::TooLarge { cost: named, most, .. }) => {
            prop_assert!(cost > config.burst && (named, most) == (cost, config.burst));
            return Ok(());
        }
        Err(TryAcquireError::Denied(denied)) => denied,
        Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
    };
    prop_assert!(denied.remaining < cost);
    let Some(wait) = denied.retry_after.map(|wait| wait.as_nanos() as u64) else {
        let lacking = cost - denied.remaining;
        prop_assert!(config.is_beyond_time(life.now, lacking), "a wait would help, but the denial has no retry_after");
        return Ok(());
    };
    prop_assert!(wait > 0, "a denial with a retry_after of zero");
    if wait > Life::END - life.now {
        return Ok(());
    }
    life.pass(wait - 1);
    match life.take(cost) {
        Err(TryAcquireError::Denied(Denied { retry_after, .. })) => prop_assert_eq!(retry_after, Some(NANO)),
        other => prop_assert!(false, "{} ns were too long: one less gave {:?}", wait, other),
    }
    life.pass(1);
    prop_assert_eq!(life.take(cost), Ok(()), "{} ns were too short", wait);
    Ok(())
}

fn proptest_config() -> ProptestConfig {
    ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(proptest_config())]

    #[test]
    fn it_never_over_grants_and_live_tokens_stay_within_capacity((config, calls) in config_and_calls(120)) {
        never_over_grants(&config, &calls)?;
    }

    #[test]
    fn retry_after_is_honest_to_the_nanosecond(
        (config, calls, cost) in config_and_calls(40).prop_flat_map(|(config, calls)| {
            let cost = 1..=config.burst;
            (Just(config), Just(calls), cost)
        }),
    ) {
        hint_is_honest(&config, &calls, cost)?;
    }
}
