//! Where the key of a request is.

use std::borrow::Cow;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Uri};
use percent_encoding::percent_decode_str;

use super::jwt;

/// The scheme that may precede a key.
const SCHEME: &str = "bearer ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
    /// A claim of the JSON Web Token in `Authorization`.
    Claim(String),
}

impl KeySource {
    /// The key of a request; `None` if it has none, or if it is malformed.
    pub(crate) fn key<'a>(&self, headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
        match self {
            Self::Header(name) => bare(headers, name).map(Cow::Borrowed),
            Self::Query(name) => parameter(uri.query()?, name),
            Self::Claim(name) => jwt::claim(bare(headers, &AUTHORIZATION)?, name).map(Cow::Owned),
        }
    }

    /// A query as logs may show it: without the key.
    #[allow(dead_code, reason = "for the access log, which is merged later")]
    pub(crate) fn shown<'a>(&self, query: &'a str) -> Cow<'a, str> {
        let Self::Query(name) = self else { return Cow::Borrowed(query) };
        let is_key = |pair: &&str| {
            let other = pair.split('=').next().unwrap_or_default();
            // What cannot be decoded could be the key to the upstream.
            decoded(other).is_none_or(|other| other == *name)
        };
        if !query.split('&').any(|pair| is_key(&pair)) {
            return Cow::Borrowed(query);
        }
        let shown = query.split('&').map(|pair| if is_key(&pair) { "..." } else { pair });
        Cow::Owned(shown.collect::<Vec<_>>().join("&"))
    }

    /// What a client without a known key is told to send, and the challenge of its 401.
    pub(crate) fn challenge(&self) -> (String, String) {
        let bearer = "Bearer realm=\"tollgate-gateway\"";
        match self {
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
        }
    }
}

/// The value of a field, without the scheme.
fn bare<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?;
    let key = text.split_at_checked(SCHEME.len());
    Some(key.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME)).map_or(text, |(_, key)| key))
}

/// The parameter of this name; `None` if there are several, because servers differ in which of them they take.
fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(other, _)| decoded(other).is_some_and(|other| other == name));
    let (_, value) = values.next()?;
    if values.next().is_some() { None } else { decoded(value).filter(|key| !key.is_empty()) }
}

/// Decodes a part of a query, as forms are encoded. `None` if it is not UTF-8.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

#[test]
fn a_key_in_the_query_is_found_however_it_is_written() {
    for (query, expected) in [
        ("key=a", Some("a")),
        ("x=1&key=a%20b&y", Some("a b")),
        ("%6bey=a+b", Some("a b")),
        ("key=a=b", Some("a=b")),
        ("key=a&key=b", None),
        ("key=", None),
        ("key", None),
        ("keys=a", None),
        ("key=%ff", None),
        ("", None),
    ] {
        assert_eq!(parameter(query, "key").as_deref(), expected, "{query}");
    }
}

#[test]
fn a_shown_query_has_no_key() {
    let source = KeySource::Query("key".to_owned());
    for (query, expected) in [
        ("key=a", "..."),
        ("x=1&key=a%20b&y", "x=1&...&y"),
        ("%6bey=a&keys=b&key=c", "...&keys=b&..."),
        ("%ffkey=a", "..."),
        ("a=b", "a=b"),
        ("", ""),
    ] {
        assert_eq!(source.shown(query), expected, "{query}");
    }
    assert_eq!(KeySource::Claim("key".to_owned()).shown("key=a"), "key=a");
}
