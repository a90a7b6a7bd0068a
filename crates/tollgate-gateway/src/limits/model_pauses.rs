//! The pauses of language models that several upstreams serve: a model pauses while all upstreams that get requests pause.

use std::sync::PoisonError;

use super::Limits;
use crate::config::Config;
use crate::llm::requests_of;
use crate::request::name::Name;

/// Pauses the limits of `model` until the first of its upstreams takes its requests again, or ends their pause if one takes
/// them now. The limits of a single upstream follow its responses themselves.
pub(crate) fn pause_model(limits: &Limits, model: Name) {
    if limits.config().upstreams.all().len() == 1 {
        return;
    }
    // What is read here must not be older than what another task has applied.
    let _one_at_a_time = limits.pauses.lock().unwrap_or_else(PoisonError::into_inner);
    let pause = limits.config().upstreams.pause_of(model);
    for shared in [model, requests_of(model)].into_iter().filter_map(|name| limits.rules.shared(name)) {
        match pause {
            Some(pause) => shared.limiter.pause_for(pause),
            None => shared.limiter.resume(),
        }
    }
}

/// Does the same for all models. Called after each check of an upstream, which may make an upstream leave that took the
/// requests, or return.
pub(crate) fn pause_models(limits: &Limits) {
    let config = limits.config();
    if let Some(llm) = config.llm.as_ref().filter(|llm| llm.follows) {
        llm.models.names().for_each(|model| pause_model(limits, model));
    }
}

/// Applies a change of the file to the pauses: they end if they are of upstreams that are no longer followed, and if there
/// is an upstream that has said nothing. One that still pauses says so again in its next response.
pub(crate) fn change_pauses(limits: &Limits, old: &Config) {
    let follows = |config: &Config| config.llm.as_ref().is_some_and(|llm| llm.follows);
    if follows(old) && (!follows(&limits.config()) || limits.config().upstreams.has_others_than(&old.upstreams)) {
        limits.rules.all_shared().values().for_each(|shared| shared.limiter.resume());
    }
    pause_models(limits);
}
