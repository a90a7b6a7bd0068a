//! The rate law over saving and restoring, however often and by whatever clock.

use super::{begin, through};
use crate::fixture::*;
use serde_json::{Value, json};
use tollgate::state::{KeyedState, LimiterState};

/// Asserts that no window of `grants`, which are nanoseconds and tokens, has more than the burst and what time refills.
fn assert_law(quota: Quota, grants: &[(u64, u64)]) {
    let (amount, period) = (u128::from(quota.amount()), quota.period().as_nanos());
    for first in 0..grants.len() {
        let mut granted = 0_u128;
        for (at, tokens) in &grants[first..] {
            granted += u128::from(*tokens);
            // From the first nanosecond to the last one. A window of less than a period may have the end of one in it.
            let window = u128::from(at - grants[first].0) + 1;
            let refilled = if quota.is_stepped() { (window / period + 1) * amount } else { window * amount / period };
            assert!(granted <= u128::from(quota.capacity()) + refilled, "{quota}: {:?}", &grants[first..]);
        }
    }
}

fn quotas() -> [Quota; 4] {
    [
        Quota::per_second(10),
        Quota::new(3, Duration::from_nanos(1_000_000_007)).burst(5),
        Quota::new(7, Duration::from_nanos(2)).burst(9),
        Quota::new(4, Duration::from_millis(700)).burst(6).stepped(),
    ]
}

/// A limiter, or a keyed limiter with one key, that is saved and restored again and again. `now` is what a right clock shows,
/// and the wall clock is `behind` it.
struct Process {
    quota: Quota,
    by_key: bool,
    now: u64,
    behind: u64,
    clock: ManualClock,
    limiter: Result<Limiter, KeyedLimiter<u64>>,
    grants: Vec<(u64, u64)>,
}

enum Saved {
    Limiter(LimiterState),
    Keyed(KeyedState<u64>),
}

impl Process {
    fn new(quota: Quota, by_key: bool) -> Self {
        let clock = ManualClock::new();
        let mut new = Self {
            quota,
            by_key,
            now: 0,
            behind: 0,
            limiter: Err(KeyedLimiter::new(quota).unwrap()),
            clock,
            grants: Vec::new(),
        };
        new.start(None);
        new
    }

    fn start(&mut self, state: Option<&Saved>) {
        let wall_clock = begin() + Duration::from_nanos(self.now) - Duration::from_nanos(self.behind);
        self.clock = ManualClock::new();
        let keyed = || KeyedLimiter::builder().quota(self.quota).clock(self.clock.clone());
        let plain = || Limiter::builder().quota(self.quota).clock(self.clock.clone());
        self.limiter = match state {
            None if self.by_key => Err(keyed().build().unwrap()),
            None => Ok(plain().build().unwrap()),
            Some(Saved::Limiter(state)) => Ok(plain().restore(state.clone(), wall_clock).build().unwrap()),
            Some(Saved::Keyed(state)) => Err(keyed().restore(state.clone(), wall_clock).build().unwrap()),
        };
    }

    fn save(&self) -> Saved {
        let wall_clock = begin() + Duration::from_nanos(self.now) - Duration::from_nanos(self.behind);
        match &self.limiter {
            Ok(limiter) => Saved::Limiter(through(&limiter.state_at(wall_clock).unwrap())),
            Err(keyed) => Saved::Keyed(through(&keyed.state_at(wall_clock))),
        }
    }

    fn run(&mut self, random: &mut fastrand::Rng) {
        for _ in 0..random.u8(..8) {
            let by = random.u64(..self.quota.period().as_nanos() as u64 * 2) * u64::from(random.bool());
            self.now += by;
            self.clock.advance(Duration::from_nanos(by));
            let most = match &self.limiter {
                Ok(limiter) => limiter.available(),
                Err(keyed) => keyed.available(&1),
            };
            let cost = if random.bool() { most } else { random.u64(..=most) };
            let granted = match &self.limiter {
                Ok(limiter) => limiter.try_acquire(cost).is_ok(),
                Err(keyed) => keyed.try_acquire(&1, cost).is_ok(),
            };
            assert!(granted);
            self.grants.push((self.now, cost));
        }
    }
}

#[test]
fn it_holds_over_any_number_of_restarts_and_when_the_wall_clock_is_set_back() {
    for (index, quota) in quotas().into_iter().enumerate() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(10_000 * index as u64 + seed);
            let mut process = Process::new(quota, seed % 2 == 0);
            for _ in 0..6 {
                process.run(&mut random);
                let state = process.save();
                process.now += random.u64(..quota.period().as_nanos() as u64 * 3) * u64::from(random.bool());
                process.behind += random.u64(..4_000_000_000) * u64::from(random.u8(..4) == 0);
                process.start(Some(&state));
            }
            assert_law(quota, &process.grants);
        }
    }
}

/// A value near a bound, or any.
fn number(random: &mut fastrand::Rng, bounds: &[i128]) -> i128 {
    let near = bounds[random.usize(..bounds.len())] + random.i128(-2..=2);
    if random.u8(..8) == 0 { random.i64(..).into() } else { near }
}

fn json_of(number: i128) -> Value {
    if number < 0 { json!(number.max(i64::MIN.into()) as i64) } else { json!(number.min(u64::MAX.into()) as u64) }
}

/// Whatever numbers a file has: the state is refused, or the limiter keeps the law from the restart on.
#[test]
fn it_holds_for_states_that_were_changed() {
    let (mut refused, mut restored) = (0, 0);
    for (index, quota) in quotas().into_iter().enumerate() {
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(100_000 * index as u64 + seed);
            let (burst, period) = (quota.capacity().into(), quota.period().as_nanos() as i128);
            let tokens = json_of(number(&mut random, &[0, burst, -(1 << 62), i64::MAX.into()]).min(i64::MAX.into()));
            let fraction = json_of(number(&mut random, &[0, 1, quota.amount().into(), period]).max(0));
            let step = number(&mut random, &[0, period, u64::MAX.into()]).max(0);
            let mut process = Process::new(quota, seed % 2 == 0);
            let clock = process.clock.clone();
            let outcome = if process.by_key {
                let at = json_of(number(&mut random, &[0, period, 1 << 63]).max(0));
                let keys =
                    json!([{ "key": 1, "quotas": 0, "own": false, "paused_for": 0, "levels": [[tokens, fraction]] }]);
                let quotas = json!([[[null, quota]]]);
                let mut state = json!({ "saved_at": 0, "at": at, "quotas": quotas, "paused_for": 0, "keys": keys });
                state["next_periods"] = json!([]);
                let state = serde_json::from_value(json!({ "version": 1, "state": state })).unwrap();
                let builder = KeyedLimiter::builder().quota(quota).clock(clock);
                builder.restore(state, begin()).build().map(Err)
            } else {
                let step_in = if random.bool() { Value::Null } else { json_of(step) };
                let level = json!({ "tokens": tokens, "fraction": fraction, "step_in": step_in });
                let levels = json!({ "quotas": [[quota, level]], "paused_for": 0 });
                let state = json!({ "version": 1, "state": { "saved_at": 0, "levels": levels } });
                let state = serde_json::from_value(state).unwrap();
                Limiter::builder().quota(quota).clock(clock).restore(state, begin()).build().map(Ok)
            };
            match outcome {
                Ok(limiter) => {
                    restored += 1;
                    process.limiter = limiter;
                    process.run(&mut random);
                    assert_law(quota, &process.grants);
                }
                Err(tollgate::ConfigError::State(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(refused > 1_000 && restored > 1_000, "{refused} refused, {restored} restored");
}
