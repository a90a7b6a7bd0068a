//! A log-linear histogram of waits, in fixed memory.

use std::time::Duration;

/// Each power of two is divided into this many buckets of equal width, so a percentile is at most a quarter too high.
const PER_OCTAVE: u64 = 4;
const FINE_BITS: u32 = PER_OCTAVE.trailing_zeros();
/// Waits below 2^16 ns (66 us) are in the first bucket: no timer is that exact.
const LEAST_BITS: u32 = 16;
/// Waits from 2^52 ns (52 days) on are in the last bucket.
const MOST_BITS: u32 = 52;
const BUCKETS: usize = 1 + ((MOST_BITS - LEAST_BITS) as usize) * PER_OCTAVE as usize;
/// When this many waits are counted, all counts are halved, so that older waits count less.
const MOST: u32 = 2_048;

const _: () = assert!(BUCKETS <= u8::MAX as usize);

/// Counts waits; of the older ones less and less.
#[derive(Clone, Debug)]
pub(super) struct WaitHistogram {
    /// The sum of all buckets.
    count: u32,
    buckets: [u16; BUCKETS],
}

/// The last waits of a class, as the numbers of their buckets. They wait here until there are [enough](Self::SPACE) of them,
/// because the histogram of one of thousands of classes is usually in no cache.
#[derive(Debug, Default)]
pub(crate) struct LastWaits {
    buckets: [u8; Self::SPACE],
    len: u8,
}

impl LastWaits {
    const SPACE: usize = 7;

    /// Adds a wait. Returns true if there is no space for another one.
    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) -> bool {
        self.buckets[usize::from(self.len) % Self::SPACE] = bucket_of(nanos) as u8;
        self.len += 1;
        usize::from(self.len) == Self::SPACE
    }
}

impl Default for WaitHistogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }
}

impl WaitHistogram {
    pub(super) fn add(&mut self, waits: &LastWaits) {
        for bucket in &waits.buckets[..usize::from(waits.len)] {
            if self.count >= MOST {
                self.buckets.iter_mut().for_each(|count| *count /= 2);
                self.count = self.buckets.iter().map(|count| u32::from(*count)).sum();
            }
            self.buckets[usize::from(*bucket)] += 1;
            self.count += 1;
        }
    }

    /// An upper bound of the waits of `percent` in a hundred. `None` without a wait.
    pub(super) fn percentile(&self, percent: u32) -> Option<Duration> {
        let mut left = (self.count * percent).div_ceil(100).max(1);
        let found = self.buckets.iter().position(|count| {
            let is_here = left <= u32::from(*count);
            left = left.saturating_sub(u32::from(*count));
            is_here
        });
        Some(Duration::from_nanos(end_of(found?)))
    }
}

fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << LEAST_BITS {
        return 0;
    }
    let octave = nanos.ilog2();
    if octave >= MOST_BITS {
        return BUCKETS - 1;
    }
    let fine = (nanos >> (octave - FINE_BITS)) % PER_OCTAVE;
    1 + ((octave - LEAST_BITS) as usize) * PER_OCTAVE as usize + fine as usize
}

/// Where a bucket ends: the first wait that is in the next one.
fn end_of(bucket: usize) -> u64 {
    let (octave, fine) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    ((PER_OCTAVE + fine) << (LEAST_BITS - FINE_BITS)) << octave
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_below_the_end_of_its_bucket_and_not_below_that_of_the_one_before() {
        for bits in 0..MOST_BITS {
            for nanos in [1 << bits, (1 << bits) + 1, (1 << bits) + (1 << bits) / 3, (2 << bits) - 1] {
                let bucket = bucket_of(nanos);
                assert!(nanos < end_of(bucket), "{nanos}: {bucket}");
                assert!(bucket == 0 || nanos >= end_of(bucket - 1), "{nanos}: {bucket}");
                assert!(bucket == 0 || end_of(bucket) as f64 <= nanos as f64 * 1.25 + 1.0, "{nanos}: {bucket}");
            }
        }
        assert_eq!((bucket_of(0), end_of(0)), (0, 1 << LEAST_BITS));
        assert_eq!((bucket_of(u64::MAX), end_of(BUCKETS - 1)), (BUCKETS - 1, 1 << MOST_BITS));
    }

    fn add(histogram: &mut WaitHistogram, nanos: u64) {
        let mut waits = LastWaits::default();
        waits.add(nanos);
        histogram.add(&waits);
    }

    #[test]
    fn the_last_waits_are_counted_in_their_order() {
        let (mut together, mut alone) = (WaitHistogram::default(), WaitHistogram::default());
        for round in 0..1_000_u64 {
            let mut waits = LastWaits::default();
            for index in 0..LastWaits::SPACE as u64 {
                let nanos = 100_000 << ((round + index) % 9);
                assert_eq!(waits.add(nanos), index == LastWaits::SPACE as u64 - 1);
                add(&mut alone, nanos);
            }
            together.add(&waits);
        }
        assert_eq!((together.count, together.buckets), (alone.count, alone.buckets));
    }

    #[test]
    fn percentiles_bound_the_waits() {
        let mut waits = WaitHistogram::default();
        assert_eq!(waits.percentile(50), None);
        (1..=100).for_each(|n| add(&mut waits, n * 1_000_000));
        for percent in [1, 50, 99, 100] {
            let bound = waits.percentile(percent).unwrap().as_nanos() as u64;
            let exact = u64::from(percent) * 1_000_000;
            assert!(exact < bound && bound <= exact + exact / 4 + 1, "{percent}: {bound}");
        }
    }

    #[test]
    fn old_waits_count_less_and_less() {
        let mut waits = WaitHistogram::default();
        (0..100_000).for_each(|_| add(&mut waits, 1_000_000_000));
        (0..20 * MOST).for_each(|_| add(&mut waits, 1_000_000));
        assert!(waits.percentile(99).unwrap() < Duration::from_millis(2));
        assert!(waits.count <= MOST);
    }
}
