//! The limits that a response reports.

use super::items::{QuotaPolicy, ServiceLimit};
use super::unit::Unit;

use std::sync::Arc;
use std::time::Duration;
use tollgate::{QuotaSnapshot, Snapshot};

/// The names and the unit under which a limiter's limits are written. If a setting is made twice, the last call counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(super) name: Arc<str>,
    pub(super) unit: Unit,
    pub(super) in_flight: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { name: Arc::from("default"), unit: Unit::Requests, in_flight: false }
    }
}

impl Terms {
    /// Sets the name of quotas that the builder gave no name. The default is `default`. Several such quotas are
    /// numbered.
    #[must_use = "this returns the changed terms"]
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the unit that a token stands for. The default is requests.
    #[must_use = "this returns the changed terms"]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Also writes the in-flight cap, as a quota of concurrent requests with the name `in-flight`: for limiters with
    /// requests of one token each.
    #[must_use = "this returns the changed terms"]
    pub fn in_flight(self) -> Self {
        Self { in_flight: true, ..self }
    }
}

/// All quotas that count a request, at one instant: the content of the header fields, for writing and reading.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// use tollgate_tower::http::{Format, RateLimits, Terms};
/// use tollgate::{Limiter, ManualClock, Quota};
/// let builder = Limiter::builder().quota_named("burst", Quota::per_minute(100)).clock(ManualClock::new());
/// let limiter = builder.build()?;
/// let _grant = limiter.try_acquire(50);
///
/// let mut headers = http::HeaderMap::new();
/// RateLimits::of(&limiter.snapshot(), &Terms::default()).write(Format::Draft11, &mut headers);
/// assert_eq!(headers["ratelimit-policy"], r#""burst";q=100;w=60"#);
/// assert_eq!(headers["ratelimit"], r#""burst";r=50;t=1"#); // and one more after 0.6 s
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimits {
    /// The policies of the quotas.
    pub policies: Vec<QuotaPolicy>,
    /// The units that are left of each quota.
    pub limits: Vec<ServiceLimit>,
}

impl RateLimits {
    /// Creates the limits of a limiter from its snapshot.
    pub fn of(snapshot: &Snapshot, terms: &Terms) -> Self {
        let mut limits = Self::of_quotas(&snapshot.quotas, terms);
        if let Some((in_flight, cap)) = snapshot.in_flight.zip(snapshot.max_in_flight).filter(|_| terms.in_flight) {
            let name: Arc<str> = Arc::from("in-flight");
            let policy = QuotaPolicy::of(Arc::clone(&name), &tollgate::Quota::manual(cap));
            limits.policies.push(QuotaPolicy { unit: Unit::ConcurrentRequests, ..policy });
            limits.limits.push(ServiceLimit::of(name, cap.saturating_sub(in_flight), None));
        }
        if snapshot.closed || snapshot.paused_for.is_some() {
            limits.exhaust(snapshot.paused_for);
        }
        limits
    }

    fn of_quotas(quotas: &[QuotaSnapshot], terms: &Terms) -> Self {
        let count = quotas.len();
        let mut limits = Self { policies: Vec::with_capacity(count), limits: Vec::with_capacity(count) };
        let unnamed = quotas.iter().filter(|quota| quota.name.is_none()).count();
        for (index, quota) in quotas.iter().enumerate() {
            let name = match &quota.name {
                Some(name) => Arc::clone(name),
                None if unnamed == 1 => Arc::clone(&terms.name),
                None => format!("{}-{index}", terms.name).into(),
            };
            limits
                .policies
                .push(QuotaPolicy { unit: terms.unit.clone(), ..QuotaPolicy::of(Arc::clone(&name), &quota.quota) });
            limits.limits.push(ServiceLimit::of(name, quota.available, quota.more_in));
        }
        limits
    }

    /// Creates the limits of one key of a keyed limiter. A key that is not in memory is written as a new one.
    #[cfg(feature = "keyed")]
    pub fn of_key<K>(users: &impl tollgate::AsKeyedLimiter<K>, key: &K, terms: &Terms) -> Self {
        Self::of_quotas(&users.reported_quotas(key), terms)
    }

    /// Sets the partition key of all policies and limits.
    pub fn set_partition_key(&mut self, key: impl Into<Arc<[u8]>>) {
        let key = key.into();
        self.policies.iter_mut().for_each(|policy| policy.partition_key = Some(Arc::clone(&key)));
        self.limits.iter_mut().for_each(|limit| limit.partition_key = Some(Arc::clone(&key)));
    }

    /// Returns the limit that has the least left; of several, the one with the longest window.
    pub fn tightest(&self) -> Option<&ServiceLimit> {
        self.limits.iter().min_by_key(|limit| (limit.available, std::cmp::Reverse(limit.window)))
    }

    /// Returns the policy of this name.
    pub fn policy(&self, name: &str) -> Option<&QuotaPolicy> {
        self.policies.iter().find(|policy| *policy.name == *name)
    }

    /// Returns for how many seconds at least one quota is used up; 0 if none is, or if the time is unknown.
    pub(super) fn exhausted_for(&self) -> u64 {
        self.limits.iter().filter(|limit| limit.available == 0).filter_map(|limit| limit.window).max().unwrap_or(0)
    }

    /// Marks all limits as used up: no request passes during the pause, or ever again if the limiter is closed.
    fn exhaust(&mut self, paused_for: Option<Duration>) {
        for limit in &mut self.limits {
            let pause = ServiceLimit::of(Arc::clone(&limit.name), 0, paused_for).window;
            limit.available = 0;
            limit.window = if paused_for.is_some() { limit.window.max(pause) } else { None };
        }
    }
}
