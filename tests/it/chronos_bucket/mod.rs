//! Seed 003, the TokenBucket of chronos: every table of its document, row by row and column by column, then its text
//! about modes and calls.
//!
//! | there | here |
//! |---|---|
//! | Balanced, Strict, `fillDuration = 0` | a plain quota, `.stepped()`, `Quota::manual` |
//! | `tryConsume`, `consume`, `getAvailableCapacity`, `replenish` | `try_acquire`, `consume`, `available`, `replenish` |
//! | `lastUpdate` (LU) | the instant the fraction of a token is counted from: the next token comes one token's time after it, and `estimate` tells when that is |
//!
//! The document's table of the *old* algorithm has the numbers of Scenario 1. The old algorithm differs in the time
//! that it saved up while full: the comparison examples below show that this limiter saves none.

mod calls;
mod modes;

use std::time::Duration;
use tokio_test::task;
use tollgate::{Bound, Denied, Limiter, ManualClock, Quota, TryAcquireError};

const NANO: Duration = Duration::from_nanos(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A limiter and its clock, at 0 ms.
struct Scene {
    limiter: Limiter,
    clock: ManualClock,
    now: Duration,
}

impl Scene {
    fn new(quota: Quota) -> Self {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        Self { limiter, clock, now: Duration::ZERO }
    }

    /// Advances the clock to `at`, without a call.
    fn at(&mut self, at: Duration) {
        self.clock.advance(at - self.now);
        self.now = at;
    }

    fn available(&self) -> u64 {
        self.limiter.available()
    }

    fn take(&self, tokens: u64) -> bool {
        self.limiter.try_acquire(tokens).is_ok()
    }

    /// The table's LU, computed from the instant at which one more token will be available.
    fn last_update(&self, per_token: Duration) -> Duration {
        let next = self.limiter.estimate(self.available() + 1).expect("time brings the next token");
        self.now + next - per_token
    }

    fn refusal(&self, tokens: u64) -> Denied {
        match self.limiter.try_acquire(tokens) {
            Err(TryAcquireError::Denied(denied)) => denied,
            other => panic!("{tokens} at {:?}: {other:?}", self.now),
        }
    }
}

// ---- Balanced Mode, Scenario 1 ---------------------------------------------------------------------------------------

struct Row {
    at: u64,
    budget: u64,
    request: u64,
    minted: u64,
    after_mint: u64,
    after_consume: u64,
    consumed: bool,
    last_update: u64,
}

#[rustfmt::skip]
const SCENARIO_1: [Row; 7] = [
    Row { at:    0, budget: 10, request:  7, minted: 0, after_mint: 10, after_consume: 3, consumed: true,  last_update:    0 },
    Row { at:  200, budget:  3, request:  5, minted: 2, after_mint:  5, after_consume: 0, consumed: true,  last_update:  200 },
    Row { at:  650, budget:  0, request:  3, minted: 4, after_mint:  4, after_consume: 1, consumed: true,  last_update:  600 },
    Row { at: 1200, budget:  1, request:  6, minted: 6, after_mint:  7, after_consume: 1, consumed: true,  last_update: 1200 },
    Row { at: 1800, budget:  1, request:  5, minted: 6, after_mint:  7, after_consume: 2, consumed: true,  last_update: 1800 },
    Row { at: 2100, budget:  2, request: 10, minted: 3, after_mint:  5, after_consume: 5, consumed: false, last_update: 2100 },
    Row { at: 2600, budget:  5, request: 10, minted: 5, after_mint: 10, after_consume: 0, consumed: true,  last_update: 2600 },
];

#[test]
fn scenario_1_timeline_row_by_row() {
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    for row in &SCENARIO_1 {
        let Row { at, budget, request, .. } = *row;
        assert_eq!(scene.available(), budget, "budget before {at} ms");
        scene.at(ms(at));
        assert_eq!(scene.available(), row.after_mint, "after minting at {at} ms");
        assert_eq!(scene.available() - budget, row.minted, "minted at {at} ms");
        assert_eq!(scene.take(request), row.consumed, "request of {request} at {at} ms");
        assert_eq!(scene.available(), row.after_consume, "after consuming at {at} ms");
        assert_eq!(scene.last_update(ms(100)), ms(row.last_update), "LU after {at} ms");
    }
}

#[test]
fn scenario_1_timeline_seen_by_its_callers_alone() {
    // Only the requests touch the bucket, and they report the same numbers.
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    for row in &SCENARIO_1 {
        scene.at(ms(row.at));
        match scene.limiter.try_acquire(row.request) {
            Ok(grant) => assert!(row.consumed && grant.remaining() == row.after_consume, "{} ms: {grant:?}", row.at),
            Err(TryAcquireError::Denied(Denied { retry_after, remaining, by, .. })) => {
                assert!(!row.consumed, "denied at {} ms", row.at);
                assert_eq!((remaining, by), (row.after_consume, Bound::Quota(0)), "{} ms", row.at);
                // At 2100 ms five tokens are lacking. They are available in the very next row.
                assert_eq!(retry_after, Some(ms(500)), "{} ms", row.at);
            }
            Err(other) => panic!("{other:?} at {} ms", row.at),
        }
    }
}

#[test]
fn scenario_1_consumption_summary_by_period() {
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    let mut consumed = [0; 3];
    for row in &SCENARIO_1 {
        scene.at(ms(row.at));
        if scene.take(row.request) {
            consumed[(row.at / 1_000) as usize] += row.request;
        }
    }
    assert_eq!(consumed, [15, 11, 10]);
    assert_eq!(scene.limiter.snapshot().granted, 36);
}

// ---- Comparison Examples ---------------------------------------------------------------------------------------------

#[test]
fn comparison_sub_token_leftover_time_is_kept_below_capacity() {
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    scene.at(ms(1_000));
    assert!(scene.take(6), "a full bucket: budget 4, LU 1.000 s");
    assert_eq!((scene.available(), scene.last_update(ms(100))), (4, ms(1_000)));

    scene.at(ms(1_075));
    assert_eq!(scene.available(), 4, "75 ms mint nothing");
    assert_eq!(scene.last_update(ms(100)), ms(1_000), "and are not lost");
    scene.at(ms(1_100) - NANO);
    assert_eq!(scene.available(), 4);
    scene.at(ms(1_100));
    assert_eq!(scene.available(), 5);
}

#[test]
fn comparison_long_idle_while_full_burns_all_of_the_time() {
    let mut scene = Scene::new(Quota::new(5, secs(1)));
    scene.at(ms(2_500));
    assert_eq!(scene.available(), 5);
    assert!(scene.take(5));
    // LU is 2.5 s. The old algorithm had kept 100 ms and would mint at 2.6 s.
    assert_eq!(scene.last_update(ms(200)), ms(2_500));
    for (at, there) in [(ms(2_600), 0), (ms(2_700) - NANO, 0), (ms(2_700), 1)] {
        scene.at(at);
        assert_eq!(scene.available(), there, "at {at:?}");
    }
}

#[test]
fn comparison_long_idle_while_full_burns_with_and_without_reads() {
    let mut scene = Scene::new(Quota::new(5, secs(1)));
    for at in (0..2_500).step_by(7) {
        scene.at(ms(at));
        assert_eq!(scene.available(), 5);
    }
    scene.at(ms(2_500));
    assert!(scene.take(5));
    assert_eq!(scene.last_update(ms(200)), ms(2_500));
}

#[test]
fn comparison_overfull_update_discards_the_rest() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(8));
    assert_eq!(scene.available(), 8);
    scene.at(ms(300));
    assert_eq!(scene.available(), 10, "three were due, two fit");
    assert!(scene.take(10));
    // LU is 300 ms. The old algorithm saved 100 ms: a token at once.
    assert_eq!(scene.last_update(ms(100)), ms(300));
    for (at, there) in [(ms(300), 0), (ms(400) - NANO, 0), (ms(400), 1)] {
        scene.at(at);
        assert_eq!(scene.available(), there, "at {at:?}");
    }
}

