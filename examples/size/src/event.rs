//! One call of a trace.

/// The largest cost of one call that a limiter accepts.
pub const MAX_COST: u64 = 1 << 48;

/// A call: its instant, its key and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the origin of the trace's clock.
    pub at: u64,
    /// The number of the key, in the order in which keys first appear.
    pub key: u32,
    pub cost: u64,
}

/// Parses a cost in tokens.
pub fn parse_cost(text: &str) -> Result<u64, String> {
    let cost = text.parse().ok().filter(|cost| *cost <= MAX_COST);
    cost.ok_or_else(|| format!("`{text}` is no cost: write a whole number of tokens from 0 to {MAX_COST}"))
}
