//! The pauses of language models that several upstreams serve: a model pauses while all upstreams that get requests pause.

use std::sync::Arc;

use super::shared_limit::SharedLimit;
use super::{Following, Limits};
use crate::config::Config;
use crate::llm::requests_of;
use crate::request::name::Name;
use crate::upstream::target::Target;

/// Pauses the limits of `model` until the first of its upstreams takes its requests again, or ends their pause if one takes
/// them now. The limits of a single upstream follow its responses themselves. A pause of a state file goes on until an
/// upstream has said something.
pub(crate) fn pause_model(limits: &Limits, model: Name, _following: &Following<'_>) {
    let config = limits.config();
    let all = config.upstreams.all();
    if all.len() == 1 || all.iter().all(|backend| backend.limits_of(model).is_none()) {
        return;
    }
    match config.upstreams.pause_of(model) {
        Some(pause) => limiters(limits, model).for_each(|shared| shared.limiter.pause_for(pause)),
        None => limiters(limits, model).for_each(|shared| shared.limiter.resume()),
    }
}

/// The limits of a model: of its tokens, and of its requests.
fn limiters(limits: &Limits, model: Name) -> impl Iterator<Item = Arc<SharedLimit>> {
    [model, requests_of(model)].into_iter().filter_map(|name| limits.rules.shared(name))
}

/// Calls [`pause_model`] for all models. Called after each check of an upstream, which may make an upstream leave that took the
/// requests, or return.
pub(crate) fn pause_models(limits: &Limits, following: &Following<'_>) {
    let config = limits.config();
    if let Some(llm) = config.llm.as_ref().filter(|llm| llm.follows) {
        llm.models.names().for_each(|model| pause_model(limits, model, following));
    }
}

/// Applies a change of the file to the pauses.
pub(crate) fn change_pauses(limits: &Limits, old: &Config, following: &Following<'_>) {
    if old.follows_upstreams() {
        end_stale_pauses(limits, &old.upstreams.targets());
        end_pauses_of_removed(limits, old);
    }
    pause_models(limits, following);
}

/// Ends the pauses of several upstreams if a single one is left, and takes requests.
fn end_pauses_of_removed(limits: &Limits, old: &Config) {
    let config = limits.config();
    if old.upstreams.all().len() == 1 || config.upstreams.all().len() > 1 {
        return;
    }
    let models = config.llm.iter().flat_map(|llm| llm.models.names());
    for model in models.filter(|model| config.upstreams.pause_of(*model).is_none()) {
        limiters(limits, model).for_each(|shared| shared.limiter.resume());
    }
}

/// Ends pauses of a state file that do not hold for the upstreams of this file. `saved` are the upstreams of that time; an
/// earlier version did not save them.
pub(crate) fn end_saved_pauses(limits: &Limits, saved: Option<&[Target]>) {
    if let Some(saved) = saved {
        end_stale_pauses(limits, saved);
    }
}

/// Ends all pauses that the upstreams `known` have caused if they are no longer followed, or if there is an upstream that has
/// said nothing. One that still pauses says so again in its next response.
fn end_stale_pauses(limits: &Limits, known: &[Target]) {
    let config = limits.config();
    if !config.follows_upstreams() || config.upstreams.has_any_outside(known) {
        limits.rules.all_shared().values().for_each(|shared| shared.limiter.resume());
    }
}
