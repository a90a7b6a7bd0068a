//! States that are saved and restored: they continue as if the process had kept running, and are refused whole or
//! restored whole.

mod keyed;
mod limiter;
mod refused;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: Duration = Duration::from_secs(1);

/// What the wall clock shows when the tests begin.
fn begin() -> SystemTime {
    UNIX_EPOCH + 1_700_000_000 * SECOND
}
