//! The paths that an upstream may read the path of a request as.
//!
//! Servers differ in what they do to a path before they route it. The gateway does not know its upstream, so it takes
//! all of these rules as possible, each applied or not, in any order and several times:
//!
//! * percent-escapes are decoded;
//! * a backslash is a slash;
//! * parameters (`;` and what follows it in the segment) are dropped;
//! * the path ends at `?`, `#` or NUL, which only escapes can bring into it;
//! * then empty segments are dropped; `.` and `..` are resolved;
//! * and segments are [compared loosely](normalize).

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// How many texts of a path are looked at, and how many bytes of it and of all of them. No useful path comes near. A client
/// may send such paths all day, also those of requests that are refused.
const MAX_TEXTS: usize = 32;
const MAX_BYTES: usize = 1_024;
const MAX_BYTES_OF_ALL: usize = 4_096;

/// A path as a list of segments.
pub(crate) type Segments<'a> = Vec<&'a [u8]>;

/// The texts that a path may be, before it is split into segments.
pub(crate) struct PathVariants<'a>(Vec<Cow<'a, [u8]>>);

impl<'a> PathVariants<'a> {
    /// `None` if there are too many.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        let mut texts = vec![Cow::Borrowed(path.as_bytes())];
        if path.len() > MAX_BYTES {
            return None;
        }
        let (mut at, mut bytes) = (0, path.len());
        while at < texts.len() {
            for rule in RULES {
                let text = rule(&texts[at]).filter(|text| texts.iter().all(|other| **other != **text));
                bytes += text.as_ref().map_or(0, Vec::len);
                texts.extend(text.map(Cow::Owned));
            }
            at += 1;
            if texts.len() > MAX_TEXTS || bytes > MAX_BYTES_OF_ALL {
                return None;
            }
        }
        Some(Self(texts))
    }

    /// The paths that these texts may be.
    pub(crate) fn paths(&self) -> impl Iterator<Item = Segments<'_>> {
        self.0.iter().flat_map(|text| {
            let literal: Segments<'_> = segments(text).collect();
            let has_dots = literal.iter().any(|segment| matches!(*segment, b"." | b".."));
            let is_merged = literal.iter().all(|segment| !segment.is_empty());
            let merged: Option<Segments<'_>> =
                (!is_merged).then(|| literal.iter().copied().filter(|segment| !segment.is_empty()).collect());
            // Without dots nothing is resolved.
            let resolved = [Some(&literal), merged.as_ref()].map(|path| Some(resolve(path.filter(|_| has_dots)?)));
            [Some(literal), merged].into_iter().chain(resolved).flatten()
        })
    }
}

/// Returns the changed text, or `None` if it changes nothing.
type Rule = fn(&[u8]) -> Option<Vec<u8>>;

const RULES: [Rule; 6] = [
    |text| match percent_decode(text).into() {
        Cow::Owned(decoded) => Some(decoded).filter(|decoded: &Vec<u8>| decoded != text),
        Cow::Borrowed(_) => None,
    },
    |text| {
        let slash = |byte: &u8| if *byte == b'\\' { b'/' } else { *byte };
        text.contains(&b'\\').then(|| text.iter().map(slash).collect())
    },
    |text| {
        let mut is_parameter = false;
        let is_path = |byte: &u8| {
            is_parameter = (is_parameter || *byte == b';') && *byte != b'/';
            !is_parameter
        };
        text.contains(&b';').then(|| text.iter().copied().filter(is_path).collect())
    },
    |text| cut(text, b'?'),
    |text| cut(text, b'#'),
    |text| cut(text, 0),
];

/// What is before the first `end`, if there is one.
fn cut(text: &[u8], end: u8) -> Option<Vec<u8>> {
    text.iter().position(|byte| *byte == end).map(|at| text[..at].to_vec())
}

/// The segments of a path, without the empty one before its first slash.
pub(crate) fn segments(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_prefix(b"/").unwrap_or(text).split(|byte| *byte == b'/')
}

