//! Checks the health of the upstreams, if the configuration says how.

use std::sync::Arc;

use axum::http::Request;
use axum::http::header::USER_AGENT;

use crate::body::retry_body::RetryBody;
use crate::limits::Limits;
use crate::limits::model_pauses::pause_models;
use crate::upstream::backend::Backend;
use crate::upstream::backends;
use crate::upstream::connector::{self, HttpClient};
use crate::upstream::health::Health;

pub(crate) struct Checker {
    limits: Arc<Limits>,
    /// Each check connects anew: an open connection does not tell whether another can be made.
    client: HttpClient,
}

impl Checker {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        let config = limits.config();
        let client = connector::client(Arc::clone(&config.roots), config.upstream_protocol(), 0);
        drop(config);
        Self { limits, client }
    }

    /// Runs until it is dropped. A change of the configuration begins with a check of each upstream.
    pub(crate) async fn run(self) {
        loop {
            tokio::select! {
                () = self.check_all() => {}
                () = self.limits.changed() => {}
            }
        }
    }

    async fn check_all(&self) {
        let (all, health) = {
            let config = self.limits.config();
            (config.upstreams.all().to_vec(), config.upstreams.health.clone())
        };
        let Some(health) = health else { return std::future::pending().await };
        futures::future::join_all(all.iter().map(|backend| self.keep_checking(backend, &health))).await;
    }

    async fn keep_checking(&self, backend: &Backend, health: &Health) {
        loop {
            match self.check(backend, health).await {
                Some(Ok(())) if backend.passed(health.successes) => {
                    eprintln!("gateway: upstream {} returns: its checks pass", backend.target);
                }
                Some(Err(why)) if backend.failed(health.failures) => backends::log_unhealthy(backend, &why),
                _ => {}
            }
            pause_models(&self.limits, &self.limits.lock_following());
            tokio::time::sleep(health.every).await;
        }
    }

    /// `None` if the gateway could not check.
    async fn check(&self, backend: &Backend, health: &Health) -> Option<Result<(), String>> {
        let request = Request::get(backend.target.at(&health.path)?).header(USER_AGENT, "tollgate-gateway");
        let request = request.body(RetryBody::default()).ok()?;
        match tokio::time::timeout(health.timeout, self.client.request(request)).await {
            Ok(Ok(response)) if response.status().is_success() => Some(Ok(())),
            Ok(Ok(response)) => Some(Err(format!("a check was answered with {}", response.status()))),
            Ok(Err(error)) if connector::is_local_resource_error(&error) => None,
            Ok(Err(error)) => Some(Err(connector::chain(&error))),
            Err(_) => Some(Err("a check was not answered in time".to_owned())),
        }
    }
}
