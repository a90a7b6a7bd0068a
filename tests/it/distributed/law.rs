//! Checks the grants of many nodes together against the rate law of one bucket.

use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The instants and token counts of all grants, on any node.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Vec<(Instant, u64)>>>);

impl Ledger {
    pub fn note(&self, tokens: u64) {
        self.0.lock().unwrap().push((Instant::now(), tokens));
    }

    pub fn total(&self) -> u64 {
        self.0.lock().unwrap().iter().map(|(_, tokens)| tokens).sum()
    }

    /// By how many tokens the worst window exceeded `burst + rate x window`, in fractions of a token; 0 or less if no
    /// window did.
    pub fn excess(&self, per_second: u64, burst: u64) -> f64 {
        let mut grants = self.0.lock().unwrap().clone();
        grants.sort();
        let Some((origin, _)) = grants.first().copied() else { return -(burst as f64) };
        // The deficit of a bucket of unlimited depth. An excess is how far the deficit rises above its lowest point.
        let (mut before, mut lowest, mut worst) = (0_i128, i128::MAX, i128::MIN);
        for (at, tokens) in grants {
            let elapsed = (at - origin).as_nanos() as i128 * per_second as i128;
            let (start, end) = (before * 1_000_000_000 - elapsed, (before + tokens as i128) * 1_000_000_000 - elapsed);
            lowest = lowest.min(start);
            worst = worst.max(end - lowest);
            before += tokens as i128;
        }
        worst as f64 / 1e9 - burst as f64
    }
}
