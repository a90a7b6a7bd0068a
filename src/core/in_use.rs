//! References to limiters that are dropped soon.

use super::Core;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A reference to a limiter. If that belongs to a key, the keyed limiter is told when the reference has been dropped: a
/// sweep may have found the key in use meanwhile, and can forget it if this was the last reference.
///
/// Empty by default, and once it was [taken](Self::into_arc).
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse(Option<Arc<Core>>);

impl InUse {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self(Some(core))
    }

    /// The limiter, if it still exists.
    pub(crate) fn upgrade(core: &Weak<Core>) -> Option<Self> {
        core.upgrade().map(Self::new)
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Core> {
        self.0.as_deref()
    }

    /// The reference as one whose drop the keyed limiter is not told of.
    pub(crate) fn into_arc(mut self) -> Arc<Core> {
        self.0.take().expect(PRESENT)
    }

    #[inline(never)]
    fn let_go(core: Arc<Core>) {
        if let Some(link) = &core.link {
            let (driver, key_hash) = (Arc::clone(&link.driver), link.key_hash);
            // First: the next sweep must not find the limiter in use.
            drop(core);
            driver.let_go(key_hash);
        }
    }
}

const PRESENT: &str = "a reference is empty only by default and once it was taken";

impl Deref for InUse {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        self.get().expect(PRESENT)
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            Self::let_go(core);
        }
    }
}
