//! What the upstream says about its own limits.

use axum::http::{HeaderMap, StatusCode};
use tollgate_tower::http::Heed;

use crate::limits::Limits;
use crate::llm::estimate::Estimate;
use crate::llm::requests_of;
use crate::request::rule::unlimited;

/// Makes the limits of the request's model follow its response. Requests that wait for them are timed anew. No limit
/// becomes faster than the file says. Without a limit of its own a model is not followed: it would slow down the others.
pub(crate) fn follow_upstream(limits: &Limits, estimate: &Estimate, status: StatusCode, headers: &HeaderMap) {
    let Some(model) = estimate.followed() else { return };
    // A refusal that says nothing about the limits may be about this request alone, and empties no bucket. As a failure
    // it still pauses them, if it says for how long.
    let is_refusal = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let status = if is_refusal { StatusCode::INTERNAL_SERVER_ERROR } else { status };
    let config = limits.config();
    let fastest = config.rules.get(&model).and_then(|rule| rule.quota).unwrap_or_else(unlimited);
    let tokens = Heed::default().unit("tokens").follow(0, fastest);
    let requests = Heed::default().follow(0, unlimited());
    for (name, heed) in [(model, tokens), (requests_of(model), requests)] {
        if let Some(shared) = limits.rules.shared(name) {
            heed.heed(&shared.limiter, status, headers);
            shared.followed();
        }
    }
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