#[test]
fn comparison_overfull_by_less_than_a_token_discards_that_too() {
    // The update just fits, but the bucket was full for the last 50 ms.
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(8));
    scene.at(ms(250));
    assert!(scene.take(10));
    assert_eq!(scene.last_update(ms(100)), ms(250));
}

#[test]
fn comparison_filled_in_this_very_moment_nothing_is_discarded() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(8));
    scene.at(ms(200));
    assert!(scene.take(10));
    assert_eq!(scene.last_update(ms(100)), ms(200));

    // With three tokens in ten nanoseconds, tokens are due at 3 1/3, 6 2/3 and 10, and seen at 4, 7 and 10. Taking a
    // token at once does not delay the next one.
    let mut scene = Scene::new(Quota::new(3, 10 * NANO).burst(1).initial(0));
    let mut taken = Vec::new();
    for at in 1..=20 {
        scene.at(at * NANO);
        if scene.take(1) {
            taken.push(at);
        }
    }
    assert_eq!(taken, [4, 7, 10, 14, 17, 20]);
}

// ---- High-rate single-token requests ---------------------------------------------------------------------------------

struct Batch {
    at: u64,
    elapsed: u64,
    budget: u64,
    minted: u64,
    after_mint: u64,
    requests: u64,
    accepted: u64,
    rejected: u64,
    after_consume: u64,
    last_update: u64,
}

