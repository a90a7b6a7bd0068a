//! The upstreams among which the gateway chooses.
//!
//! Of two random ones it takes the one with fewer requests in flight. (M. Mitzenmacher, The Power of Two Choices in
//! Randomized Load Balancing, 2001.) Choosing the least busy of all would
//! send several gateways to the same upstream at once.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::backend::{ActiveRequest, Backend};
use super::connector;
use super::health::Health;
use super::model_limits::ModelLimits;
use super::target::Target;
use crate::request::name::Name;

#[derive(Debug)]
pub(crate) struct Backends {
    /// At least one.
    all: Vec<Arc<Backend>>,
    pub(crate) health: Option<Health>,
}

/// The upstream of a request. It is [`ActiveRequest`] if there is a choice or a check, so that requests of a gateway with one
/// upstream write to no memory that they share.
#[derive(Debug)]
pub(crate) struct Selected(Option<ActiveRequest>);

/// What the operator sees of an upstream.
#[derive(Debug, serde::Serialize)]
pub(crate) struct BackendStatus {
    pub(crate) url: String,
    pub(crate) is_healthy: bool,
    pub(crate) in_flight: usize,
}

impl Backends {
    /// `targets` has at least one.
    pub(crate) fn new(targets: impl IntoIterator<Item = Target>, health: Option<Health>) -> Self {
        Self { all: targets.into_iter().map(|target| Arc::new(Backend::new(target))).collect(), health }
    }

    /// Goes on with the state of the upstreams that `old` has too.
    pub(crate) fn adopt(&mut self, old: &Self) {
        for backend in &mut self.all {
            let known = old.all.iter().find(|known| known.target == backend.target);
            *backend = Arc::clone(known.unwrap_or(backend));
        }
    }

    /// Whether there is one that is not among `known`.
    pub(crate) fn has_any_outside(&self, known: &[Target]) -> bool {
        !self.all.iter().all(|backend| known.contains(&backend.target))
    }

    /// Whether this upstream is one of them still: a change of the file may have replaced it.
    pub(crate) fn contain(&self, upstream: &Arc<Backend>) -> bool {
        self.all.iter().any(|backend| Arc::ptr_eq(backend, upstream))
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        self.all.iter().map(|backend| backend.target.clone()).collect()
    }

    pub(crate) fn all(&self) -> &[Arc<Backend>] {
        &self.all
    }

    /// Empty if there is neither a choice nor a check.
    pub(crate) fn statuses(&self) -> Vec<BackendStatus> {
        let counted = if self.is_plain() { &[] } else { self.all() };
        let seen = |backend: &Arc<Backend>| BackendStatus {
            url: backend.target.to_string(),
            is_healthy: self.may_take(backend),
            in_flight: backend.in_flight(),
        };
        counted.iter().map(seen).collect()
    }

    /// Chooses an upstream, `None` if none is healthy.
    pub(crate) fn select(&self) -> Option<Selected> {
        if self.is_plain() { Some(Selected(None)) } else { self.select_among(|_| true) }
    }

    /// Chooses an upstream for a request to `model`: one that has not said that it takes none now, if there is one.
    pub(crate) fn select_for(&self, model: Option<Name>) -> Option<Selected> {
        let Some(model) = model.filter(|_| self.all.len() > 1) else { return self.select() };
        self.select_among(|backend| !backend.is_paused_for(model)).or_else(|| self.select())
    }

    /// What all upstreams that get requests have said about `model`; `None` if one has said nothing.
    pub(crate) fn limits_of(&self, model: Name) -> Option<Vec<Arc<ModelLimits>>> {
        self.all.iter().filter(|backend| self.may_take(backend)).map(|backend| backend.limits_of(model)).collect()
    }

    /// For how long no upstream that gets requests takes those to `model`, as they have said; `None` if one takes them, or
    /// has said nothing.
    pub(crate) fn pause_of(&self, model: Name) -> Option<Duration> {
        let pauses: Option<Vec<_>> = self.limits_of(model)?.iter().map(|limits| limits.paused_for()).collect();
        pauses?.into_iter().min()
    }

