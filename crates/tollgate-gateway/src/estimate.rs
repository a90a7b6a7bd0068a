//! What a request to a language model is estimated to take, or why it cannot be estimated.

use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};

use super::client::Client;
use super::llm::{Llm, requests_of};
use super::name::Name;
use super::rule::Toll;
use super::upload::Upload;

/// What a request takes from the limits of language models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// In tokens of the model.
    pub(crate) tokens: u64,
    /// The limits that count these tokens: of all, then of the model.
    pub(crate) rules: Vec<Name>,
    /// Whether these limits follow the upstream's.
    pub(crate) heeds: bool,
}

impl Estimate {
    /// Estimates a request, of which the body has been read. The error is the status of the response, and the reason.
    pub(crate) fn of(llm: &Llm, headers: &HeaderMap, upload: &Upload) -> Result<Self, (StatusCode, String)> {
        let is_plain = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"identity");
        if headers.get_all(CONTENT_ENCODING).iter().any(|value| !is_plain(value.as_bytes())) {
            let why = "a compressed request cannot be counted here: send it without Content-Encoding";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
        let Some(body) = upload.whole() else {
            let why = "the request is longer than requests may be that are counted by their content";
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why.to_owned()));
        };
        llm.estimate(&body)
            .map_err(|error| (StatusCode::BAD_REQUEST, format!("the request is not what this path needs: {error}")))
    }

    pub(crate) fn tolls(&self, client: Client) -> Vec<Toll> {
        self.rules.iter().map(|rule| Toll { rule: *rule, client, cost: self.tokens }).collect()
    }

    /// The limits of requests that follow the upstream's.
    pub(crate) fn request_tolls(&self, client: Client) -> impl Iterator<Item = Toll> {
        let rules = self.rules.iter().filter(|_| self.heeds);
        rules.map(move |rule| Toll { rule: requests_of(*rule), client, cost: 1 })
    }
}
