//! The keys with the most grants, refusals and waits.

use super::manual;
use crate::fixture::*;
use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use tollgate::{KeyedTop, TopKey};

/// Hashes without a random seed.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// Keys of a Zipf distribution: key 0 is the most frequent one.
struct Zipf {
    /// The probability of this key or of one before it.
    upto: Vec<f64>,
    random: fastrand::Rng,
}

impl Zipf {
    fn new(keys: u32, exponent: f64, seed: u64) -> Self {
        let parts = (1..=keys).map(|rank| f64::from(rank).powf(-exponent));
        let mut upto: Vec<f64> = parts.scan(0.0, |sum, part| Some((*sum += part, *sum).1)).collect();
        let sum = upto[upto.len() - 1];
        upto.iter_mut().for_each(|part| *part /= sum);
        Self { upto, random: fastrand::Rng::with_seed(seed) }
    }

    fn draw(&mut self) -> u64 {
        let part = self.random.f64();
        self.upto.partition_point(|upto| *upto <= part) as u64
    }
}

fn keys(list: &[TopKey<u64>]) -> Vec<u64> {
    list.iter().map(|top| top.key).collect()
}

/// The share of the true ten keys with the largest counts that are in `found`.
fn recall(truth: &HashMap<u64, u64>, found: &[TopKey<u64>]) -> f64 {
    let mut order: Vec<_> = truth.iter().map(|(key, count)| (Reverse(*count), *key)).collect();
    order.sort_unstable();
    let found = keys(found);
    order[..10].iter().filter(|(_, key)| found.contains(key)).count() as f64 / 10.0
}

/// A limiter whose keys have a hundred tokens, so that frequent keys are refused.
fn ranked(shards: Option<usize>) -> KeyedLimiter<u64, Fixed> {
    let builder = KeyedLimiter::builder().quota(Quota::per_day(100)).unbounded_keys().clock(ManualClock::new());
    let builder = builder.hasher(Fixed::default()).top(60 * SECOND);
    shards.into_iter().fold(builder, |builder, shards| builder.shards(shards)).build().unwrap()
}

#[test]
fn the_top_ten_of_a_zipf_stream_of_a_million_keys_are_found() {
    for shards in [None, Some(2_604)] {
        let keyed = ranked(shards);
        let (mut refused, mut zipf) = (HashMap::new(), Zipf::new(1_000_000, 1.1, 7));
        for _ in 0..200_000 {
            let key = zipf.draw();
            if keyed.try_acquire(&key, 1).is_err() {
                *refused.entry(key).or_default() += 1;
            }
        }
        let top = keyed.top(10);
        assert_eq!((top.refused.len(), top.granted.len()), (10, 10));
        assert!(recall(&refused, &top.refused) >= 0.95, "{shards:?}");
        for TopKey { key, count, error, .. } in top.refused {
            assert!((count - error..=count).contains(&refused[&key]), "{key}, {shards:?}");
        }
    }
}

#[test]
fn the_keys_with_the_most_tokens_are_found() {
    let builder = KeyedLimiter::builder().quota(Quota::per_day(1_000_000)).unbounded_keys().clock(ManualClock::new());
    let keyed = builder.hasher(Fixed::default()).top(60 * SECOND).build().unwrap();
    let (mut granted, mut zipf) = (HashMap::new(), Zipf::new(1_000_000, 1.1, 8));
    for _ in 0..200_000 {
        let (key, cost) = (zipf.draw(), zipf.random.u64(1..4));
        let _ = keyed.try_acquire(&key, cost).unwrap();
        *granted.entry(key).or_default() += cost;
    }
    let top = keyed.top(10).granted;
    assert!(recall(&granted, &top) >= 0.95);
    for TopKey { key, count, .. } in top {
        let ratio = count as f64 / granted[&key] as f64;
        assert!((0.85..=1.15).contains(&ratio), "{ratio} of the tokens of {key}");
    }
}

#[test]
fn tokens_refusals_and_waits_are_counted_however_a_key_is_stored() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(10)).top(60 * SECOND));
    let _ = keyed.try_acquire(&1, 4).unwrap(); // new
    let _ = keyed.try_acquire(&1, 3).unwrap(); // in memory
    assert!(keyed.try_acquire(&1, 9).is_err());
    {
        let mut granted = spawn(keyed.consume(&1, 3));
        assert!(granted.poll().is_ready());
        let mut waiting = spawn(keyed.consume(&1, 5));
        assert!(waiting.poll().is_pending() && waiting.poll().is_pending());
        tick_after(&clock, &keyed, SECOND);
        assert!(waiting.poll().is_ready()); // of a live entry
        assert!(keyed.consume(&2, 1).within(SECOND).now_or_never().is_some_and(|answer| answer.is_ok()));
    }
    let _ = keyed.try_acquire(&1, 2).unwrap();
    let top = keyed.top(9);
    let counts = |list: &[TopKey<i32>]| list.iter().map(|top| (top.key, top.count, top.error)).collect::<Vec<_>>();
    assert_eq!(counts(&top.granted), [(1, 17, 0), (2, 1, 0)]);
    assert_eq!((counts(&top.refused), counts(&top.waited)), (vec![(1, 1, 0)], vec![(1, 1, 0)]));
    clock.advance(6_000 * SECOND);
    assert_eq!(keyed.top(9), KeyedLimiter::new(Quota::per_second(1)).unwrap().top(9), "all of it has faded");
}

#[test]
fn with_a_cap_and_under_a_parent_tokens_are_counted_once() {
    let clock = ManualClock::new();
    let parent = tollgate::Limiter::builder().quota(Quota::per_second(100)).clock(clock.clone()).build().unwrap();
    let builder = || KeyedLimiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).top(SECOND);
    for keyed in [builder().max_in_flight(10).build().unwrap(), builder().parent(&parent).build().unwrap()] {
        for _ in 0..2 {
            drop(keyed.try_acquire(&"ann", 2).unwrap());
            assert!(keyed.consume(&"ann", 2).now_or_never().is_some_and(|answer| answer.is_ok()));
        }
        assert!(keyed.blocking_consume(&"ann", 1).is_ok());
        let KeyedTop { granted, waited, .. } = keyed.top(1);
        assert_eq!((granted.len(), granted[0].count, granted[0].error, waited.len()), (1, 9, 0, 0));
    }
}

#[test]
fn it_is_off_unless_asked_for_and_its_window_is_not_zero() {
    let keyed = KeyedLimiter::new(Quota::per_day(1)).unwrap();
    let _ = (keyed.try_acquire(&1, 1), keyed.try_acquire(&1, 1));
    let top = keyed.top(10);
    assert!(top.granted.is_empty() && top.refused.is_empty() && top.waited.is_empty());
    let zero = KeyedLimiter::<u64>::builder().quota(Quota::per_day(1)).top(Duration::ZERO).build();
    assert_eq!(zero.unwrap_err(), ConfigError::NoWindow);
    let twice = KeyedLimiter::<u64>::builder().quota(Quota::per_day(1)).top(SECOND).top(SECOND).build();
    assert_eq!(twice.unwrap_err(), ConfigError::SetTwice { setting: "top" });
}
