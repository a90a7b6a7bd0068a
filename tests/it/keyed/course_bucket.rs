//! Seed 004, the token bucket course: its five tests and its bonus points, on the keyed type.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use tollgate::{Bound, Denied, KeyedLimiter, ManualClock, Quota, TryAcquireError};

const NANO: Duration = Duration::from_nanos(1);

/// The course's `Decision`: allowed with the tokens that remain, or refused with the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Allowed { remaining: u64 },
    Denied { retry_after: Duration, remaining: u64 },
}
use Decision::{Allowed, Denied as Refused};

struct TokenBucket {
    keyed: KeyedLimiter<String>,
    clock: ManualClock,
}

impl TokenBucket {
    fn new(capacity: u64, refill_per_sec: u64) -> Self {
        let clock = ManualClock::new();
        let quota = Quota::per_second(refill_per_sec).burst(capacity);
        Self { keyed: KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap(), clock }
    }

    fn allow(&self, key: &str) -> Decision {
        self.allow_cost(key, 1)
    }

    fn allow_cost(&self, key: &str, cost: u64) -> Decision {
        match self.keyed.try_acquire(&key.to_owned(), cost) {
            Ok(grant) => Allowed { remaining: grant.remaining() },
            Err(TryAcquireError::Denied(Denied { retry_after, remaining, by, .. })) => {
                assert_eq!(by, Bound::Quota(0));
                Refused { retry_after: retry_after.expect("a wait would help"), remaining }
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn drain(&self, key: &str) {
        while let Allowed { .. } = self.allow(key) {}
    }
}

fn refused(millis: u64, remaining: u64) -> Decision {
    Refused { retry_after: Duration::from_millis(millis), remaining }
}

#[test]
fn a_full_bucket_of_a_key_allows_its_capacity() {
    let bucket = TokenBucket::new(10, 5);
    for remaining in (0..10).rev() {
        assert_eq!(bucket.allow("a"), Allowed { remaining });
    }
    assert_eq!(bucket.allow("a"), refused(200, 0), "the eleventh");
}

#[test]
fn a_denial_of_a_key_carries_retry_after() {
    let bucket = TokenBucket::new(7, 3);
    bucket.drain("a");
    for _ in 0..100 {
        let Refused { retry_after, .. } = bucket.allow("a") else { panic!("the bucket is empty") };
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_nanos(333_333_334), "{retry_after:?}");
        bucket.clock.advance(retry_after - NANO);
        assert_eq!(bucket.allow("a"), Refused { retry_after: NANO, remaining: 0 });
        bucket.clock.advance(NANO);
        assert_eq!(bucket.allow("a"), Allowed { remaining: 0 });
    }
}

#[test]
fn the_refill_of_a_key_restores_tokens_and_loses_no_fraction() {
    let bucket = TokenBucket::new(10, 10);
    bucket.drain("a");
    for _ in 0..50 {
        bucket.clock.advance(Duration::from_millis(50));
        assert_eq!(bucket.allow("a"), refused(50, 0));
        bucket.clock.advance(Duration::from_millis(50));
        assert_eq!(bucket.allow("a"), Allowed { remaining: 0 });
    }
}

#[test]
fn keys_are_isolated() {
    let bucket = TokenBucket::new(3, 1);
    bucket.drain("a");
    for remaining in (0..3).rev() {
        assert_eq!(bucket.allow("b"), Allowed { remaining }, "draining a does not affect b");
    }
    bucket.clock.advance(Duration::from_secs(1));
    for key in ["a", "b"] {
        assert_eq!(bucket.allow(key), Allowed { remaining: 0 });
        assert_eq!(bucket.allow(key), refused(1_000, 0));
    }
}

#[test]
fn a_hundred_racing_callers_get_fifty_tokens_of_a_key() {
    const THREADS: usize = 100;
    for round in 0..10 {
        let bucket = TokenBucket::new(50, 1);
        let start = Barrier::new(THREADS);
        let call = || {
            start.wait();
            bucket.allow("a")
        };
        let decisions: Vec<Decision> = thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let (granted, others): (Vec<Decision>, _) =
            decisions.into_iter().partition(|decision| matches!(decision, Allowed { .. }));
        assert_eq!(granted.len(), 50, "in round {round}");
        assert!(others.iter().all(|&decision| decision == refused(1_000, 0)), "in round {round}");
    }
}

// ---- the bonus ----------------------------------------------------------------------------------------------------

#[test]
fn a_call_on_a_key_may_cost_more_than_one_token() {
    let bucket = TokenBucket::new(25, 10);
    assert_eq!(bucket.allow_cost("a", 10), Allowed { remaining: 15 });
    assert_eq!(bucket.allow_cost("a", 10), Allowed { remaining: 5 });
    assert_eq!(bucket.allow_cost("a", 10), refused(500, 5), "five are lacking, five remain for smaller calls");
    assert_eq!(bucket.allow_cost("a", 5), Allowed { remaining: 0 });
    let answer = bucket.keyed.try_acquire(&"a".to_owned(), 26).map(drop);
    assert_eq!(answer, Err(TryAcquireError::TooLarge { cost: 26, most: 25, by: Bound::Quota(0), quota_name: None }));
}

#[test]
fn churning_identifiers_do_not_grow_the_map_beyond_max_keys() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(2)).clock(clock.clone()).max_keys(100);
    let keyed: KeyedLimiter<u32> = builder.build().unwrap();
    for key in 0..10_000 {
        assert!(keyed.try_acquire(&key, 1).is_ok(), "key {key}");
        clock.advance(Duration::from_millis(10));
        assert!(keyed.snapshot().keys <= 100);
    }
}
