//! What a request to a language model is estimated to take, or why it cannot be estimated.

use axum::http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING};
use axum::http::{HeaderMap, StatusCode};

use super::{ALL, Llm, requests_of};
use crate::body::upload::Upload;
use crate::http::token_list::has_token;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::Charge;

/// What a request takes from the limits of language models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// In tokens of the model.
    pub(crate) tokens: u64,
    /// Those of them that the request has itself.
    pub(crate) input: u64,
    /// The limit of its model, if it has one.
    pub(crate) model: Option<Name>,
    /// Whether this limit follows the upstream's.
    pub(crate) follows: bool,
}

impl Estimate {
    /// Estimates a request, of which the body has been read. The error is the status of the response, and the reason.
    pub(crate) fn of(
        llm: &Llm,
        path: &str,
        headers: &HeaderMap,
        upload: &Upload,
    ) -> Result<Self, (StatusCode, String)> {
        if has_token(headers, &CONNECTION, ACCEPT_ENCODING.as_str()) {
            // The field would not be forwarded, and the usage of a compressed response could not be read.
            return Err((StatusCode::BAD_REQUEST, "Connection may not name Accept-Encoding on this path".to_owned()));
        }
        let is_plain = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"identity");
        if headers.get_all(CONTENT_ENCODING).iter().any(|value| !is_plain(value.as_bytes())) {
            let why = "a compressed request cannot be counted here: send it without Content-Encoding";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
        let Some(body) = upload.whole() else {
            let why = "the request is longer than requests may be that are counted by their content";
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why.to_owned()));
        };
        llm.estimate(path, body)
            .map_err(|error| (StatusCode::BAD_REQUEST, format!("the request is not what this path needs: {error}")))
    }

    /// The limit of the model first: a request that waits for it holds no tokens of the limit of all models.
    pub(crate) fn charges(&self, client: Client) -> Vec<Charge> {
        let rules = self.model.into_iter().chain([Name::new(ALL)]);
        rules.map(|rule| Charge { rule, client, cost: self.tokens }).collect()
    }

    /// The limit of its model, if it follows the upstream's.
    pub(crate) fn followed(&self) -> Option<Name> {
        self.model.filter(|_| self.follows)
    }

    /// The limit of requests that follows the upstream's.
    pub(crate) fn request_charge(&self, client: Client) -> Option<Charge> {
        self.followed().map(|model| Charge { rule: requests_of(model), client, cost: 1 })
    }
}
