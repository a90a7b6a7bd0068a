//! Events of the store of a distributed quota. Reported to the global observer, because many limiters share a store.

use super::GLOBAL;
use crate::core::quietly;
use crate::distributed::StoreError;
use std::fmt::Debug;

/// The store is printed by its name.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "this build has no observer of it"))]
pub(crate) enum StoreEvent<'a> {
    /// The store cannot be reached, or answers with errors, from now on.
    OutageBegan { store: &'a dyn Debug, error: &'a StoreError },
    /// The store grants tokens again.
    OutageEnded { store: &'a dyn Debug },
    /// Something on the store's server puts the quota at risk, or makes requests slow.
    Warned { store: &'a dyn Debug, warning: &'a str },
    /// The store has lost its state, which may exceed the quota by `excess` tokens of one limiter.
    Lost { store: &'a dyn Debug, excess: u64 },
}

pub(crate) fn report(event: &StoreEvent<'_>) {
    if let Some(observer) = GLOBAL {
        quietly(|| observer.store_event(event));
    }
}
