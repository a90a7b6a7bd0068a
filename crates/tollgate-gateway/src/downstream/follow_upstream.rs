//! What the upstream says about its own limits.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use tollgate::Limiter;
use tollgate_tower::http::Heed;

use crate::limits::Limits;
use crate::limits::model_pauses::pause_model;
use crate::llm::estimate::Estimate;
use crate::llm::requests_of;
use crate::proxy::AnsweredBy;
use crate::request::rule::unlimited;
use crate::upstream::model_limits::{ModelLimits, follow_together};

/// Makes the limits of the request's model follow its response. Requests that wait for them are timed anew. No limit
/// becomes faster than the file says. Without a limit of its own a model is not followed: it would slow down the others.
///
/// Of several upstreams each has limits of its own. The limits of the model follow all of them together, once each has
/// responded. A response counts only while the file names its upstream: a change may have replaced it since the request.
pub(crate) fn follow_upstream(limits: &Limits, estimate: &Estimate, response: &Response<Body>) {
    let Some(model) = estimate.followed() else { return };
    // A refusal that says nothing about the limits may be about this request alone, and empties no bucket. As a failure
    // it still pauses them, if it says for how long.
    let (status, headers) = (response.status(), response.headers());
    let is_refusal = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let status = if is_refusal { StatusCode::INTERNAL_SERVER_ERROR } else { status };
    let following = limits.lock_following();
    let config = limits.config();
    let answered_by = response.extensions().get().filter(|AnsweredBy(backend)| config.upstreams.contain(backend));
    let Some(AnsweredBy(backend)) = answered_by.filter(|_| config.follows_upstreams()) else { return };
    let fastest = config.rules.get(&model).and_then(|rule| rule.quota).unwrap_or_else(unlimited);
    let tokens = Heed::default().unit("tokens").follow(0, fastest);
    let requests = Heed::default().follow(0, unlimited());
    let shared = [model, requests_of(model)].map(|name| limits.rules.shared(name));
    if config.upstreams.all().len() == 1 {
        for (shared, heed) in shared.iter().zip([tokens, requests]) {
            shared.iter().for_each(|shared| _ = heed.heed(&shared.limiter, status, headers));
        }
        return shared.iter().flatten().for_each(|shared| shared.followed());
    }
    // The quota of the file was checked.
    let Ok(own) = backend.limits_to_follow(model, fastest) else { return };
    tokens.heed(&own.tokens, status, headers);
    requests.heed(&own.requests, status, headers);
    let Some(all) = config.upstreams.limits_of(model) else { return };
    let of: [fn(&ModelLimits) -> &Limiter; 2] = [|limits| &limits.tokens, |limits| &limits.requests];
    for (shared, (of, fastest)) in shared.iter().zip(of.into_iter().zip([fastest, unlimited()])) {
        shared.iter().for_each(|shared| follow_together(&shared.limiter, &all, of, fastest));
    }
    pause_model(limits, model, &following);
    shared.iter().flatten().for_each(|shared| shared.followed());
}

/// Gives the limits of the request's model the quotas of the file again, if the upstream has not responded for long.
pub(crate) fn restore_expired(limits: &Limits, estimate: &Estimate) {
    let Some(model) = estimate.followed() else { return };
    let config = limits.config();
    for name in [model, requests_of(model)] {
        if let (Some(shared), Some(rule)) = (limits.rules.shared(name), config.rules.get(&name)) {
            shared.restore_expired(rule);
        }
    }
}
