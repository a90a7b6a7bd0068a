//! The level of a limiter, which another one continues.

use std::time::SystemTime;

use tollgate::state::LimiterState;
use tollgate::{Builder, Limiter};

/// The tokens of a limiter at an instant. A limiter of another quota keeps them, as after a change of the file.
pub(crate) struct SavedLevel {
    state: LimiterState,
    now: SystemTime,
}

impl SavedLevel {
    /// The level now.
    pub(crate) fn of(limiter: &Limiter) -> Option<Self> {
        let now = SystemTime::now();
        limiter.state_at(now).ok().map(|state| Self::new(state, now))
    }

    /// A level of a state file, when the wall clock shows `now`.
    pub(crate) fn new(state: LimiterState, now: SystemTime) -> Self {
        Self { state: state.convert(), now }
    }

    /// Makes the limiter of `builder` continue from `level`, if there is one.
    pub(crate) fn restore_to(level: Option<Self>, builder: Builder) -> Builder {
        match level {
            Some(Self { state, now }) => builder.restore(state, now),
            None => builder,
        }
    }
}
