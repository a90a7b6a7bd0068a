//! A refusal as a response: status, fields, problem.

use super::items::whole_seconds;
use super::limits::RateLimits;
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::tower::Refused;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A problem type of the draft, for `application/problem+json` of RFC 9457.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// The client's requests exceed a quota.
    QuotaExceeded,
    /// The server can do less than usual.
    TemporaryReducedCapacity,
    /// The client's requests look like a mistake or an attack. No limiter says this by itself.
    AbnormalUsageDetected,
}

impl ProblemType {
    /// The URI under which the draft wants it registered.
    pub const fn uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::TemporaryReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsageDetected => "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        }
    }

    /// The title under which the draft wants it registered.
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "Quota Exceeded",
            Self::TemporaryReducedCapacity => "Temporary Reduced Capacity",
            Self::AbnormalUsageDetected => "Abnormal Usage Detected",
        }
    }

    /// The status that the draft recommends.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsageDetected => StatusCode::TOO_MANY_REQUESTS,
            Self::TemporaryReducedCapacity => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// What a refused request is answered.
///
/// | refused because | status | `Retry-After` |
/// |---|---|---|
/// | denied: a quota, the in-flight cap, the line | 429 | when the tokens are there; none for the cap |
/// | too late: the line is longer than the patience | 429 | when it is shorter |
/// | paused; the line is full; it was held up; too many keys | 503 | when the quotas that are used up have more, if any are |
/// | closed, or no runtime | 503 | none |
/// | too large for any wait to help | 413 | none |
///
/// `Retry-After` is in whole seconds, rounded up and never 0, and not before the end of a window that `RateLimit` tells
/// of a quota that is used up, as the draft wants it.
///
/// Its fields may be changed before it is rendered: whoever detects abuse sets the problem type to
/// [`AbnormalUsageDetected`](ProblemType::AbnormalUsageDetected).
///
/// ```
/// use tollgate::http::{RateLimits, Refusal, Terms};
/// use tollgate::{Limiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(Quota::per_hour(1))?;
/// let _ = limiter.try_acquire(1);
/// let Err(denied) = limiter.try_acquire(1) else { panic!("an hour has passed") };
/// let refusal = Refusal::new(denied, &RateLimits::of(&limiter.snapshot(), &Terms::default()));
/// assert_eq!((refusal.status.as_u16(), refusal.retry_after), (429, Some(3_600)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// `Retry-After`, in seconds; `None` if no clock can tell, or no wait would help.
    pub retry_after: Option<u64>,
    /// Its problem type; `None` for one that the draft does not name.
    pub problem: Option<ProblemType>,
    /// The quotas that refused, as far as it is known.
    pub violated: Vec<Arc<str>>,
}

impl Refusal {
    /// A refusal under these limits, which may be [none](RateLimits::default).
    pub fn new(refused: impl Into<Refused>, limits: &RateLimits) -> Self {
        let refused = refused.into();
        let (status, problem) = kind(refused);
        let wait = refused.retry_after().map_or(0, whole_seconds);
        let seconds = if is_final(refused) { 0 } else { wait.max(limits.exhausted_for()) };
        let known = seconds > 0 || refused.retry_after().is_some();
        let violated = limits.limits.iter().enumerate().filter(|(index, limit)| {
            limit.available == 0 || matches!(refused, Refused::AtOnce(TryAcquireError::Denied(denied)) if denied.by == Bound::Quota(*index))
        });
        let violated = violated.map(|(_, limit)| Arc::clone(&limit.name));
        Self { status, retry_after: known.then_some(seconds.max(1)), problem, violated: violated.collect() }
    }

    /// Sends this where no clock can tell, as long as a wait can help at all.
    #[must_use = "this returns the changed refusal"]
    pub fn or_retry_after(mut self, wait: Duration) -> Self {
        if self.retry_after.is_none() && self.problem.is_some() {
            self.retry_after = Some(whole_seconds(wait).max(1));
        }
        self
    }

    /// The body of RFC 9457, without a line break.
    pub fn problem_json(&self) -> String {
        let mut body = json!({ "status": self.status.as_u16(), "title": self.title() });
        if let Some(problem) = self.problem {
            body["type"] = problem.uri().into();
            body["violated-policies"] = self.violated.iter().map(|name| &**name).collect();
        }
        if let Some(seconds) = self.retry_after {
            body["detail"] = format!("Retry after {seconds} s.").into();
        }
        body.to_string()
    }

    /// The same in a line of text.
    pub fn text(&self) -> String {
        match self.retry_after {
            Some(seconds) => format!("{}: retry after {seconds} s\n", self.title()),
            None => format!("{}\n", self.title()),
        }
    }

    fn title(&self) -> &'static str {
        self.problem.map_or(self.status.canonical_reason().unwrap_or("Refused"), ProblemType::title)
    }

    /// A response with `Retry-After` and a body: a problem of RFC 9457, or text.
    pub fn response(&self, as_problem: bool) -> Response<String> {
        let (kind, body) = if as_problem {
            ("application/problem+json", self.problem_json())
        } else {
            ("text/plain; charset=utf-8", self.text())
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.write(response.headers_mut());
        response
    }

    /// Writes `Retry-After`.
    pub fn write(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
}

fn kind(refused: Refused) -> (StatusCode, Option<ProblemType>) {
    use {ConsumeError as InLine, TryAcquireError as AtOnce};
    let problem = match refused {
        Refused::InLine(InLine::TooLarge { .. }) | Refused::AtOnce(AtOnce::TooLarge { .. }) => {
            // 429 and 503 say "later", and no later would help.
            return (StatusCode::PAYLOAD_TOO_LARGE, None);
        }
        Refused::AtOnce(AtOnce::Denied(Denied { by: Bound::Pause, .. })) => ProblemType::TemporaryReducedCapacity,
        Refused::AtOnce(AtOnce::Denied(_)) | Refused::InLine(InLine::TooLate { .. }) => ProblemType::QuotaExceeded,
        Refused::InLine(
            InLine::Closed
            | InLine::QueueFull { .. }
            | InLine::TimedOut { .. }
            | InLine::NoRuntime
            | InLine::TooManyKeys { .. },
        )
        | Refused::AtOnce(AtOnce::Closed | AtOnce::TooManyKeys { .. }) => ProblemType::TemporaryReducedCapacity,
        #[cfg(feature = "redis")]
        Refused::InLine(InLine::Unreachable) | Refused::AtOnce(AtOnce::Unreachable) => {
            ProblemType::TemporaryReducedCapacity
        }
    };
    (problem.status(), Some(problem))
}

/// No time that the limiter knows of would help.
fn is_final(refused: Refused) -> bool {
    use {ConsumeError as InLine, TryAcquireError as AtOnce};
    matches!(
        refused,
        Refused::InLine(InLine::TooLarge { .. } | InLine::Closed | InLine::NoRuntime)
            | Refused::AtOnce(AtOnce::TooLarge { .. } | AtOnce::Closed)
    )
}
