//! The state of a custom entry.

use super::{Levels, Rates};
use crate::core::Core;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The levels of a key with an entry of its own, or its core.
#[derive(Debug)]
pub(super) enum EntryState {
    /// A level under the entry's only quota, packed.
    PackedLevel([NonZeroU64; 1]),
    /// The levels of two quotas, packed.
    PackedPair(Box<[NonZeroU64; 2]>),
    /// Levels that do not fit packed levels.
    Wide(Box<Levels>),
    /// A limiter core; the key has waiters or tokens in flight.
    Live(Arc<Core>),
}

impl EntryState {
    pub(super) fn of(rates: &Rates, levels: &Levels) -> Self {
        if let Some(packed) = rates.pack(levels) {
            Self::PackedLevel(packed)
        } else if let Some(packed) = rates.pack(levels) {
            Self::PackedPair(Box::new(packed))
        } else {
            Self::Wide(Box::new(*levels))
        }
    }

    /// The levels at `now`, to which the shard [has advanced](super::Shard::advance_to); or the live core, which knows its own
    /// levels.
    pub(super) fn levels(&self, rates: &Rates, now: u64) -> Result<Levels, &Arc<Core>> {
        match self {
            Self::Live(live) => Err(live),
            Self::PackedLevel(packed) => Ok(rates.unpack(packed, now)),
            Self::PackedPair(packed) => Ok(rates.unpack(packed, now)),
            Self::Wide(levels) => Ok(rates.advance(levels, now)),
        }
    }

    /// The last known levels, as of `readable` or of an earlier instant; `None` for a live core. `readable` is the last
    /// instant at which packed levels can be read.
    pub(super) fn levels_by(&self, rates: &Rates, readable: u64) -> Option<Levels> {
        if let Self::Wide(levels) = self { Some(**levels) } else { self.levels(rates, readable).ok() }
    }

    pub(super) fn live(&self) -> Option<&Arc<Core>> {
        if let Self::Live(live) = self { Some(live) } else { None }
    }

    pub(super) fn into_live(self) -> Option<Arc<Core>> {
        if let Self::Live(live) = self { Some(live) } else { None }
    }
}
