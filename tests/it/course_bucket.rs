//! Seed 004, the token bucket course: its five tests and its bonus cost, on a plain `Limiter`.
//!
//! The course keeps one bucket per key. Here a map of limiters does that, because this file is about the bucket; the
//! keyed type has tests of its own.

use std::collections::HashMap;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{Bound, Clock, Denied, Limiter, ManualClock, Quota, TryAcquireError};

const NANO: Duration = Duration::from_nanos(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The course's `Decision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    allowed: bool,
    retry_after: Duration,
    remaining: u64,
}

/// The course's `TokenBucket`: a map, and one call of this crate.
struct TokenBucket {
    quota: Quota,
    clock: ManualClock,
    keys: Mutex<HashMap<String, Limiter>>,
}

impl TokenBucket {
    fn new(capacity: u64, refill_per_sec: u64) -> Self {
        let quota = Quota::per_second(refill_per_sec).burst(capacity);
        Self { quota, clock: ManualClock::new(), keys: Mutex::default() }
    }

    fn bucket(&self, key: &str) -> Limiter {
        let fresh = || Limiter::builder().quota(self.quota).clock(self.clock.clone()).build().unwrap();
        self.keys.lock().unwrap().entry(key.to_owned()).or_insert_with(fresh).clone()
    }

    fn allow(&self, key: &str) -> Decision {
        self.allow_cost(key, 1)
    }

