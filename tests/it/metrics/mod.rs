//! Meters: every series exact, nothing at all for grants without waiting, and recorders that harm nobody.

mod book;
mod counts;
mod hostile;
#[cfg(feature = "keyed")]
mod keyed;
mod levels;
mod prometheus;
mod waits;

use book::{Book, Page};
