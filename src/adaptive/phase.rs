//! Random pauses that get a client out of step with others.
//!
//! Clients that run at the same rate and have met once meet again with each request: if the server refused one of two
//! requests because they arrived together, it refuses the next one too, whatever the rate. A client therefore shifts its
//! requests by a random time, as stations of an Ethernet do after a collision (Metcalfe and Boggs 1976).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The longest shift, in intervals between two requests. Up to one interval the next request waits for its tokens anyway.
const INTERVALS: f64 = 2.0;

/// The state of a random sequence: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug)]
pub(super) struct Phase(u64);

impl Phase {
    /// Without a seed, each client gets a different sequence.
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
    }

    /// Returns a random time of up to two intervals between requests of `cost` tokens.
    pub(super) fn shift(&mut self, cost: u64, rate: f64) -> Duration {
        let interval = cost.max(1) as f64 / rate;
        Duration::try_from_secs_f64(self.next() * INTERVALS * interval).unwrap_or(Duration::MAX)
    }

    /// Returns a number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }
}
