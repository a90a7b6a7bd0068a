//! A refusal as a response: status, fields, problem.

use super::items::whole_seconds;
use super::limits::RateLimits;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Bound, ConsumeError, Refused, TryAcquireError};

/// What a client is told whose request can never pass.
const TOO_LARGE: &str = "The request costs more tokens than the limit allows at once. Send a smaller one.";

/// A problem document, in the alphabetical order of its members.
#[derive(serde::Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'static, str>>,
    status: u16,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    violated_policies: Option<Vec<&'a str>>,
}

/// A problem type of the draft, for `application/problem+json` of RFC 9457.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// The client's requests exceed a quota.
    QuotaExceeded,
    /// The server has less capacity than usual.
    TemporaryReducedCapacity,
    /// The client's requests look like a mistake or an attack. No limiter reports this by itself.
    AbnormalUsageDetected,
}

impl ProblemType {
    /// Returns the URI under which the draft registers it.
    pub const fn uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::TemporaryReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsageDetected => "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        }
    }

    /// Returns the title under which the draft registers it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "Quota Exceeded",
            Self::TemporaryReducedCapacity => "Temporary Reduced Capacity",
            Self::AbnormalUsageDetected => "Abnormal Usage Detected",
        }
    }

    /// Returns the status that the draft recommends.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsageDetected => StatusCode::TOO_MANY_REQUESTS,
            Self::TemporaryReducedCapacity => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The response to a refused request.
///
/// | refused because | status | `Retry-After` |
/// |---|---|---|
/// | denied: a quota, the in-flight cap, waiting callers | 429 | when the tokens are available; none for the cap |
/// | too late: the wait is longer than allowed | 429 | when the wait is short enough |
/// | denied or too late: the parent of a keyed limiter is paused, or at its in-flight cap | 503 | the same |
/// | paused, queue full, wait timed out, and all others | 503 | when used-up quotas have more, if there are any |
/// | closed, or no runtime | 503 | none |
/// | too large for any wait to help | 413 | none |
///
/// `Retry-After` is in whole seconds, rounded up, and never 0. It is not before the end of a window that `RateLimit`
/// writes for a quota that is used up, as the draft requires.
///
/// The fields may be changed before the response is made. For example, code that detects abuse sets the problem type
/// to [`AbnormalUsageDetected`](ProblemType::AbnormalUsageDetected).
///
/// # Examples
///
/// ```
/// use tollgate_tower::http::{RateLimits, Refusal, Terms};
/// use tollgate::{Limiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(Quota::per_hour(1))?;
/// let _grant = limiter.try_acquire(1);
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
    /// `Retry-After` in seconds; `None` if the time is unknown, or no wait would help.
    pub retry_after: Option<u64>,
    /// The problem type; `None` if the draft has none for this refusal.
    pub problem: Option<ProblemType>,
    /// The names of the quotas that refused, as far as known.
    pub violated: Vec<Arc<str>>,
}

impl Refusal {
    /// Creates the response to a refusal under these limits, which may be [empty](RateLimits::default).
    pub fn new(refused: impl Into<Refused>, limits: &RateLimits) -> Self {
        let refused = refused.into();
        let (status, problem) = kind(refused);
        let wait = refused.retry_after().map_or(0, whole_seconds);
        let seconds = if is_final(refused) { 0 } else { wait.max(limits.exhausted_for()) };
        let known = seconds > 0 || refused.retry_after().is_some();
        let has_refused = |index: usize, name: &str| match refused.by() {
            Some(Bound::Quota(quota)) => quota == index,
            // `limits` are those of the parent then. If they have names, the refusal names the one that refused.
            Some(Bound::Parent) => refused.quota_name().map_or(limits.limits.len() == 1, |refuser| refuser == name),
            _ => false,
        };
        let violated = limits.limits.iter().enumerate();
        let violated = violated.filter(|(index, limit)| limit.available == 0 || has_refused(*index, &limit.name));
        let violated = violated.map(|(_, limit)| Arc::clone(&limit.name));
        Self { status, retry_after: known.then_some(seconds.max(1)), problem, violated: violated.collect() }
    }

    /// Sets `Retry-After` to `wait` if the time is unknown, provided that a wait can help at all.
    #[must_use = "this returns the changed refusal"]
    pub fn or_retry_after(mut self, wait: Duration) -> Self {
        if self.retry_after.is_none() && self.problem.is_some() {
            self.retry_after = Some(whole_seconds(wait).max(1));
        }
        self
    }

    /// Returns the body of RFC 9457, without a line break. Its members are in alphabetical order.
    pub fn problem_json(&self) -> String {
        let detail = match self.retry_after {
            Some(seconds) => Some(Cow::Owned(format!("Retry after {seconds} s."))),
            None if self.status == StatusCode::PAYLOAD_TOO_LARGE => Some(Cow::Borrowed(TOO_LARGE)),
            None => None,
        };
        let document = Document {
            detail,
            status: self.status.as_u16(),
            title: self.title(),
            r#type: self.problem.map(|problem| problem.uri()),
            violated_policies: self.problem.map(|_| self.violated.iter().map(|name| &**name).collect()),
        };
        serde_json::to_string(&document).expect("text and numbers are valid JSON")
    }

    /// Returns the same content as a line of text.
    pub fn text(&self) -> String {
        match self.retry_after {
            Some(seconds) => format!("{}: retry after {seconds} s\n", self.title()),
            None => format!("{}\n", self.title()),
        }
    }

    fn title(&self) -> &'static str {
        self.problem.map_or(self.status.canonical_reason().unwrap_or("Refused"), ProblemType::title)
    }

    /// Returns a response with `Retry-After` and a body: a problem of RFC 9457, or text.
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

    /// Writes `Retry-After` into `headers`.
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
            // 429 and 503 say "later", but no later time would help.
            return (StatusCode::PAYLOAD_TOO_LARGE, None);
        }
        // The schedule did not foresee the delay: a change of the server, and not of the client, caused it.
        Refused::InLine(InLine::TimedOut { .. }) => ProblemType::TemporaryReducedCapacity,
        // The client has not exceeded its own quota: the server holds back all clients.
        _ if matches!(refused.by(), Some(Bound::Pause | Bound::ParentPause | Bound::ParentInFlight)) => {
            ProblemType::TemporaryReducedCapacity
        }
        _ if refused.by().is_some() => ProblemType::QuotaExceeded,
        // Closed, a full queue, too many keys, an unreachable store and the like: no schedule says when this ends.
        _ => ProblemType::TemporaryReducedCapacity,
    };
    (problem.status(), Some(problem))
}

/// True if no time that the limiter knows of would help.
fn is_final(refused: Refused) -> bool {
    use {ConsumeError as InLine, TryAcquireError as AtOnce};
    matches!(
        refused,
        Refused::InLine(InLine::TooLarge { .. } | InLine::Closed | InLine::NoRuntime | InLine::MustHold)
            | Refused::AtOnce(AtOnce::TooLarge { .. } | AtOnce::Closed)
    )
}
