//! The pauses of a queue: its own, and the common one of all keys of a keyed limiter.

/// The ends of the pauses of one queue, in nanoseconds; 0 if there is none. The later one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) own: u64,
    /// The keyed limiter has the value, and each of its keys reads it when it changes.
    pub(crate) common: u64,
}

impl Pauses {
    /// The instant before which no claim passes.
    pub(crate) fn gate(&self) -> u64 {
        self.own.max(self.common)
    }
}
