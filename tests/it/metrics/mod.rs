//! Meters: every series is exact, grants without waiting record nothing, and recorders do no harm.

mod book;
mod classes;
mod conventions;
mod counts;
mod hostile;
#[cfg(feature = "keyed")]
mod keyed;
mod levels;
mod prometheus;
#[cfg(feature = "distributed")]
mod store;
mod waits;

pub(crate) use book::Book;
use book::Page;
