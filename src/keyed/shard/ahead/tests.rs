use crate::keyed::rates::{Levels, Rates};
use crate::keyed::shard::EntryRequest;
use crate::{KeyedLimiter, Quota};
use std::time::Duration;

const BURST: u64 = 640;
/// Nanoseconds per token.
const EACH: u64 = 300;

fn dice(seed: &mut u64, sides: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % sides
}

/// A bucket that reads the time for each claim. Its level is in nanoseconds of minting.
#[derive(Clone, Copy)]
struct Exact {
    level: u64,
    at: u64,
}

impl Exact {
    fn level(&mut self, now: u64) -> u64 {
        self.level = (self.level + now - self.at).min(BURST * EACH);
        self.at = now;
        self.level
    }
}

/// Fast calls on a few keys, with rests, and with all that looks at levels between them: nothing is granted that an
/// exact bucket does not have, and never is more than a stride missing.
#[tokio::test(start_paused = true)]
async fn a_key_that_runs_ahead_gets_no_more_than_its_quota_and_loses_at_most_a_stride() {
    for seed in 0..20 {
        let quota = Quota::new(1, Duration::from_nanos(EACH)).burst(BURST);
        let keyed = KeyedLimiter::builder().quota(quota).max_keys(5).shards(1).build().unwrap();
        let synced = || keyed.map.shards[0].lock().synced;
        let mut exact = [Exact { level: BURST * EACH, at: 0 }; 6];
        let (mut seed, mut now, mut granted, mut unread) = (seed, 0, 0, 0);
        for step in 0..40_000_u64 {
            let elapsed = match dice(&mut seed, 1_000) {
                0 => EACH * BURST + dice(&mut seed, 9_000),
                1..5 => dice(&mut seed, 90_000),
                _ => 1 + dice(&mut seed, 400),
            };
            now += elapsed;
            tokio::time::advance(Duration::from_nanos(elapsed)).await;
            let key = if dice(&mut seed, 60) > 0 { (step >> 12) % 6 } else { dice(&mut seed, 6) };
            let (cost, own) = (1 + dice(&mut seed, 2), &mut exact[key as usize]);
            match dice(&mut seed, 4_000) {
                0 => keyed.tick(),
                1 => keyed.set_quota(quota).unwrap(),
                2 => keyed.pause_all_for(Duration::from_nanos(0)),
                3 => assert!(keyed.entries().count() <= 6),
                4 => {
                    let (level, available) = (own.level(now) / EACH, keyed.available(&key));
                    assert!((level.saturating_sub(BURST / super::PART)..=level).contains(&available), "step {step}");
                }
                _ => {}
            }
            let level = own.level(now);
            if keyed.try_acquire(&key, cost).is_ok() {
                (granted, unread) = (granted + 1, unread + u64::from(synced() < now));
                assert!(level >= cost * EACH, "step {step}: {level} ns of key {key}, claimed {cost} tokens");
                own.level -= cost * EACH;
            } else {
                assert!(level < (cost + BURST / super::PART + 1) * EACH || keyed.snapshot().keys == 5, "step {step}");
            }
        }
        assert!(granted > 20_000 && unread > granted / 4, "{granted} granted, {unread} without a reading");
    }
}

fn one_shard() -> KeyedLimiter<u64> {
    let quota = Quota::new(1, Duration::from_nanos(EACH)).burst(BURST);
    KeyedLimiter::builder().quota(quota).shards(1).build().unwrap()
}

/// Advances the time by 100 ns before each of `calls` calls on `key`.
async fn call_fast(keyed: &KeyedLimiter<u64>, key: u64, calls: u64) {
    for _ in 0..calls {
        tokio::time::advance(Duration::from_nanos(100)).await;
        drop(keyed.try_acquire(&key, 1).unwrap());
    }
}

/// How many tokens can be taken without a reading.
fn free(keyed: &KeyedLimiter<u64>) -> u64 {
    keyed.map.shards[0].lock().rare_fields().ahead.free
}

/// Calls until the longest stride begins.
async fn run_ahead(keyed: &KeyedLimiter<u64>) {
    call_fast(keyed, 7, 100).await;
    while free(keyed) < BURST / super::PART {
        call_fast(keyed, 7, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stride_is_at_most_a_64th_of_a_lowered_burst() {
    let keyed = one_shard();
    run_ahead(&keyed).await;
    call_fast(&keyed, 7, 3).await;
    keyed.set_quota(Quota::new(1, Duration::from_nanos(EACH)).burst(2 * super::PART)).unwrap();
    for _ in 0..20 {
        call_fast(&keyed, 7, 1).await;
        assert!(free(&keyed) <= 2, "{} tokens", free(&keyed));
    }
}

/// A thread reads the time, and does not get the lock before another one has taken tokens without a reading: these
/// are not taken from the level of that time, because the bucket was full since then.
#[tokio::test(start_paused = true)]
async fn a_stride_is_charged_at_no_reading_that_is_older_than_its_tokens() {
    let keyed = one_shard();
    run_ahead(&keyed).await;
    tokio::time::advance(Duration::from_nanos(BURST * EACH)).await;
    let map = &keyed.map;
    let early = map.now();
    tokio::time::advance(Duration::from_nanos(BURST * EACH)).await;
    let taken = free(&keyed);
    (0..taken).for_each(|_| drop(keyed.try_acquire(&7, 1).unwrap()));
    assert_eq!(free(&keyed), 0);
    let request = EntryRequest { key: map.hashed(&7), now: early, offered: None, forced: false };
    let take = |rates: &Rates, levels: &mut Levels| rates.take(levels, 1);
    let taken_late = map.in_shard(0, |shard, context| shard.at_levels(&request, context, take));
    assert!(taken_late.is_ok_and(|left| left.is_some()));
    assert_eq!(keyed.available(&7), BURST - taken - 1);
}
