//! Meters: every series is exact, grants without waiting record nothing, and recorders do no harm.

mod classes;
mod conventions;
mod counts;
mod hostile;
mod keyed;
mod levels;
mod prometheus;
mod recorder;
mod store;
mod waits;

use recorder::Values;
pub(crate) use recorder::{TestRecorder, scrape};
