//! Builders of limiters.

use tollgate::{Builder, KeyedBuilder, KeyedLimiter, Limiter, ManualClock};

/// Makes builders. Limiters that a change of the file adds have the clock of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builders {
    /// A clock moved by hand, for tests; `None` for the time.
    pub(crate) clock: Option<ManualClock>,
}

impl Builders {
    pub(crate) fn limiter(&self) -> Builder {
        match &self.clock {
            Some(clock) => Limiter::builder().clock(clock.clone()),
            None => Limiter::builder(),
        }
    }

    pub(crate) fn keyed<K>(&self) -> KeyedBuilder<K> {
        match &self.clock {
            Some(clock) => KeyedLimiter::builder().clock(clock.clone()),
            None => KeyedLimiter::builder(),
        }
    }
}
