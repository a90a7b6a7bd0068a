//! The names of listed keys and of rules.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The name of a listed key or of a rule. Each name is leaked once, so that requests copy it without a reference count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(&'static str);

impl Name {
    pub(crate) fn new(name: &str) -> Self {
        static KNOWN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Self(known.get(name).copied().unwrap_or_else(|| {
            let name = &*Box::leak(Box::<str>::from(name));
            known.insert(name);
            name
        }))
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
