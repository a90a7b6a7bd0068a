//! In which fields limits are told and read.

use std::sync::Arc;

/// A set of response header fields, of one version. More will come: the draft still moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: all quotas, structured.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: the one quota that is closest to its end.
    ///
    /// Nobody ever specified them. Written, `Reset` is in seconds from now; read, it may also be a Unix time in seconds or
    /// milliseconds, as others have it: a number of ten digits or more cannot be meant as seconds from now.
    XRateLimit,
}

/// What a quota counts.
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
    /// Something else, which the draft's registry may or may not know.
    Other(Arc<str>),
}

impl Unit {
    /// As the draft writes it.
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