    /// Chooses another upstream than `first`, one that takes requests to `model` now, if there is one.
    pub(crate) fn select_other(&self, first: &Arc<Backend>, model: Option<Name>) -> Option<Selected> {
        let is_other = |backend: &Arc<Backend>| !Arc::ptr_eq(backend, first);
        let is_paused = |backend: &Arc<Backend>| model.is_some_and(|model| backend.is_paused_for(model));
        self.select_among(|backend| is_other(backend) && !is_paused(backend)).or_else(|| self.select_among(is_other))
    }

    fn select_among(&self, is_right: impl Fn(&Arc<Backend>) -> bool) -> Option<Selected> {
        let healthy = self.all.iter().filter(|backend| self.may_take(backend) && is_right(backend));
        let two = fastrand::choose_multiple(healthy, 2).into_iter();
        // Of equals any, or the first in the file would get all requests of a quiet gateway.
        let selected = two.min_by_key(|backend| (backend.in_flight(), fastrand::u32(..)))?;
        Some(Selected(Some(ActiveRequest::new(selected))))
    }

    /// If no upstream is healthy: how long it takes until that may have changed.
    pub(crate) fn outage(&self) -> Option<Duration> {
        let health = self.health.as_ref()?;
        (!self.all.iter().any(|backend| backend.is_healthy())).then_some(health.every)
    }

    /// Notes that a connection to `backend` failed.
    pub(crate) fn connection_failed(&self, backend: &Backend, error: &(dyn Error + 'static)) {
        let Some(health) = &self.health else { return };
        // Local resource exhaustion (files, ports, memory) is not counted against the upstream.
        if !connector::is_local_resource_error(error) && backend.failed(health.failures) {
            log_unhealthy(backend, &connector::chain(error));
        }
    }

    fn may_take(&self, backend: &Backend) -> bool {
        self.health.is_none() || backend.is_healthy()
    }

    /// Whether there is neither a choice nor a check.
    fn is_plain(&self) -> bool {
        self.all.len() == 1 && self.health.is_none()
    }
}

impl Selected {
    /// The target; that of the only upstream if there is no choice.
    pub(crate) fn target<'a>(&'a self, backends: &'a Backends) -> &'a Target {
        &self.backend_in(backends).target
    }

    /// The upstream; the only one if there is no choice.
    pub(crate) fn backend_in<'a>(&'a self, backends: &'a Backends) -> &'a Arc<Backend> {
        self.backend().unwrap_or(&backends.all[0])
    }

    pub(crate) fn backend(&self) -> Option<&Arc<Backend>> {
        self.0.as_ref().map(ActiveRequest::backend)
    }

