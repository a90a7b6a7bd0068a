//! Events of the store of a distributed quota. Reported to the global observer, because many limiters share a store.

use super::{GLOBAL, quietly};
use std::fmt::{Debug, Display};

/// The store is printed by its name.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "this build has no observer of it"))]
pub(crate) enum StoreEvent<'a> {
    /// The store cannot be reached from now on.
    OutageBegan { store: &'a dyn Debug, error: &'a dyn Display },
    /// The store answers again.
    OutageEnded { store: &'a dyn Debug },
    /// The setup of the store's server puts the quota at risk.
    Warned { store: &'a dyn Debug, warning: &'a str },
    /// The store has lost its state, which may exceed the quota by `excess` tokens of one limiter.
    Lost { store: &'a dyn Debug, excess: u64 },
}

pub(crate) fn report(event: &StoreEvent<'_>) {
    if let Some(observer) = GLOBAL {
        quietly(|| observer.store_event(event));
    }
}
