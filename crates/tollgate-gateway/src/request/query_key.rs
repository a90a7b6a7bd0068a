//! The key of a request that has it in its query: a parameter, however it is written.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::key_source::AmbiguousKey;
use crate::http::path_variants::is_escaped_rightly;

/// What some servers split a query at.
const SEPARATORS: [char; 2] = ['&', ';'];
/// Some servers drop the parameters after the thousandth (PHP's `max_input_vars`). It is also a bound on the work for a
/// query: a client may send such queries all day, also those of requests that are refused.
const MAX_PARAMETERS: usize = 1_000;

/// The key, which is the parameter of this name.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, AmbiguousKey> {
    if has_too_many(query) {
        return Err(AmbiguousKey::TooMany);
    }
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
    let mut values = pairs().filter(|(other, _)| !is_plainly_other(other, name) && is_key(other));
    let Some((_, value)) = values.next() else { return Ok(None) };
    if values.next().is_some() { Err(AmbiguousKey::Several) } else { value_of(value) }
}

/// A query as logs may show it: without the key of this name.
pub(crate) fn shown<'a>(query: &'a str, name: &str) -> Cow<'a, str> {
    if has_too_many(query) {
        return Cow::Borrowed("...");
    }
    let is_key = |pair: &&str| {
        let other = pair.split('=').next().unwrap_or_default();
        // What is not UTF-8 or is escaped wrongly could be the key to the upstream.
        !is_escaped_rightly(other)
            || (!is_plainly_other(other, name)
                && std::str::from_utf8(&decoded(other)).map_or(true, |other| is_same_name(other, name)))
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

fn has_too_many(query: &str) -> bool {
    query.bytes().filter(|byte| matches!(byte, b'&' | b';')).count() >= MAX_PARAMETERS
}

/// A value of a parameter; `None` if it is empty. Some servers end a value at a NUL, and some drop bytes that are not UTF-8, or
/// a `%` that begins no escape, and a `+` is a space or itself: with these a key whose tokens are used up could be sent as
/// another one.
fn value_of(text: &str) -> Result<Option<Cow<'_, str>>, AmbiguousKey> {
    if !is_escaped_rightly(text) {
        return Err(AmbiguousKey::BadEscape);
    }
    if text.contains('+') {
        return Err(AmbiguousKey::Plus);
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
pub(crate) fn trimmed(key: &str) -> &str {
    key.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control())
}

/// Whether certainly no server takes `other`, which is not decoded, for `name`: after the letters that they have in common,
/// each has another letter, or ends. Most names differ in their first letter.
fn is_plainly_other(other: &str, name: &str) -> bool {
    let is_common = |(one, other): &(u8, u8)| one.is_ascii_alphanumeric() && one.eq_ignore_ascii_case(other);
    let common = other.bytes().zip(name.bytes()).take_while(is_common).count();
    let next = [other, name].map(|name| name.as_bytes().get(common));
    next != [None, None] && next.iter().flatten().all(|next| next.is_ascii_alphanumeric())
}

/// Whether some servers take both names of parameters for the same.
fn is_same_name(one: &str, other: &str) -> bool {
    // PHP takes a bracket that is not closed for a letter.
    let array = |name| until(name, '[');
    let is_array = one.contains('[') || other.contains('[');
    folded(one).eq(folded(other)) || (is_array && folded(array(one)).eq(folded(array(other))))
}

/// What names of parameters have in common that some servers take for the same: these ignore spaces before a name, and
/// end it at a NUL.
fn folded(name: &str) -> impl Iterator<Item = char> {
    until(name.trim_start_matches(' '), '\0')
        .chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .map(|letter| if matches!(letter, '.' | ' ' | '[' | '+') { '_' } else { letter })
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
        ("%6bey=a%20b", Ok(Some("a b"))),
        ("key=a+b", Err(AmbiguousKey::Plus)),
        ("key=a+", Err(AmbiguousKey::Plus)),
        ("key=a%2Bb", Ok(Some("a+b"))),
        ("x=1+1&key=a", Ok(Some("a"))),
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
        ("key=%20%00%09a%e3%80%80", Ok(Some("a"))),
        ("key=%20%00%09", Ok(None)),
        ("KEY=a", Ok(Some("a"))),
        ("x;key=a", Ok(Some("a"))),
        ("key=a;Key=b", Err(AmbiguousKey::Several)),
        ("key=a&%4bey=b", Err(AmbiguousKey::Several)),
        ("", Ok(None)),
        (&*"a&".repeat(999), Ok(None)),
        (&*"a&".repeat(1_000), Err(AmbiguousKey::TooMany)),
        (&*format!("{}key=a", "key;".repeat(1_000)), Err(AmbiguousKey::TooMany)),
    ] {
        assert_eq!(parameter(query, "key").as_ref().map(Option::as_deref).map_err(|error| *error), expected, "{query}");
    }
}

#[test]
fn a_name_is_plainly_other_only_where_no_server_takes_it_for_the_key() {
    for other in ["x", "", "keys", "ke", "k1y", "KEx", "a%6b"] {
        assert!(is_plainly_other(other, "key") && !is_same_name(other, "key"), "{other}");
    }
    for other in ["key", "KEY", "%6bey", "k%65y", "+key", "key%00", "key[]", "key.", "ke\u{212a}", "\u{212a}ey"] {
        assert!(!is_plainly_other(other, "key"), "{other}");
    }
    assert!(!is_plainly_other("api_key", "api.key") && !is_plainly_other("api", "api[key"));
}

#[test]
fn a_shown_query_has_no_key() {
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
        assert_eq!(shown(query, "key"), expected, "{query}");
    }
    for name in [
        "api.key",
        "api%20key",
        "api+key",
        "api%2bkey",
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
        assert_eq!(shown(&query, "api_key"), "...", "{query}");
    }
    assert_eq!(shown(&"key=a&".repeat(2_000), "key"), "...");
}
