//! The header fields in which limits are written and read.

use super::resources::Family;

/// A set of response header fields, in one version. More variants will be added, because the draft still changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: all quotas, as structured
    /// fields.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: only the quota that is closest to its
    /// end. Also read, and not written: `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` (GitLab, Docker
    /// Hub), `X-Rate-Limit-Limit`, `-Remaining` and `-Reset` (Okta, Twitter), and `-Reset-After` (Discord) of each.
    ///
    /// These fields have no specification. tollgate writes `Reset` in seconds from now, and at most the limit as
    /// `Remaining`, also where a burst is larger. It reads `Reset` in each form
    /// that [`ResourceLimits`](super::ResourceLimits) names: a number beyond a year of seconds is a Unix time.
    ///
    /// GitHub counts several resources (`core`, `search`, `graphql`), and names in `X-RateLimit-Resource` the one that
    /// a response is about. Give each a limiter of its own with [`HeedLayer::by`](super::HeedLayer::by).
    XRateLimit,
    /// `X-RateLimit-Limit-Requests`, `X-RateLimit-Remaining-Tokens`, `X-RateLimit-Reset-Tokens`: a quota for each
    /// resource, as OpenAI, Azure, Groq and Cerebras send them. Only read. Each resource is a [`Unit`](super::Unit) of that name.
    ///
    /// `Reset` is the time until the whole limit is available again. The server refills its quota steadily. It does not
    /// send the window: tollgate computes the window from the three values, if they fit a minute, an hour or a day.
    OpenAi,
    /// `anthropic-ratelimit-input-tokens-limit`, `-remaining` and `-reset`: a quota for each resource, as Anthropic sends
    /// them. Only read. Each resource is a [`Unit`](super::Unit) of that name, and its window is a minute.
    Anthropic,
}

impl Format {
    /// All formats, in the order in which they are tried: those that contain most information first.
    pub(super) const ALL: [Self; 4] = [Self::Draft11, Self::OpenAi, Self::Anthropic, Self::XRateLimit];

    /// The sets of fields of this format, except those of [`Draft11`](Self::Draft11), which are structured.
    pub(super) fn families(self) -> &'static [Family] {
        match self {
            Self::Draft11 => &[],
            Self::XRateLimit => &Family::PLAIN,
            Self::OpenAi => &[Family::OpenAi],
            Self::Anthropic => &[Family::Anthropic],
        }
    }
}
