//! The name of a class among its siblings.

use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ClassName {
    /// Given by the user.
    Text(Arc<str>),
    /// The class of a key of a keyed limiter.
    Key(KeyName),
}

/// A key of a keyed limiter, by its hash. Keys of one hash share a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyName {
    /// The number of the keyed limiter.
    pub(crate) limiter: u64,
    pub(crate) hash: u64,
}

impl Default for ClassName {
    fn default() -> Self {
        Self::Text("".into())
    }
}

impl ClassName {
    pub(crate) fn is_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(name) => name.fmt(f),
            Self::Key(_) => f.write_str("a key"),
        }
    }
}
