//! The units of quotas, as the draft names them.

use std::sync::Arc;

/// The unit that a quota counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Requests.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
    /// Requests at the same time.
    ConcurrentRequests,
    /// Another unit, which may or may not be in the draft's registry: for example `tokens`, `input-tokens` or
    /// `output-tokens` of a language model.
    Other(Arc<str>),
}

impl Unit {
    /// Returns the unit as the draft writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Unit {
    fn from(name: &str) -> Self {
        match name {
            // Section 3.1.2 of the draft has the plural, its registry in section 10.3 the singular.
            "requests" | "request" => Self::Requests,
            "content-bytes" => Self::ContentBytes,
            "concurrent-requests" => Self::ConcurrentRequests,
            other => Self::Other(other.into()),
        }
    }
}