    pub(crate) fn into_active(self) -> Option<ActiveRequest> {
        self.0
    }
}

/// Tells the operator. These lines are few, so they are not limited as others are.
pub(crate) fn log_unhealthy(backend: &Backend, why: &str) {
    eprintln!("gateway: upstream {} is left until its checks pass: {why}", backend.target);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(urls: &[&str], health: bool) -> Backends {
        let health = health.then(|| Health {
            path: "/health".parse().unwrap(),
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            failures: 1,
            successes: 1,
        });
        Backends::new(urls.iter().map(|url| url.parse().unwrap()), health)
    }

    #[test]
    fn the_busier_of_two_is_not_chosen_and_equals_take_turns() {
        let backends = backends(&["http://a", "http://b"], false);
        let active = backends.select().unwrap();
        let host = |selected: &Selected| selected.target(&backends).to_string();
        for _ in 0..50 {
            assert_ne!(host(&backends.select().unwrap()), host(&active));
        }
        drop(active);
        let mut selected: Vec<_> = (0..100).map(|_| host(&backends.select().unwrap())).collect();
        selected.sort();
        selected.dedup();
        assert_eq!(selected, ["http://a", "http://b"]);
        assert_eq!(backends.all.iter().map(|backend| backend.in_flight()).sum::<usize>(), 0);
    }

    #[test]
    fn only_healthy_upstreams_are_chosen_while_there_are_checks() {
        let mut backends = backends(&["http://a", "http://b"], true);
        assert!(backends.all[0].failed(1));
        for _ in 0..50 {
            let selected = backends.select().unwrap();
            assert_eq!(selected.target(&backends).to_string(), "http://b");
            assert!(backends.select_other(selected.backend().unwrap(), None).is_none());
        }
        assert_eq!(backends.outage(), None);
        assert!(backends.all[1].failed(1));
        assert!(backends.select().is_none());
        assert_eq!(backends.outage(), Some(Duration::from_secs(5)));
        // Without checks none could return.
        backends.health = None;
        assert!(backends.select().is_some() && backends.outage().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn another_upstream_is_one_that_does_not_pause_if_there_is_one() {
        let backends = backends(&["http://a", "http://b", "http://c"], false);
        let (model, quota) = (Name::new("model m"), tollgate::Quota::per_minute(60));
        let pause = |backend: &Backend| {
            backend.limits_to_follow(model, quota).unwrap().requests.pause_for(Duration::from_secs(9));
        };
        let other = |model| backends.select_other(&backends.all[0], model).unwrap().target(&backends).to_string();
        pause(&backends.all[1]);
        assert!((0..50).all(|_| other(Some(model)) == "http://c"));
        assert!((0..1_000).any(|_| other(None) == "http://b"), "only the model is paused");
        pause(&backends.all[2]);
        assert!((0..1_000).any(|_| other(Some(model)) == "http://b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_pauses_while_all_upstreams_do_that_get_requests() {
        let (mut backends, secs) = (backends(&["http://a", "http://b"], true), Duration::from_secs);
        let (model, quota) = (Name::new("model m"), tollgate::Quota::per_minute(60));
        let [one, other] = [0, 1].map(|at| backends.all[at].limits_to_follow(model, quota).unwrap());
        one.tokens.pause_for(secs(300));
        assert_eq!(backends.pause_of(model), None);
        // One has no tokens left, and the other no requests: neither takes any.
        other.requests.pause_for(secs(400));
        other.tokens.pause_for(secs(20));
        assert_eq!(backends.pause_of(model), Some(secs(300)));
        assert!(backends.all[1].failed(1));
        assert_eq!(backends.pause_of(model), Some(secs(300)));
        assert!(backends.all[0].failed(1));
        assert_eq!(backends.pause_of(model), None, "none gets requests");
        assert!(backends.all[0].passed(1));
        assert!(backends.all[1].passed(1));
        assert_eq!(backends.pause_of(model), Some(secs(300)));
        backends.health = None;
        backends.all.push(Arc::new(Backend::new("http://c".parse().unwrap())));
        assert_eq!(backends.pause_of(model), None, "it has said nothing");
    }

    #[test]
    fn an_upstream_with_the_same_url_keeps_its_state() {
        let old = backends(&["http://a", "http://b"], true);
        old.all[0].failed(1);
        let active = ActiveRequest::new(&old.all[0]);
        let mut new = backends(&["http://c", "http://A"], true);
        new.adopt(&old);
        let seen: Vec<_> = new.statuses().into_iter().map(|seen| (seen.is_healthy, seen.in_flight)).collect();
        assert_eq!(seen, [(true, 0), (false, 1)]);
        drop(active);
        assert_eq!(new.all[1].in_flight(), 0);
    }

    #[test]
    fn the_gateways_own_lack_is_no_failure_of_an_upstream() {
        let backends = backends(&["http://a"], true);
        let error = |code| std::io::Error::from_raw_os_error(code);
        backends.connection_failed(&backends.all[0], &error(rustix::io::Errno::MFILE.raw_os_error()));
        assert!(backends.all[0].is_healthy());
        backends.connection_failed(&backends.all[0], &error(rustix::io::Errno::CONNREFUSED.raw_os_error()));
        assert!(!backends.all[0].is_healthy());
    }
}
