//! Many lines on one server.

use super::Line;
use std::sync::Arc;

/// A line that has others beside it, by name: one for each key of a [keyed limiter that is
/// shared](crate::KeyedBuilder::shared). They are reached as this one is.
///
/// [`RedisLine`](crate::RedisLine) and [`MemoryLine`](super::MemoryLine) are such.
pub trait Lines: Line {
    /// The line of this name: another one for each name, and for each name of this line. What it is asked for is counted in
    /// the [tally](Line::tally) of this one.
    fn named(&self, name: &str) -> Arc<dyn Line>;
}
