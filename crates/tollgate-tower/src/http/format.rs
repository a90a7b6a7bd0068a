//! The header fields in which limits are written and read.

use std::sync::Arc;

/// A set of response header fields, in one version. More variants will be added, because the draft still changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: all quotas, as structured
    /// fields.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: only the quota that is closest to its
    /// end.
    ///
    /// These fields have no specification. tollgate writes `Reset` in seconds from now. It reads `Reset` also as a
    /// Unix time in seconds or milliseconds, as other servers send it: a number of ten digits or more cannot mean
    /// seconds from now.
    XRateLimit,
}

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
    /// Another unit, which may or may not be in the draft's registry.
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
