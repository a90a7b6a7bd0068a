//! The waits and limits that a response asks its client to keep. Pure, except for the time of day, which is needed if a
//! response contains dates but not its own date.

use super::format::Format;
use super::items::{QuotaPolicy, ServiceLimit};
use super::resources::{Family, ResourceLimits};
use super::unit::Unit;
use super::{quotas, structured, times};
use http::header::{AGE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};
use std::time::Duration;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The waits and limits that a response asks its client to keep.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::http::{Advice, Format, Unit};
/// let mut headers = http::HeaderMap::new();
/// headers.insert("ratelimit-policy", r#""burst";q=100;w=60"#.parse()?);
/// headers.insert("ratelimit", r#""burst";r=0;t=30"#.parse()?);
/// let advice = Advice::read(http::StatusCode::OK, &headers, &[Format::Draft11], &Unit::Requests);
/// assert_eq!((advice.wait, advice.available), (Some(Duration::from_secs(30)), Some(0)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// Send no request for this long.
    pub wait: Option<Duration>,
    /// The time until the server has one more unit. A client that refills its quota as [`policy`](Self::policy) says
    /// can wait for this, in place of [`wait`](Self::wait). `Some` only for quotas that the server refills steadily, and
    /// not after a `Retry-After`.
    pub next_unit: Option<Duration>,
    /// Use no more than this many units before the next response.
    pub available: Option<u64>,
    /// The slowest policy with a window that was sent, or that can be computed from the reset.
    pub policy: Option<QuotaPolicy>,
    /// The limit, with the window at whose rate the units that are left last until the reset. `Some` only if the server
    /// sent no window, and limit, remaining and reset of a quota that begins a new window at the reset.
    pub spread: Option<QuotaPolicy>,
    /// How many values were ignored because they are malformed or implausible.
    pub ignored: u64,
}

impl Advice {
    /// Reads what a response says about quotas that count `unit`, in the first of `formats` that it contains.
    ///
    /// `Retry-After` counts on refusals (status 429 and 503) and failures (400 and above), and takes precedence over the
    /// windows of all formats. A quota that is used up asks to wait until its window has ended. On a refusal, so does a
    /// quota of which only the reset was sent, and a reset that has passed says nothing. Malformed fields are ignored, and
    /// counted. Quota fields of a response from a cache (its `Age` is above 0) are ignored, because they do not describe
    /// the present.
    pub fn read(status: StatusCode, headers: &HeaderMap, formats: &[Format], unit: &Unit) -> Self {
        Self::read_head(is_refusal(status, headers), status, headers, formats, Some(unit))
    }

    /// Without a unit, the units that are left and the policy are those of requests, and each quota that is used up asks
    /// to wait.
    pub(super) fn read_head(
        is_refusal: bool,
        status: StatusCode,
        headers: &HeaderMap,
        formats: &[Format],
        unit: Option<&Unit>,
    ) -> Self {
        let mut advice = Self::default();
        if !is_cached(headers) {
            for format in formats {
                let mut is_found = *format == Format::Draft11 && advice.add_listed(headers, unit);
                for family in format.families() {
                    is_found |= advice.add_resources(headers, *family, unit, is_refusal);
                }
                // The first format that says anything about the unit counts.
                if is_found {
                    break;
                }
            }
        }
        let is_failure = is_refusal || status.is_client_error() || status.is_server_error();
        let (wait, ignored) = if is_failure { retry_after(headers) } else { (None, 0) };
        if wait.is_some() {
            (advice.wait, advice.next_unit) = (wait, None);
        }
        advice.ignored += ignored;
        advice
    }

    /// Adds the quotas of `RateLimit` and `RateLimit-Policy`. Returns whether any of them counts the unit.
    fn add_listed(&mut self, headers: &HeaderMap, unit: Option<&Unit>) -> bool {
        let (mut found, ignored) = structured::read(headers);
        self.ignored += ignored;
        let counted = unit.unwrap_or(&Unit::Requests);
        // A limit without a policy is assumed to count the unit.
        let is_counted = |limit: &ServiceLimit| {
            found.policies.iter().all(|policy| policy.name != limit.name || policy.unit == *counted)
        };
        let used_up = found.limits.iter().filter(|limit| limit.available == 0);
        let used_up = used_up.filter(|limit| unit.is_none() || is_counted(limit));
        self.wait = self.wait.max(used_up.filter_map(|limit| limit.window).max().map(Duration::from_secs));
        self.available = found.limits.iter().filter(|limit| is_counted(limit)).map(|limit| limit.available).min();
        found.policies.retain(|policy| policy.unit == *counted);
        let is_found = self.available.is_some() || !found.policies.is_empty();
        self.policy = found.policies.into_iter().filter(|policy| policy.window.is_some()).reduce(slower);
        is_found
    }

    /// Adds the quotas of a family of fields. Returns whether any of them counts the unit.
    fn add_resources(&mut self, headers: &HeaderMap, family: Family, unit: Option<&Unit>, is_refusal: bool) -> bool {
        let read = ResourceLimits::read_family(headers, family);
        self.ignored += read.ignored;
        let mut is_found = false;
        for limit in &read.limits {
            let is_counted = quotas::unit(limit, family) == *unit.unwrap_or(&Unit::Requests);
            if !is_counted && unit.is_some() {
                continue;
            }
            let policy = quotas::policy(limit, family).filter(|policy| policy.window.is_some());
            if limit.remaining.map_or(is_refusal, |left| left == 0) {
                let next_unit = policy.as_ref().and_then(quotas::next_unit);
                // If another quota is used up, too, wait for the later of both resets.
                let is_refilled = is_counted && !family.is_plain() && self.wait.is_none();
                self.next_unit = next_unit.filter(|_| is_refilled);
                // A refusal shows that a reset that has passed is wrong.
                let reset = limit.reset.filter(|reset| !is_refusal || !reset.is_zero());
                self.wait = self.wait.max(reset.or(next_unit));
            }
            if is_counted {
                is_found = true;
                self.available = self.available.into_iter().chain(limit.remaining).min();
                self.policy = self.policy.take().into_iter().chain(policy).reduce(slower);
                self.spread = self.spread.take().into_iter().chain(quotas::spread(limit, family)).reduce(slower);
            }
        }
        is_found
    }
}

/// The responses that are refusals unless the client says otherwise.
pub(super) fn is_refusal(status: StatusCode, _: &HeaderMap) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

fn slower(one: QuotaPolicy, other: QuotaPolicy) -> QuotaPolicy {
    let pace = |these: &QuotaPolicy, those: &QuotaPolicy| {
        u128::from(these.quota) * u128::from(those.window.unwrap_or(u64::MAX))
    };
    if pace(&other, &one) < pace(&one, &other) { other } else { one }
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok());
    age.is_some_and(|age| age > 0)
}

/// Reads `Retry-After`. OpenAI and Azure also send `retry-after-ms`, which is more exact. Also returns how many of the
/// fields that were read are malformed.
fn retry_after(headers: &HeaderMap) -> (Option<Duration>, u64) {
    let (mut malformed, now) = (0, times::now(headers));
    for (name, unit) in [(RETRY_AFTER_MS, "ms"), (RETRY_AFTER, "")] {
        let Some(value) = headers.get(name) else { continue };
        match value.to_str().ok().and_then(|text| times::read(&format!("{}{unit}", text.trim()), now)) {
            Some(wait) => return (Some(wait), malformed),
            None => malformed += 1,
        }
    }
    (None, malformed)
}
