//! One of the upstreams: its requests in flight, and its health.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::{ConfigError, Quota};

use super::model_limits::ModelLimits;
use super::target::Target;
use crate::request::name::Name;

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) target: Target,
    in_flight: AtomicUsize,
    /// Written while `streak` is locked. Requests read it without a lock.
    is_healthy: AtomicBool,
    streak: Mutex<Streak>,
    /// By the name of the limit of the model. The file has few.
    models: Mutex<HashMap<Name, Arc<ModelLimits>>>,
}

#[derive(Debug, Default)]
struct Streak {
    /// Checks and connections that failed since the last check that passed. An upstream that shuts
    /// down may fail its checks while it still answers requests; it must get no new ones.
    failures: u32,
    /// Checks that passed since the last failure.
    successes: u32,
}

impl Backend {
    /// It is healthy until it fails: otherwise no request could pass before the first checks.
    pub(crate) fn new(target: Target) -> Self {
        let (in_flight, is_healthy) = (AtomicUsize::new(0), AtomicBool::new(true));
        Self { target, in_flight, is_healthy, streak: Mutex::default(), models: Mutex::default() }
    }

    /// What the upstream has said about its limits for `model`; `None` if nothing.
    pub(crate) fn limits_of(&self, model: Name) -> Option<Arc<ModelLimits>> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(&model).filter(|limits| limits.is_known()).cloned()
    }

    /// The same, for a response that says something.
    pub(crate) fn limits_to_follow(&self, model: Name, fastest: Quota) -> Result<Arc<ModelLimits>, ConfigError> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = match models.get(&model) {
            Some(known) if known.fastest == fastest => Arc::clone(known),
            Some(known) => Arc::new(known.with_fastest(fastest)?),
            None => Arc::new(ModelLimits::new(fastest)?),
        };
        limits.heard();
        models.insert(model, Arc::clone(&limits));
        Ok(limits)
    }

    /// Whether the upstream has said that it takes no request to `model` now.
    pub(crate) fn is_paused_for(&self, model: Name) -> bool {
        self.limits_of(model).is_some_and(|limits| limits.paused_for().is_some())
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// Counts a failure. Returns true if it is the one after which the upstream is left.
    pub(crate) fn failed(&self, most: u32) -> bool {
        let mut streak = self.streak.lock().unwrap_or_else(PoisonError::into_inner);
        streak.successes = 0;
        streak.failures = streak.failures.saturating_add(1);
        streak.failures >= most && self.is_healthy.swap(false, Ordering::Relaxed)
    }

    /// Counts a check that passed. Returns true if it is the one after which the upstream returns.
    pub(crate) fn passed(&self, needed: u32) -> bool {
        let mut streak = self.streak.lock().unwrap_or_else(PoisonError::into_inner);
        streak.failures = 0;
        streak.successes = streak.successes.saturating_add(1);
        streak.successes >= needed && !self.is_healthy.swap(true, Ordering::Relaxed)
    }
}

/// A request in flight at an upstream, to the last byte of its response.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Backend>);

impl ActiveRequest {
    pub(crate) fn new(backend: &Arc<Backend>) -> Self {
        backend.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(backend))
    }

    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_quota_is_followed_from_the_next_response_and_pauses_stay() {
    let (backend, model) = (Backend::new("http://a".parse().unwrap()), Name::new("model m"));
    let [slow, fast] = [60, 6_000].map(Quota::per_minute);
    let quota = |limits: &ModelLimits| limits.tokens.snapshot().quotas[0].quota;
    let limits = backend.limits_to_follow(model, slow).unwrap();
    let pauses = |limits: &ModelLimits| {
        [&limits.tokens, &limits.requests].map(|limiter| limiter.snapshot().paused_for.map(|pause| pause.as_secs()))
    };
    limits.tokens.pause_for(std::time::Duration::from_secs(5));
    limits.requests.pause_for(std::time::Duration::from_secs(9));
    assert!(Arc::ptr_eq(&limits, &backend.limits_to_follow(model, slow).unwrap()));
    assert_eq!(quota(&backend.limits_to_follow(model, fast).unwrap()), fast);
    assert_eq!(quota(&backend.limits_of(model).unwrap()), fast);
    assert_eq!(pauses(&backend.limits_of(model).unwrap()), [Some(5), Some(9)]);
    assert!(backend.is_paused_for(model));
}

#[test]
fn an_upstream_is_left_after_failures_in_a_row_and_returns_after_successes_in_a_row() {
    let backend = Backend::new("http://a".parse().unwrap());
    assert!(!backend.failed(3) && !backend.failed(3) && !backend.passed(2));
    assert!(!backend.failed(3) && !backend.failed(3) && backend.is_healthy());
    assert!(backend.failed(3) && !backend.is_healthy());
    assert!(!backend.failed(3), "it is left once");
    assert!(!backend.passed(2) && !backend.failed(3) && !backend.passed(2) && !backend.is_healthy());
    assert!(backend.passed(2) && backend.is_healthy());
    assert!(!backend.passed(2), "it returns once");
}
