//! A histogram of durations with fixed buckets, for `/metrics` and for the percentiles on the page.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::counters::{SHARDS, own_shard};

/// The first digits of the upper bounds in each decade: the preferred numbers R20 of ISO 3, about 12 % apart.
const STEPS: [u64; 20] =
    [100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900];
/// From 100 us to 100 s.
const DECADES: usize = 6;
/// How many durations can be told apart; the last bucket has all that are longer.
const BUCKETS: usize = STEPS.len() * DECADES + 1;
/// The upper bounds that `/metrics` shows, in microseconds: few, as each is a series for good.
const SHOWN: [u64; 14] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 50_000_000,
];

/// The upper bounds of all buckets but the last, in microseconds.
const BOUNDS: [u64; BUCKETS - 1] = {
    let mut bounds = [0; BUCKETS - 1];
    let (mut place, mut scale) = (0, 1);
    while place < bounds.len() {
        bounds[place] = STEPS[place % STEPS.len()] * scale;
        place += 1;
        if place % STEPS.len() == 0 {
            scale *= 10;
        }
    }
    bounds
};

/// Threads that write the same counter slow each other down, so each thread has a shard, as in `counters.rs`.
#[derive(Debug)]
pub(crate) struct Histogram([CachePadded<Shard>; SHARDS]);

#[derive(Debug)]
struct Shard {
    buckets: [AtomicU64; BUCKETS],
    /// The sum of all durations, in nanoseconds.
    sum: AtomicU64,
}

/// The durations until now.
#[derive(Clone, Debug)]
pub(crate) struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        let shard = || Shard { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) };
        Self(std::array::from_fn(|_| CachePadded::new(shard())))
    }
}

impl Histogram {
    pub(crate) fn note(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let micros = nanos.div_ceil(1_000);
        let shard = &self.0[own_shard()];
        // Most requests do not wait.
        let bucket = if micros == 0 { 0 } else { BOUNDS.partition_point(|bound| *bound < micros) };
        shard.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        if nanos > 0 {
            shard.sum.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let count = |bucket: usize| self.0.iter().map(|shard| shard.buckets[bucket].load(Ordering::Relaxed)).sum();
        let sum = self.0.iter().map(|shard| shard.sum.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        HistogramSnapshot { buckets: std::array::from_fn(count), sum: Duration::from_nanos(sum) }
    }
}

impl HistogramSnapshot {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration that a part of the durations since `before` did not exceed, to about 6 %; `None` if there were
    /// none. Above 100 s it is 100 s.
    pub(crate) fn percentile_since(&self, before: &Self, part: f64) -> Option<Duration> {
        let since = |bucket: usize| self.buckets[bucket].saturating_sub(before.buckets[bucket]);
        let total: u64 = (0..BUCKETS).map(since).sum();
        let rank = (total as f64 * part).ceil().max(1.0);
        let mut below = 0;
        for bucket in 0..BUCKETS {
            let here = since(bucket);
            if here > 0 && (below + here) as f64 >= rank {
                let from = bucket.checked_sub(1).map_or(0, |before| BOUNDS[before]);
                let to = BOUNDS.get(bucket).copied().unwrap_or(from);
                let share = (rank - below as f64) / here as f64;
                return Some(Duration::from_micros(from + ((to - from) as f64 * share) as u64));
            }
            below += here;
        }
        None
    }

    /// Writes the series `name` in the text format of Prometheus.
    pub(crate) fn write(&self, text: &mut String, name: &str, help: &str) -> fmt::Result {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram")?;
        for bound in SHOWN {
            let below = BOUNDS.partition_point(|other| *other <= bound);
            let count: u64 = self.buckets[..below].iter().sum();
            writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", Duration::from_micros(bound).as_secs_f64())?;
        }
        let count = self.count();
        writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}")?;
        writeln!(text, "{name}_sum {}\n{name}_count {count}\n", self.sum.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_bounds_of_the_metrics_are_bounds_of_buckets() {
        assert!(BOUNDS.is_sorted() && BOUNDS[0] == 100 && *BOUNDS.last().unwrap() == 90_000_000, "{BOUNDS:?}");
        assert!(SHOWN.iter().all(|bound| BOUNDS.contains(bound)));
    }

    #[test]
    fn percentiles_are_exact_to_a_bucket_and_of_the_time_since_the_reading_before() {
        let histogram = Histogram::default();
        let empty = histogram.snapshot();
        assert_eq!(empty.percentile_since(&empty, 0.5), None);
        (1..=1_000).for_each(|number| histogram.note(millis(number)));
        let first = histogram.snapshot();
        for (part, expected) in [(0.01, 10), (0.5, 500), (0.99, 990), (1.0, 1_000)] {
            let found = first.percentile_since(&empty, part).unwrap().as_secs_f64() * 1_000.0;
            assert!((found / f64::from(expected) - 1.0).abs() < 0.065, "{part}: {found} ms");
        }
        (0..10).for_each(|_| histogram.note(millis(3)));
        let later = histogram.snapshot().percentile_since(&first, 0.99).unwrap();
        assert!(millis(2) < later && later < millis(4), "{later:?}");
        assert_eq!(histogram.snapshot().count(), 1_010);
    }

    #[test]
    fn what_is_longer_than_all_buckets_is_counted() {
        let histogram = Histogram::default();
        histogram.note(Duration::MAX);
        histogram.note(Duration::ZERO);
        let mut text = String::new();
        histogram.snapshot().write(&mut text, "x_seconds", "Durations.").unwrap();
        assert!(text.contains("x_seconds_bucket{le=\"0.001\"} 1\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{le=\"50\"} 1\nx_seconds_bucket{le=\"+Inf\"} 2\n"), "{text}");
    }
}
