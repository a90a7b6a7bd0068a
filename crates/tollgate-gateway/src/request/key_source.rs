//! Where the key of a request is.

use std::borrow::Cow;

use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

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
    /// In `Authorization`: credentials of `Basic` that are not base64.
    NotBase64,
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
            Self::NotBase64 => "send Basic with base64 as RFC 4648 has it: servers differ in how they read other text",
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
            Self::Header(name) => field(headers, name)?.map(|value| self.bare(value)).transpose(),
            Self::Query(name) => parameter(uri.query().unwrap_or_default(), name),
            Self::Claim(name) => {
                Ok(field(headers, &AUTHORIZATION)?.and_then(|value| jwt::claim(bare(value), name)).map(Cow::Owned))
            }
        }
    }

    /// What [`key`](Self::key) returns if a request has `key` at this place.
    pub(crate) fn bare<'a>(&self, key: &'a str) -> Result<Cow<'a, str>, AmbiguousKey> {
        Ok(match self {
            Self::Header(name) if *name == AUTHORIZATION => return credentials(bare(key)),
            Self::Header(_) => Cow::Borrowed(bare(key)),
            Self::Query(_) => Cow::Borrowed(trimmed(key)),
            Self::Claim(_) => Cow::Borrowed(key),
        })
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
    // HTTP/2 leaves spaces around the value, and HTTP/1.1, in which it is forwarded, does not. A value has no other ASCII
    // spaces than these.
    let value = value.trim_ascii();
    let split = value.split_at_checked(SCHEME.len());
    let is_scheme = |(scheme, key): &(&str, &str)| scheme.eq_ignore_ascii_case(SCHEME) && key.starts_with(SPACES);
    split.filter(is_scheme).map_or(value, |(_, key)| key.trim_start_matches(SPACES))
}

/// Credentials as servers compare them: a scheme is the same in either case, and any number of spaces may follow it. Some
/// servers ignore what is wrong in base64, so that one pair of name and password would have any number of keys.
fn credentials(value: &str) -> Result<Cow<'_, str>, AmbiguousKey> {
    let Some((scheme, rest)) = value.split_once(SPACES) else { return Ok(Cow::Borrowed(value)) };
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.trim_start_matches(SPACES));
    if scheme == "basic" && BASE64_STANDARD.decode(rest).is_err() {
        return Err(AmbiguousKey::NotBase64);
    }
    Ok(Cow::Owned([&*scheme, rest].join(" ")))
}

#[test]
fn credentials_of_any_scheme_have_one_key() {
    let source = KeySource::Header(AUTHORIZATION);
    for (value, expected) in [
        ("Basic YTpi", Ok("basic YTpi")),
        ("bASIC \t  YTpi ", Ok("basic YTpi")),
        ("basic YTo=", Ok("basic YTo=")),
        ("Basic YTo", Err(AmbiguousKey::NotBase64)),
        ("Basic YTp=", Err(AmbiguousKey::NotBase64)),
        ("Basic YT$pi", Err(AmbiguousKey::NotBase64)),
        ("Basic YT pi", Err(AmbiguousKey::NotBase64)),
        ("Token  abC", Ok("token abC")),
        ("Bearer abC", Ok("abC")),
        ("abC", Ok("abC")),
    ] {
        assert_eq!(source.bare(value).as_deref().map_err(|error| *error), expected, "{value}");
    }
}

#[test]
fn spaces_make_no_other_key() {
    for value in ["a", " a", "a\t ", "Bearer a", "bearer   a", "\tBEARER\ta", "Bearer \t a"] {
        let headers = [(AUTHORIZATION, value.parse().unwrap())].into_iter().collect();
        assert_eq!(field(&headers, &AUTHORIZATION).map(|value| value.map(bare)), Ok(Some("a")), "{value}");
    }
    assert_eq!([bare("Bearers a"), bare("Bearer")], ["Bearers a", "Bearer"]);
}