/// Resolves `.` and `..`, as RFC 3986 does.
pub(crate) fn resolve<'a>(segments: &Segments<'a>) -> Segments<'a> {
    let mut resolved = Vec::with_capacity(segments.len());
    for segment in segments {
        match *segment {
            b"." => {}
            b".." => _ = resolved.pop(),
            segment => resolved.push(segment),
        }
    }
    resolved
}

/// What segments have in common that some file systems and routers take for the same: letters of either case, and dots
/// and spaces at the end.
pub(crate) fn normalize(segment: &[u8]) -> String {
    let text = String::from_utf8_lossy(trimmed(segment));
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // Upper case first: some letters have the lower case of their upper case in common, as `s` and the long `s` do.
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

fn trimmed(segment: &[u8]) -> &[u8] {
    let end = segment.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    &segment[..end.map_or(0, |end| end + 1)]
}

/// Whether all readings of a path are certainly the same: most paths need no closer look.
pub(crate) fn is_unambiguous(path: &str) -> bool {
    // Without a branch for each byte. Nothing before it, as if a segment had begun with its first letter.
    let (mut before, mut doubts) = (0, 0);
    for byte in path.bytes() {
        let class = CLASSES[usize::from(byte)];
        // Two of them are an empty segment, or one that begins or ends with a dot, or two dots inside of one.
        doubts |= (class & UNKNOWN) | (class & before & DOT_OR_SLASH);
        before = class;
    }
    doubts == 0 && !path.ends_with('.')
}

/// A byte that servers read in different ways.
const UNKNOWN: u8 = 1;
const DOT_OR_SLASH: u8 = 2;

/// The bytes of paths. A `static`: a constant would be copied for each byte that is looked up.
static CLASSES: [u8; 256] = {
    let mut classes = [UNKNOWN; 256];
    let (plain, mut at) = (b"abcdefghijklmnopqrstuvwxyz0123456789-_~!$&'()*+,=:@", 0);
    while at < plain.len() {
        classes[plain[at] as usize] = 0;
        at += 1;
    }
    classes[b'.' as usize] = DOT_OR_SLASH;
    classes[b'/' as usize] = DOT_OR_SLASH;
    classes
};

/// Whether each `%` begins an escape.
pub(crate) fn is_escaped_rightly(path: &str) -> bool {
    let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    path.as_bytes().split(|byte| *byte == b'%').skip(1).all(|after| hex(after.first()) && hex(after.get(1)))
}

#[test]
fn a_plain_path_has_one_reading() {
    for path in ["/", "/a/b", "/a.b/c-d_e~f", "/v1.2/users/@me", "*"] {
        assert!(is_unambiguous(path), "{path}");
        let readings = PathVariants::of(path).unwrap();
        let first: Segments<'_> = segments(path.as_bytes()).filter(|segment| !segment.is_empty()).collect();
        let others = readings.paths().map(|path| path.into_iter().filter(|segment| !segment.is_empty()).collect());
        assert!(others.into_iter().all(|path: Segments<'_>| path == first), "{path}");
        assert!(first.iter().all(|segment| normalize(segment).as_bytes() == *segment), "{path}");
    }
    for path in ["/A", "/a/../b", "/a/./b", "//a", "/a//b", "/a.", "/a./b", "/.a", "/a%20", "/a;b", "/a\\b", "/\u{e9}"]
    {
        assert!(!is_unambiguous(path), "{path}");
    }
}

#[test]
fn the_work_for_a_path_is_bounded() {
    let path = |segments| format!("/{}%5c%3f%253b%3b;a/%2541%23", "a/".repeat(segments));
    assert!(PathVariants::of(&path(10)).is_some());
    assert!(PathVariants::of(&path(480)).is_none(), "it may be 32 texts of a thousand bytes");
    let usual = format!("/{}caf%C3%A9", "a/".repeat(480));
    assert!(PathVariants::of(&usual).is_some());
}