#[rustfmt::skip]
const HIGH_RATE: [Batch; 8] = [
    Batch { at:  0, elapsed:  0, budget: 10, minted:  0, after_mint: 10, requests: 12, accepted: 10, rejected:  2, after_consume: 0, last_update:  0 },
    Batch { at:  5, elapsed:  5, budget:  0, minted:  5, after_mint:  5, requests:  7, accepted:  5, rejected:  2, after_consume: 0, last_update:  5 },
    Batch { at: 10, elapsed:  5, budget:  0, minted:  5, after_mint:  5, requests: 15, accepted:  5, rejected: 10, after_consume: 0, last_update: 10 },
    Batch { at: 12, elapsed:  2, budget:  0, minted:  2, after_mint:  2, requests:  3, accepted:  2, rejected:  1, after_consume: 0, last_update: 12 },
    Batch { at: 20, elapsed:  8, budget:  0, minted:  8, after_mint:  8, requests: 25, accepted:  8, rejected: 17, after_consume: 0, last_update: 20 },
    Batch { at: 30, elapsed: 10, budget:  0, minted: 10, after_mint: 10, requests:  9, accepted:  9, rejected:  0, after_consume: 1, last_update: 30 },
    Batch { at: 31, elapsed:  1, budget:  1, minted:  1, after_mint:  2, requests:  3, accepted:  2, rejected:  1, after_consume: 0, last_update: 31 },
    Batch { at: 40, elapsed:  9, budget:  0, minted:  9, after_mint:  9, requests: 20, accepted:  9, rejected: 11, after_consume: 0, last_update: 40 },
];

#[test]
fn high_rate_single_token_requests_batch_by_batch() {
    let mut scene = Scene::new(Quota::new(10, ms(10)));
    for batch in &HIGH_RATE {
        let at = batch.at;
        assert_eq!(scene.last_update(ms(1)) + ms(batch.elapsed), ms(at), "elapsed from LU at {at} ms");
        assert_eq!(scene.available(), batch.budget, "budget before {at} ms");
        scene.at(ms(at));
        assert_eq!(scene.available(), batch.after_mint, "after minting at {at} ms");
        assert_eq!(scene.available() - batch.budget, batch.minted, "minted at {at} ms");
        let accepted = (0..batch.requests).filter(|_| scene.take(1)).count() as u64;
        assert_eq!(accepted, batch.accepted, "accepted at {at} ms");
        assert_eq!(batch.requests - accepted, batch.rejected, "rejected at {at} ms");
        assert_eq!(scene.available(), batch.after_consume, "after consuming at {at} ms");
        assert_eq!(scene.last_update(ms(1)), ms(batch.last_update), "LU after {at} ms");
    }
}

#[test]
fn high_rate_single_token_requests_totals() {
    let mut scene = Scene::new(Quota::new(10, ms(10)));
    let (mut attempted, mut accepted) = (0, 0);
    for batch in &HIGH_RATE {
        scene.at(ms(batch.at));
        for _ in 0..batch.requests {
            attempted += 1;
            accepted += u64::from(scene.take(1));
            assert!(accepted <= 10 + batch.at, "more than the capacity and the minted tokens");
        }
    }
    assert_eq!((attempted, accepted, attempted - accepted), (94, 50, 44));
    assert_eq!(scene.limiter.snapshot().granted, 50);
}

#[test]
fn high_rate_requests_in_excess_are_queued_by_consume() {
    // The batches of 0 ms and 5 ms again, queued instead of rejected: 2 wait, then time brings 3 more tokens than
    // needed, then 4 wait. Each is served in the very millisecond of its token.
    let mut scene = Scene::new(Quota::new(10, ms(10)));
    let mut waiters = Vec::new();
    for (at, served) in [10, 1, 1, 0, 0, 3, 1, 1, 1, 1, 0].into_iter().enumerate() {
        scene.at(ms(at as u64));
        let batch = HIGH_RATE[..2].iter().find(|batch| batch.at == at as u64).map_or(0, |batch| batch.requests);
        waiters.extend((0..batch).map(|_| task::spawn(scene.limiter.clone().consume_owned(1))));
        scene.limiter.tick();
        let waiting = waiters.len();
        waiters.retain_mut(|request| request.poll().map(Result::unwrap).is_pending());
        assert_eq!(waiting - waiters.len(), served, "at {at} ms");
    }
}
