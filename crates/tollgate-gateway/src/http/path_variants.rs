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

use memchr::{memchr, memmem};
use percent_encoding::percent_decode;

/// How many texts of a path are looked at, and how many bytes of it and of all of them. No useful path comes near. A client
/// may send such paths all day, also those of requests that are refused.
const MAX_TEXTS: usize = 32;
const MAX_BYTES: usize = 1_024;
const MAX_BYTES_OF_ALL: usize = 4_096;

/// A path as a list of segments.
pub(crate) type Segments<'a> = Vec<&'a [u8]>;

/// The texts that a path may be, before it is split into segments.
pub(crate) struct PathVariants(Vec<Vec<u8>>);

impl PathVariants {
    /// `None` if there are too many.
    pub(crate) fn of(path: &str) -> Option<Self> {
        if path.len() > MAX_BYTES {
            return None;
        }
        let mut texts = vec![path.as_bytes().to_vec()];
        let (mut at, mut bytes) = (0, path.len());
        let mut text = Vec::new();
        while at < texts.len() {
            for (byte, rule) in RULES {
                let Some(first) = memchr(byte, &texts[at]) else { continue };
                let (unchanged, rest) = texts[at].split_at(first);
                text.clear();
                text.extend_from_slice(unchanged);
                rule(rest, &mut text);
                if !texts.contains(&text) {
                    bytes += text.len();
                    texts.push(text.clone());
                }
            }
            at += 1;
            if texts.len() > MAX_TEXTS || bytes > MAX_BYTES_OF_ALL {
                return None;
            }
        }
        Some(Self(texts))
    }

    /// The first `length` segments of each path that these texts may be, the same ones only once.
    pub(crate) fn prefixes<'a>(&'a self, length: usize) -> Vec<Segments<'a>> {
        let mut prefixes = Vec::new();
        let mut add = |prefix: Segments<'a>| {
            if !prefixes.contains(&prefix) {
                prefixes.push(prefix);
            }
        };
        let empty_segment = memmem::Finder::new(b"//");
        for text in &self.0 {
            let has_empty = matches!(**text, [] | [.., b'/']) || empty_segment.find(text).is_some();
            for drops_empty in [false, true].into_iter().filter(|drops| !drops || has_empty) {
                let path = || segments(text).filter(move |segment| !drops_empty || !segment.is_empty());
                add(path().take(length).collect());
                // Without dots nothing is resolved.
                if memchr(b'.', text).is_some() {
                    add(resolve(path(), length));
                }
            }
        }
        prefixes
    }
}

/// Appends the rest of a text, as the rule changes it. The rest begins with the first byte that the rule is about.
type Rule = fn(&[u8], &mut Vec<u8>);

const RULES: [(u8, Rule); 6] = [
    (b'%', |rest, text| text.extend(percent_decode(rest))),
    (b'\\', |rest, text| text.extend(rest.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }))),
    (b';', |rest, text| {
        let mut is_parameter = false;
        text.extend(rest.iter().filter(|byte| {
            is_parameter = (is_parameter || **byte == b';') && **byte != b'/';
            !is_parameter
        }));
    }),
    // The path ends at these.
    (b'?', |_, _| {}),
    (b'#', |_, _| {}),
    (0, |_, _| {}),
];

/// The segments of a path, without the empty one before its first slash.
pub(crate) fn segments(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_prefix(b"/").unwrap_or(text).split(|byte| *byte == b'/')
}

/// The first `length` segments of a path after `.` and `..` are resolved, as RFC 3986 does.
pub(crate) fn resolve<'a>(segments: impl Iterator<Item = &'a [u8]>, length: usize) -> Segments<'a> {
    // The segments behind these are only counted.
    let (mut prefix, mut behind) = (Vec::new(), 0);
    for segment in segments {
        match segment {
            b"." => {}
            b".." if behind > 0 => behind -= 1,
            b".." => _ = prefix.pop(),
            segment if prefix.len() < length => prefix.push(segment),
            _ => behind += 1,
        }
    }
    prefix
}

/// What segments have in common that some file systems and routers take for the same: letters of either case, and dots
/// and spaces at the end.
pub(crate) fn normalize(segment: &[u8]) -> String {
    let text = trimmed(segment);
    if let Ok(text) = std::str::from_utf8(text)
        && text.is_ascii()
    {
        return text.to_ascii_lowercase();
    }
    let text = String::from_utf8_lossy(text);
    // Upper case first: some letters have the lower case of their upper case in common, as `s` and the long `s` do.
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The same, or `None` if it certainly has more than `most` characters.
pub(crate) fn normalize_within(segment: &[u8], most: usize) -> Option<String> {
    // A character has at most four bytes.
    (trimmed(segment).len() <= 4 * most).then(|| normalize(segment))
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
        let paths = readings.prefixes(usize::MAX).into_iter();
        let mut others = paths.map(|path| path.into_iter().filter(|segment| !segment.is_empty()).collect());
        assert!(others.all(|path: Segments<'_>| path == first), "{path}");
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
