//! Many lines on one server.

use super::Store;
use std::sync::Arc;

/// A line that has others beside it, by name: one for each key of a [keyed limiter that is
/// shared](crate::KeyedBuilder::distributed). They are reached as this one is.
///
/// [`RedisStore`](crate::RedisLine) and [`MemoryStore`](super::MemoryLine) are such.
pub trait Stores: Store {
    /// The line of this name: another one for each name, and for each name of this line. What it is asked for is counted in
    /// the [tally](Line::tally) of this one.
    fn named(&self, name: &str) -> Arc<dyn Store>;
}

/// The key of the line of this name. The braces have a cluster keep it by what is between them.
pub(crate) fn key(name: &str) -> String {
    format!("{{{name}}}")
}

/// The key of the line `name` of those of the line with key `own`: by the length in the end no two of them are the same, however
/// they are spelled.
pub(crate) fn key_among(own: &str, name: &str) -> String {
    let of = own.strip_suffix('}').unwrap_or(own);
    format!("{of}:{name}}}:{}", of.len())
}
