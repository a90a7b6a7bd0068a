//! What a request is answered.

use crate::bucket::{MOST_JOINED, Reason};
use crate::overrides::BadOverride;
use crate::proto::{Code, DescriptorStatus, HeaderValue, RateLimitResponse, Span};
use std::time::Duration;

/// The most descriptors of a request.
pub const MOST_DESCRIPTORS: usize = 1_000;

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What Envoy is told.
    pub response: RateLimitResponse,
    /// When a refused request would pass, if that is known.
    pub retry_after: Option<Duration>,
    /// Why the request was refused.
    pub reason: Option<Reason>,
}

impl Answer {
    /// Returns true if the request passes.
    pub fn passes(&self) -> bool {
        self.response.overall_code == Code::Ok as i32
    }
}

/// Why a request has no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The domain is empty.
    #[error("the domain is empty: set `domain` in the proxy's rate limit settings")]
    NoDomain,
    /// There are no descriptors.
    #[error("there are no descriptors: send at least one")]
    NoDescriptors,
    /// There are more than 1,000 descriptors.
    #[error("{0} descriptors, the most is {MOST_DESCRIPTORS}: send fewer in one request")]
    TooManyDescriptors(usize),
    /// More than eight descriptors would wait together.
    #[error("{0} descriptors of an `all_or_nothing` domain match limits, the most is {MOST_JOINED}: send fewer")]
    TooManyTogether(usize),
    /// The limit that the request brings along is not valid.
    #[error(transparent)]
    Override(BadOverride),
}

/// Returns the status of a descriptor that no limit holds back.
pub(crate) fn passing(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok as i32, limit_remaining, ..DescriptorStatus::default() }
}

/// Returns a time as the protocol has it.
pub(crate) fn span(time: Duration) -> Span {
    Span { seconds: time.as_secs() as i64, nanos: time.subsec_nanos() as i32 }
}

/// Returns the header fields of the status that is refused, or has the least left.
pub(crate) fn fields(names: &[String; 3], statuses: &[DescriptorStatus]) -> Option<Vec<HeaderValue>> {
    let limited = statuses.iter().filter(|status| status.current_limit.is_some());
    let status = limited.min_by_key(|status| (status.code != Code::OverLimit as i32, status.limit_remaining))?;
    let limit = status.current_limit.as_ref()?.requests_per_unit.to_string();
    let seconds = status.duration_until_reset.map_or(0, |span| span.seconds);
    let values = [limit, status.limit_remaining.to_string(), seconds.to_string()];
    Some(names.iter().zip(values).map(|(key, value)| HeaderValue { key: key.clone(), value }).collect())
}
