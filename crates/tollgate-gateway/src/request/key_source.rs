//! Where the key of a request is.

use std::borrow::Cow;

use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::jwt;
use super::query_key::{self, parameter, trimmed};
use crate::http::token_list::has_token;

/// The scheme that may precede a key, with spaces between them.
const SCHEME: &str = "bearer";
const SPACES: [char; 2] = [' ', '\t'];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
    /// A claim of the JSON Web Token in `Authorization`.
    Claim(String),
}

/// What a 401 says.
#[derive(Debug)]
pub(crate) struct Challenge {
    /// What the client should send.
    pub(crate) why: String,
    /// The value of `WWW-Authenticate`.
    pub(crate) field: HeaderValue,
}

/// Servers differ in which key such a request has, so a key could be used without limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmbiguousKey {
    Several,
    NotAscii,
    /// In a query: a control character inside, or bytes that are not UTF-8.
    NotText,
    /// In a query: a `%` that begins no escape, in the key or in the name of a parameter.
    BadEscape,
    /// In a query: more parameters than some servers read.
    TooMany,
    /// In a query: a `+` in the key. To some servers it is a space, and to others a plus.
    Plus,
}

impl AmbiguousKey {
    /// What the client is told.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Several => "send one key: servers differ in which of several they take",
            Self::NotAscii => "send the key in ASCII characters: servers differ in how they read others in a header",
            Self::NotText => "send the key as UTF-8 without control characters: servers differ in how they read others",
            Self::BadEscape => {
                "write each % of the key and of names as %25: servers differ in how they read one that begins no escape"
            }
            Self::TooMany => "send at most 1000 parameters: servers differ in how many they read",
            Self::Plus => {
                "write each + of the key as %2B, and each space as %20: servers differ in whether a + is a space"
            }
        }
    }
}

impl KeySource {
    /// The key of a request; `None` if it has none, or if it is malformed.
    pub(crate) fn key<'a>(&self, headers: &'a HeaderMap, uri: &'a Uri) -> Result<Option<Cow<'a, str>>, AmbiguousKey> {
        match self {
            Self::Header(name) => Ok(field(headers, name)?.map(bare).map(Cow::Borrowed)),
            Self::Query(name) => parameter(uri.query().unwrap_or_default(), name),
            Self::Claim(name) => {
                Ok(field(headers, &AUTHORIZATION)?.and_then(|value| jwt::claim(bare(value), name)).map(Cow::Owned))
            }
        }
    }

    /// What [`key`](Self::key) returns if a request has `key` at this place.
    pub(crate) fn bare<'a>(&self, key: &'a str) -> &'a str {
        match self {
            Self::Header(_) => bare(key),
            Self::Query(_) => trimmed(key),
            Self::Claim(_) => key,
        }
    }

    /// A query as logs may show it: without the key.
    pub(crate) fn shown<'a>(&self, query: &'a str) -> Cow<'a, str> {
        match self {
            Self::Query(name) => query_key::shown(query, name),
            Self::Header(_) | Self::Claim(_) => Cow::Borrowed(query),
        }
    }

    /// The field of the key, or of the token that contains it; `None` if it is a parameter of the query.
    pub(crate) fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Query(_) => None,
            Self::Claim(_) => Some(&AUTHORIZATION),
        }
    }

    /// Whether `Connection` names the field of the key, which is then not forwarded.
    pub(crate) fn is_named_by_connection(&self, headers: &HeaderMap) -> bool {
        self.field().is_some_and(|name| has_token(headers, &CONNECTION, name.as_str()))
    }

    /// What a client without a known key is told.
    pub(crate) fn challenge(&self) -> Challenge {
        let bearer = "Bearer realm=\"tollgate-gateway\"";
        let (why, challenge) = match self {
            Self::Header(name) if *name == AUTHORIZATION => {
                (format!("send a known key in the header {name}"), bearer.to_owned())
            }
            Self::Header(name) => (
                format!("send a known key in the header {name}"),
                format!("ApiKey realm=\"tollgate-gateway\", header=\"{name}\""),
            ),
            Self::Query(name) => (
                format!("send a known key in the query parameter {name}"),
                format!("ApiKey realm=\"tollgate-gateway\", query=\"{name}\""),
            ),
            Self::Claim(name) => {
                (format!("send a token with a known claim {name} in the header {AUTHORIZATION}"), bearer.to_owned())
            }
        };
        let field = HeaderValue::try_from(challenge).expect("names of keys are visible ASCII characters");
        Challenge { why, field }
    }
}

/// The value of a field.
fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, AmbiguousKey> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(AmbiguousKey::Several);
    }
    value.map(|value| value.to_str().map_err(|_| AmbiguousKey::NotAscii)).transpose()
}

/// The value of a field, without the scheme and the spaces after it.
fn bare(value: &str) -> &str {
    // HTTP/2 leaves spaces around the value, and HTTP/1.1, in which it is forwarded, does not.
    let value = value.trim_matches(SPACES);
    let split = value.split_at_checked(SCHEME.len());
    let is_scheme = |(scheme, key): &(&str, &str)| scheme.eq_ignore_ascii_case(SCHEME) && key.starts_with(SPACES);
    split.filter(is_scheme).map_or(value, |(_, key)| key.trim_start_matches(SPACES))
}

#[test]
fn spaces_make_no_other_key() {
    for value in ["a", " a", "a\t ", "Bearer a", "bearer   a", "\tBEARER\ta", "Bearer \t a"] {
        let headers = [(AUTHORIZATION, value.parse().unwrap())].into_iter().collect();
        assert_eq!(field(&headers, &AUTHORIZATION).map(|value| value.map(bare)), Ok(Some("a")), "{value}");
    }
    assert_eq!([bare("Bearers a"), bare("Bearer")], ["Bearers a", "Bearer"]);
}
