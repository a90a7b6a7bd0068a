//! Whether the service is healthy, for all protocols that ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The health of the service. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_draining: AtomicBool,
    lacks_rules: AtomicBool,
}

impl Health {
    /// The service ends: it answers what it has, and is not healthy any more.
    pub fn drain(&self) {
        self.state.is_draining.store(true, Ordering::Release);
    }

    /// Says whether the service lacks a configuration that it needs.
    pub fn lack_rules(&self, lacks: bool) {
        self.state.lacks_rules.store(lacks, Ordering::Release);
    }

    /// Returns why the service is not healthy.
    pub fn problem(&self) -> Option<&'static str> {
        if self.state.is_draining.load(Ordering::Acquire) {
            Some("draining")
        } else if self.state.lacks_rules.load(Ordering::Acquire) {
            Some("no configuration is loaded")
        } else {
            None
        }
    }
}
