//! Selects a quota of a limiter: by index or by name.

use std::fmt;

/// Selects one quota of a limiter, for [`set_quota`](crate::Limiter::set_quota). Converts from an index or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// The index in the order in which the quotas were added to the builder, from 0.
    Index(usize),
    /// The name given with [`quota_named`](crate::Builder::quota_named).
    Name(&'a str),
}

impl From<usize> for Which<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl<'a> From<&'a str> for Which<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl fmt::Display for Which<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}
