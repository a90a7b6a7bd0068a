//! The pauses of language models that several upstreams serve: a model pauses while all upstreams that get requests pause.

use super::{Following, Limits};
use crate::config::Config;
use crate::llm::requests_of;
use crate::request::name::Name;
use crate::upstream::target::Target;

/// Pauses the limits of `model` until the first of its upstreams takes its requests again, or ends their pause if one takes
/// them now. The limits of a single upstream follow its responses themselves.
pub(crate) fn pause_model(limits: &Limits, model: Name, _following: &Following<'_>) {
    let config = limits.config();
    if config.upstreams.all().len() == 1 {
        return;
    }
    let pause = config.upstreams.pause_of(model);
    for shared in [model, requests_of(model)].into_iter().filter_map(|name| limits.rules.shared(name)) {
        match pause {
            Some(pause) => shared.limiter.pause_for(pause),
            None => shared.limiter.resume(),
        }
    }
}

/// Does the same for all models. Called after each check of an upstream, which may make an upstream leave that took the
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
        end_pauses_of_others(limits, &old.upstreams.targets());
    }
    pause_models(limits, following);
}

/// Ends pauses of a state file that do not hold for the upstreams of this file. `saved` are the upstreams of that time; an
/// earlier version did not save them.
pub(crate) fn end_saved_pauses(limits: &Limits, saved: Option<&[Target]>) {
    if let Some(saved) = saved {
        end_pauses_of_others(limits, saved);
    }
}

/// Ends all pauses that the upstreams `known` have caused if they are no longer followed, or if there is an upstream that has
/// said nothing. One that still pauses says so again in its next response.
fn end_pauses_of_others(limits: &Limits, known: &[Target]) {
    let config = limits.config();
    if !config.follows_upstreams() || config.upstreams.has_others_than(known) {
        limits.rules.all_shared().values().for_each(|shared| shared.limiter.resume());
    }
}