    fn allow_cost(&self, key: &str, cost: u64) -> Decision {
        match self.bucket(key).try_acquire(cost) {
            Ok(grant) => Decision { allowed: true, retry_after: Duration::ZERO, remaining: grant.remaining() },
            Err(TryAcquireError::Denied(Denied { retry_after, remaining, by, .. })) => {
                assert_eq!(by, Bound::Quota(0));
                Decision { allowed: false, retry_after: retry_after.expect("a wait would help"), remaining }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn allowed(remaining: u64) -> Decision {
    Decision { allowed: true, retry_after: Duration::ZERO, remaining }
}

fn denied(retry_after: Duration, remaining: u64) -> Decision {
    Decision { allowed: false, retry_after, remaining }
}

// ---- the five tests -------------------------------------------------------------------------------------------------

#[test]
fn full_bucket_allows_capacity() {
    let bucket = TokenBucket::new(10, 5);
    for remaining in (0..10).rev() {
        assert_eq!(bucket.allow("a"), allowed(remaining));
    }
    assert_eq!(bucket.allow("a"), denied(ms(200), 0), "the eleventh");
}

#[test]
fn denial_carries_retry_after() {
    // The wait for the next token and not for a full bucket. It shrinks as time passes.
    let bucket = TokenBucket::new(10, 4);
    while bucket.allow("a").allowed {}
    for waited in (0..250).step_by(10) {
        assert_eq!(bucket.allow("a"), denied(ms(250 - waited), 0), "{waited} ms later");
        bucket.clock.advance(ms(10));
    }
    assert_eq!(bucket.allow("a"), allowed(0));
}

#[test]
fn a_call_after_retry_after_is_allowed_and_no_sooner() {
    let bucket = TokenBucket::new(7, 3);
    while bucket.allow("a").allowed {}
    for _ in 0..100 {
        let retry_after = bucket.allow("a").retry_after;
        // A third of a second in whole nanoseconds, rounded up, so that one retry is enough.
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_nanos(333_333_334), "{retry_after:?}");
        bucket.clock.advance(retry_after - NANO);
        assert_eq!(bucket.allow("a"), denied(NANO, 0));
        bucket.clock.advance(NANO);
        assert_eq!(bucket.allow("a"), allowed(0));
    }
}

#[test]
fn refill_restores_tokens() {
    let bucket = TokenBucket::new(10, 5);
    while bucket.allow("a").allowed {}
    for _ in 0..20 {
        bucket.clock.advance(ms(200));
        assert_eq!(bucket.allow("a"), allowed(0), "exactly one token came back");
        assert!(!bucket.allow("a").allowed);
    }
}

#[test]
fn refill_of_half_a_token_between_calls_is_not_lost() {
    // The course's own trap: at 10 per second and a call every 50 ms, a bucket that drops fractions would never refill.
    let bucket = TokenBucket::new(10, 10);
    while bucket.allow("a").allowed {}
    for _ in 0..50 {
        bucket.clock.advance(ms(50));
        assert_eq!(bucket.allow("a"), denied(ms(50), 0));
        bucket.clock.advance(ms(50));
        assert_eq!(bucket.allow("a"), allowed(0));
    }
}

#[test]
fn per_key_isolated() {
    let bucket = TokenBucket::new(3, 1);
    while bucket.allow("a").allowed {}
    for remaining in (0..3).rev() {
        assert_eq!(bucket.allow("b"), allowed(remaining), "draining a does not affect b");
    }
    bucket.clock.advance(ms(1_000));
    assert!(bucket.allow("a").allowed && !bucket.allow("a").allowed);
    assert!(bucket.allow("b").allowed && !bucket.allow("b").allowed);
}

#[test]
fn concurrent_allow_grants_at_most_capacity() {
    const THREADS: usize = 100;
    for round in 0..10 {
        let bucket = TokenBucket::new(50, 1);
        let start = Barrier::new(THREADS);
        let decisions: Vec<Decision> = thread::scope(|scope| {
            let call = || {
                start.wait();
                bucket.allow("a")
            };
            let racers: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(decisions.iter().filter(|decision| decision.allowed).count(), 50, "in round {round}");
        let refused = decisions.iter().filter(|decision| !decision.allowed);
        assert!(refused.clone().all(|&decision| decision == denied(ms(1_000), 0)), "in round {round}");
        assert_eq!(bucket.bucket("a").available(), 0);
    }
}

#[test]
fn concurrent_allow_on_one_limiter_without_a_map_in_between() {
    // The map's lock orders the calls. Without it they race in the bucket itself.
    const THREADS: usize = 100;
    for round in 0..20 {
        // In every other round most calls do not take the limiter's lock either.
        let builder = Limiter::builder().quota(Quota::per_second(1).burst(50)).clock(ManualClock::new());
        let limiter = builder.stride(if round % 2 == 0 { 0 } else { 10 }).build().unwrap();
        let start = Barrier::new(THREADS);
        let call = || {
            start.wait();
            limiter.try_acquire(1).is_ok()
        };
        let granted = thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).filter(|&granted| granted).count()
        });
        assert_eq!(granted, 50, "in round {round}");
        assert_eq!(limiter.snapshot().granted, 50);
    }
}

// ---- the bonus ------------------------------------------------------------------------------------------------------

#[test]
fn a_call_may_cost_more_than_one_token() {
    let bucket = TokenBucket::new(25, 10);
    assert_eq!(bucket.allow_cost("a", 10), allowed(15), "a write of ten records");
    assert_eq!(bucket.allow_cost("a", 10), allowed(5));
    assert_eq!(bucket.allow_cost("a", 10), denied(ms(500), 5), "five are lacking, five remain for smaller calls");
    assert_eq!(bucket.allow_cost("a", 5), allowed(0));
    bucket.clock.advance(ms(999));
    assert_eq!(bucket.allow_cost("a", 10), denied(ms(1), 9));
    bucket.clock.advance(ms(1));
    assert_eq!(bucket.allow_cost("a", 10), allowed(0));
}

#[test]
fn a_cost_that_no_wait_would_help_is_distinct_from_a_denial() {
    let bucket = TokenBucket::new(25, 10);
    let answer = bucket.bucket("a").try_acquire(26).map(drop);
    assert_eq!(answer, Err(TryAcquireError::TooLarge { cost: 26, most: 25, by: Bound::Quota(0), quota_name: None }));
    assert_eq!(bucket.allow_cost("a", 25), allowed(0));
}

#[test]
fn a_call_that_costs_nothing_is_always_allowed() {
    let bucket = TokenBucket::new(2, 1);
    while bucket.allow("a").allowed {}
    assert_eq!(bucket.allow_cost("a", 0), allowed(0));
    assert_eq!(bucket.allow("a"), denied(ms(1_000), 0));
}

// ---- the interface --------------------------------------------------------------------------------------------------

/// The course's `WithClock`: any source of time works.
#[test]
fn the_clock_is_injected() {
    #[derive(Debug)]
    struct Counter(Mutex<u64>);

    impl Clock for Counter {
        /// Each reading advances the clock by a second.
        fn now(&self) -> Duration {
            let mut looks = self.0.lock().unwrap();
            *looks += 1;
            Duration::from_secs(*looks)
        }
    }

    let limiter = Limiter::builder().quota(Quota::per_second(1)).clock(Counter(Mutex::new(0))).build().unwrap();
    assert!((0..1_000).all(|_| limiter.try_acquire(1).is_ok()), "each call is a second after the last one");
}
