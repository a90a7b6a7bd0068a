//! What the upstream says about its own limits.

use axum::http::{HeaderMap, StatusCode};
use tollgate_tower::http::Heed;

use super::estimate::Estimate;
use super::limits::Limits;
use super::llm::requests_of;
use super::shared::unlimited;

/// Makes the limits of a request follow its response: those of its model, or of all models if it has none of its own.
/// Requests that wait for them are timed anew. No limit becomes faster than the file says.
pub(crate) fn heed(limits: &Limits, estimate: &Estimate, status: StatusCode, headers: &HeaderMap) {
    // Of the model, if it has limits.
    let Some(rule) = estimate.rules.last().filter(|_| estimate.heeds) else { return };
    let config = limits.config();
    let fastest = config.rules.get(rule).and_then(|rule| rule.quota).unwrap_or_else(unlimited);
    let tokens = Heed::default().unit("tokens").follow(0, fastest);
    let requests = Heed::default().follow(0, unlimited());
    for (name, heed) in [(*rule, tokens), (requests_of(*rule), requests)] {
        if let Some(shared) = limits.rules.shared(name) {
            heed.heed(&shared.limiter, status, headers);
        }
    }
}
