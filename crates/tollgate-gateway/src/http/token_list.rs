//! Fields that list tokens, such as `Connection`.

use hyper::HeaderMap;
use hyper::header::HeaderName;

/// Whether a field that lists tokens has this one.
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    // Most messages have none, and this is the cheapest look-up.
    if !headers.contains_key(name) {
        return false;
    }
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|seen| seen.trim().eq_ignore_ascii_case(token))
}
