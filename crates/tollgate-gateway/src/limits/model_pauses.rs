//! The pauses of language models that several upstreams serve: a model pauses while all upstreams that get requests pause.

use super::Limits;
use crate::llm::requests_of;
use crate::request::name::Name;

/// Pauses the limits of `model` until the first of its upstreams takes its requests again, if none takes them now.
pub(crate) fn pause_model(limits: &Limits, model: Name) {
    let Some(pause) = limits.config().upstreams.pause_of(model) else { return };
    let shared = [model, requests_of(model)].into_iter().filter_map(|name| limits.rules.shared(name));
    shared.for_each(|shared| shared.limiter.pause_for(pause));
}

/// Does the same for all models. Called after each check of an upstream: a check may make an upstream leave that took the
/// requests, and while one is away a pause lasts until the next check only, because it may return.
pub(crate) fn pause_models(limits: &Limits) {
    if limits.config().llm.as_ref().is_some_and(|llm| llm.follows) {
        limits.rules.all_shared().keys().for_each(|name| pause_model(limits, *name));
    }
}
