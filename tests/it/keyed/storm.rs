//! Threads on a few keys that change between packed levels and live entries all the time: every token is accounted for.

use crate::fixture::*;

const THREADS: usize = 4;
const KEYS: u64 = 3;
const CALLS: u64 = 20_000;
const BURST: u64 = 30_000;
/// Runs the threads; the clock moves by a millisecond for every `every` calls. Returns the tokens granted to each key,
/// and the milliseconds passed.
fn storm(keyed: &KeyedLimiter<u64>, clock: &ManualClock, every: u64) -> (Vec<u64>, u64) {
    let granted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let moved = AtomicU64::new(0);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for seed in 0..THREADS as u64 {
            let (granted, moved, start) = (&granted, &moved, &start);
            scope.spawn(move || {
                start.wait();
                let mut dice = fastrand::Rng::with_seed(seed);
                for call in 0..CALLS {
                    let key = dice.u64(0..KEYS);
                    let count = |tokens| granted[key as usize].fetch_add(tokens, Relaxed);
                    match dice.u32(0..100) {
                        0..50 => _ = keyed.try_acquire(&key, 1).map(|_| count(1)),
                        50..70 => {
                            if let Some(Ok(grant)) = keyed.consume(&key, 2).now_or_never() {
                                count(grant.cost());
                            }
                        }
                        // More than the level ever reaches: the claim creates a live entry, and leaves its queue at
                        // once.
                        70..85 => assert!(keyed.consume(&key, 2 * BURST).now_or_never().is_none()),
                        85..95 => {
                            if let Ok(mut grant) = keyed.try_acquire(&key, 3) {
                                grant.settle(&key, 1);
                                count(1);
                            }
                        }
                        95..98 => keyed.tick(),
                        _ => _ = keyed.snapshot(),
                    }
                    if every > 0 && call % every == 0 {
                        clock.advance(MILLI);
                        moved.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    (granted.into_iter().map(AtomicU64::into_inner).collect(), moved.into_inner())
}

fn build(clock: &ManualClock, burst: u64) -> KeyedLimiter<u64> {
    let builder = KeyedLimiter::builder().quota(Quota::new(1, MILLI).burst(burst)).clock(clock.clone());
    builder.max_keys(KEYS).shards(2).build().unwrap()
}

#[test]
fn a_storm_on_a_few_keys_accounts_for_every_token() {
    let clock = ManualClock::new();
    let keyed = build(&clock, BURST);
    let (granted, _) = storm(&keyed, &clock, 0);
    for key in 0..KEYS {
        assert_eq!(granted[key as usize] + keyed.available(&key), BURST, "key {key}");
        assert!(granted[key as usize] > 1_000, "key {key} was used");
    }
    assert_eq!(kept(&keyed), granted.iter().sum::<u64>());
}

/// The tokens granted to all keys together and kept, as reported to the metrics.
fn kept(keyed: &KeyedLimiter<u64>) -> u64 {
    let seen = keyed.snapshot();
    seen.granted - seen.refunded
}

#[test]
fn a_storm_in_which_time_goes_by_keeps_the_law_for_each_key() {
    let clock = ManualClock::new();
    // So few tokens that keys are refused most of the time, removed at times, and created again.
    let keyed = build(&clock, 20);
    let (granted, moved) = storm(&keyed, &clock, 3);
    let all: u64 = granted.iter().sum();
    for (key, granted) in granted.into_iter().enumerate() {
        // A grant of 3 that is settled to 1 may have kept other claims out. It never let more pass.
        assert!(granted <= 20 + moved, "key {key}: {granted} in {moved} ms");
        assert!(granted >= moved / 4, "key {key}: {granted} in {moved} ms");
    }
    assert_eq!(kept(&keyed), all);
}

#[test]
fn a_storm_under_a_limiter_accounts_for_every_token_in_both() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::new(1, MILLI).burst(2 * BURST)).clock(clock.clone());
    let global = builder.build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::new(1, MILLI).burst(BURST)).clock(clock.clone());
    let keyed = builder.max_keys(KEYS).shards(2).parent(&global).build().unwrap();
    let (granted, _) = storm(&keyed, &clock, 0);
    let all: u64 = granted.iter().sum();
    assert_eq!((all + global.available(), kept(&keyed)), (2 * BURST, all));
    assert_eq!(global.snapshot().granted - global.snapshot().refunded, all);
    assert_eq!(global.snapshot().waiting_tasks, 0, "no proxy is left behind");
    global.replenish(2 * BURST);
    for key in 0..KEYS {
        assert_eq!(granted[key as usize] + keyed.available(&key), BURST, "key {key}");
    }
}
