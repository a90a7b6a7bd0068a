//! Where the key of a request is.

use std::borrow::Cow;

use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderMap, HeaderName, Uri};
use percent_encoding::percent_decode_str;

use super::jwt;
use crate::http::path_variants::is_escaped_rightly;
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

/// Servers differ in which key such a request has, so a key could be used without limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmbiguousKey {
    Several,
    NotAscii,
    /// In a query: a control character inside, or bytes that are not UTF-8.
    NotText,
    /// In a query: a `%` that begins no escape, in the key or in the name of a parameter.
    BadEscape,
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
        let Self::Query(name) = self else { return Cow::Borrowed(query) };
        let is_key = |pair: &&str| {
            let other = pair.split('=').next().unwrap_or_default();
            // What is not UTF-8 or is escaped wrongly could be the key to the upstream.
            !is_escaped_rightly(other)
                || std::str::from_utf8(&decoded(other)).map_or(true, |other| is_same_name(other, name))
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

/// The parameter of this name.
fn parameter<'a>(query: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, AmbiguousKey> {
    let pairs = || query.split(SEPARATORS).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    // Some servers drop such a `%`, or its letters too: the name could be that of the key.
    if query.contains('%') && !pairs().all(|(other, _)| is_escaped_rightly(other)) {
        return Err(AmbiguousKey::BadEscape);
    }
    // Some servers drop bytes that are not UTF-8.
    let is_key = |other: &str| match String::from_utf8_lossy(&decoded(other)) {
        Cow::Borrowed(other) => is_same_name(other, name),
        Cow::Owned(other) => is_same_name(&other.replace('\u{fffd}', ""), name),
    };
    let mut values = pairs().filter(|(other, _)| is_key(other));
    let Some((_, value)) = values.next() else { return Ok(None) };
    if values.next().is_some() { Err(AmbiguousKey::Several) } else { value_of(value) }
}

/// A value of a parameter; `None` if it is empty. Some servers end a value at a NUL, and some drop bytes that are not UTF-8, or
/// a `%` that begins no escape: with these a key whose tokens are used up could be sent as another one.
fn value_of(text: &str) -> Result<Option<Cow<'_, str>>, AmbiguousKey> {
    if !is_escaped_rightly(text) {
        return Err(AmbiguousKey::BadEscape);
    }
    let value = match decoded(text) {
        Cow::Borrowed(_) => Cow::Borrowed(trimmed(text)),
        Cow::Owned(bytes) => {
            let value = std::str::from_utf8(&bytes).map_err(|_| AmbiguousKey::NotText)?;
            Cow::Owned(trimmed(value).to_owned())
        }
    };
    let has_control = value.contains(char::is_control);
    if has_control { Err(AmbiguousKey::NotText) } else { Ok(Some(value).filter(|value| !value.is_empty())) }
}

/// A key without the white space and the controls around it, which some servers remove.
fn trimmed(key: &str) -> &str {
    key.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control())
}

/// Whether some servers take both names of parameters for the same. Most differ in their first letter, and a query may
/// have tens of thousands of them.
fn is_same_name(one: &str, other: &str) -> bool {
    // PHP takes a bracket that is not closed for a letter.
    let array = |name| until(name, '[');
    folded(one).eq(folded(other)) || folded(array(one)).eq(folded(array(other)))
}

/// What names of parameters have in common that some servers take for the same: these ignore spaces before a name, and
/// end it at a NUL.
fn folded(name: &str) -> impl Iterator<Item = char> {
    until(name.trim_start_matches(' '), '\0')
        .chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .map(|letter| if matches!(letter, '.' | ' ' | '[') { '_' } else { letter })
}

/// The part of `name` before the first `end`.
fn until(name: &str, end: char) -> &str {
    name.split(end).next().unwrap_or_default()
}

/// Decodes a part of a query, as forms are encoded.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect())
}

#[test]
fn a_key_in_the_query_is_found_however_it_is_written() {
    for (query, expected) in [
        ("key=a", Ok(Some("a"))),
        ("x=1&key=a%20b&y", Ok(Some("a b"))),
        ("%6bey=a+b", Ok(Some("a b"))),
        ("key=a=b", Ok(Some("a=b"))),
        ("key=a&key=b", Err(AmbiguousKey::Several)),
        ("key=a&key=", Err(AmbiguousKey::Several)),
        ("key=", Ok(None)),
        ("key", Ok(None)),
        ("keys=a", Ok(None)),
        ("key=%ff", Err(AmbiguousKey::NotText)),
        ("key=a%ff", Err(AmbiguousKey::NotText)),
        ("key=a%00b", Err(AmbiguousKey::NotText)),
        ("key=a%0d%0ab", Err(AmbiguousKey::NotText)),
        ("key=s%hop", Err(AmbiguousKey::BadEscape)),
        ("key=shop%", Err(AmbiguousKey::BadEscape)),
        ("key=%u0061", Err(AmbiguousKey::BadEscape)),
        ("key=a%25zz", Ok(Some("a%zz"))),
        ("key=a&k%ffey=b", Err(AmbiguousKey::Several)),
        ("key=a&k%ey=b", Err(AmbiguousKey::BadEscape)),
        ("key=a&k%25ey=b%", Ok(Some("a"))),
        ("x=%00%ff&key=a", Ok(Some("a"))),
        ("key=+%00%09a%e3%80%80", Ok(Some("a"))),
        ("key=+%00%09", Ok(None)),
        ("KEY=a", Ok(Some("a"))),
        ("x;key=a", Ok(Some("a"))),
        ("key=a;Key=b", Err(AmbiguousKey::Several)),
        ("key=a&%4bey=b", Err(AmbiguousKey::Several)),
        ("", Ok(None)),
    ] {
        assert_eq!(parameter(query, "key").as_ref().map(Option::as_deref).map_err(|error| *error), expected, "{query}");
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

#[test]
fn a_shown_query_has_no_key() {
    let source = KeySource::Query("key".to_owned());
    for (query, expected) in [
        ("key=a", "..."),
        ("x=1&key=a%20b&y", "x=1&...&y"),
        ("%6bey=a&keys=b&key=c", "...&keys=b&..."),
        ("%ffkey=a", "..."),
        ("k%zzey=a&b=c%", "...&b=c%"),
        ("a;KEY=b;c&key=d", "a;...;c&..."),
        ("a=b", "a=b"),
        ("", ""),
    ] {
        assert_eq!(source.shown(query), expected, "{query}");
    }
    for name in [
        "api.key",
        "api%20key",
        "api+key",
        "api[key",
        "API_Key",
        "api_\u{212a}ey",
        "%20+api_key",
        "api_key%00",
        "api_key%00%ff",
        "api_key%00[]",
        "api_key[]",
        "api.key[%ff]",
    ] {
        let query = format!("{name}=a");
        assert_eq!(parameter(&query, "api_key"), Ok(Some("a".into())), "{query}");
        assert_eq!(parameter(&format!("{query}&api_key=b"), "api_key"), Err(AmbiguousKey::Several), "{query}");
        assert_eq!(KeySource::Query("api_key".to_owned()).shown(&query), "...", "{query}");
    }
    assert_eq!(KeySource::Claim("key".to_owned()).shown("key=a"), "key=a");
}
