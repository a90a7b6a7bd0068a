//! Where the key of a request is.

use std::borrow::Cow;

use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderMap, HeaderName, Uri};
use percent_encoding::percent_decode_str;

use super::jwt;
use crate::http::token_list::has_token;

/// The scheme that may precede a key, with spaces between them.
const SCHEME: &str = "bearer";
const SPACES: [char; 2] = [' ', '\t'];
/// What some servers split a query at.
const SEPARATORS: [char; 2] = ['&', ';'];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
    /// A claim of the JSON Web Token in `Authorization`.
    Claim(String),
}

/// A request has several keys. Servers differ in which of them they take, so one of them could be used without limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeveralKeys;

impl KeySource {
    /// The key of a request; `None` if it has none, or if it is malformed.
    pub(crate) fn key<'a>(&self, headers: &'a HeaderMap, uri: &'a Uri) -> Result<Option<Cow<'a, str>>, SeveralKeys> {
        match self {
            Self::Header(name) => Ok(bare(headers, name)?.map(Cow::Borrowed)),
            Self::Query(name) => parameter(uri.query().unwrap_or_default(), name),
            Self::Claim(name) => {
                Ok(bare(headers, &AUTHORIZATION)?.and_then(|token| jwt::claim(token, name)).map(Cow::Owned))
            }
        }
    }

    /// A query as logs may show it: without the key.
    pub(crate) fn shown<'a>(&self, query: &'a str) -> Cow<'a, str> {
        let Self::Query(name) = self else { return Cow::Borrowed(query) };
        let is_key = |pair: &&str| {
            let other = pair.split('=').next().unwrap_or_default();
            // What cannot be decoded could be the key to the upstream.
            decoded(other).is_none_or(|other| is_same_name(&other, name))
        };
        if !query.split(SEPARATORS).any(|pair| is_key(&pair)) {
            return Cow::Borrowed(query);
        }
        let shown = query.split_inclusive(SEPARATORS).map(|part| {
            let pair = part.strip_suffix(SEPARATORS).unwrap_or(part);
            if is_key(&pair) { ["...", &part[pair.len()..]].concat() } else { part.to_owned() }
        });
        Cow::Owned(shown.collect())
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

/// The value of a field, without the scheme and the spaces after it.
fn bare<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, SeveralKeys> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(SeveralKeys);
    }
    let Some(text) = value.and_then(|value| value.to_str().ok()) else { return Ok(None) };
    // HTTP/2 leaves spaces around the value, and HTTP/1.1, in which it is forwarded, does not.
    let text = text.trim_matches(SPACES);
    let split = text.split_at_checked(SCHEME.len());
    let is_scheme = |(scheme, key): &(&str, &str)| scheme.eq_ignore_ascii_case(SCHEME) && key.starts_with(SPACES);
    Ok(Some(split.filter(is_scheme).map_or(text, |(_, key)| key.trim_start_matches(SPACES))))
}

/// The parameter of this name.
fn parameter<'a>(query: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, SeveralKeys> {
    let pairs = query.split(SEPARATORS).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(other, _)| decoded(other).is_some_and(|other| is_same_name(&other, name)));
    let Some((_, value)) = values.next() else { return Ok(None) };
    if values.next().is_some() { Err(SeveralKeys) } else { Ok(decoded(value).filter(|key| !key.is_empty())) }
}

/// Whether some servers take both names of parameters for the same. Most differ in their first letter, and a query may
/// have tens of thousands of them.
fn is_same_name(one: &str, other: &str) -> bool {
    folded(one).eq(folded(other))
}

/// What names of parameters have in common that some servers take for the same.
fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .map(|letter| if matches!(letter, '.' | ' ' | '[') { '_' } else { letter })
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
        ("key=a", Ok(Some("a"))),
        ("x=1&key=a%20b&y", Ok(Some("a b"))),
        ("%6bey=a+b", Ok(Some("a b"))),
        ("key=a=b", Ok(Some("a=b"))),
        ("key=a&key=b", Err(SeveralKeys)),
        ("key=a&key=", Err(SeveralKeys)),
        ("key=", Ok(None)),
        ("key", Ok(None)),
        ("keys=a", Ok(None)),
        ("key=%ff", Ok(None)),
        ("KEY=a", Ok(Some("a"))),
        ("x;key=a", Ok(Some("a"))),
        ("key=a;Key=b", Err(SeveralKeys)),
        ("key=a&%4bey=b", Err(SeveralKeys)),
        ("", Ok(None)),
    ] {
        assert_eq!(parameter(query, "key").as_ref().map(Option::as_deref).map_err(|error| *error), expected, "{query}");
    }
}

#[test]
fn spaces_make_no_other_key() {
    for value in ["a", " a", "a\t ", "Bearer a", "bearer   a", "\tBEARER\ta", "Bearer \t a"] {
        let headers = [(AUTHORIZATION, value.parse().unwrap())].into_iter().collect();
        assert_eq!(bare(&headers, &AUTHORIZATION), Ok(Some("a")), "{value}");
    }
    let of = |value: &str| [(AUTHORIZATION, value.parse().unwrap())].into_iter().collect::<HeaderMap>();
    assert_eq!(bare(&of("Bearers a"), &AUTHORIZATION), Ok(Some("Bearers a")));
    assert_eq!(bare(&of("Bearer"), &AUTHORIZATION), Ok(Some("Bearer")));
}

#[test]
fn a_shown_query_has_no_key() {
    let source = KeySource::Query("key".to_owned());
    for (query, expected) in [
        ("key=a", "..."),
        ("x=1&key=a%20b&y", "x=1&...&y"),
        ("%6bey=a&keys=b&key=c", "...&keys=b&..."),
        ("%ffkey=a", "..."),
        ("a;KEY=b;c&key=d", "a;...;c&..."),
        ("a=b", "a=b"),
        ("", ""),
    ] {
        assert_eq!(source.shown(query), expected, "{query}");
    }
    for name in ["api.key", "api%20key", "api+key", "api[key", "API_Key", "api_\u{212a}ey"] {
        let query = format!("{name}=a");
        assert_eq!(parameter(&query, "api_key"), Ok(Some("a".into())), "{query}");
        assert_eq!(parameter(&format!("{query}&api_key=b"), "api_key"), Err(SeveralKeys), "{query}");
        assert_eq!(KeySource::Query("api_key".to_owned()).shown(&query), "...", "{query}");
    }
    assert_eq!(KeySource::Claim("key".to_owned()).shown("key=a"), "key=a");
}
