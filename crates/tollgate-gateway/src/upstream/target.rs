//! An upstream, as the configuration names it.

use std::fmt;
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::{Authority, PathAndQuery, Scheme};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

impl Target {
    /// The URI of the same path and query at the upstream. A scheme and host in the request are ignored.
    pub(crate) fn at(&self, uri: &Uri) -> Option<Uri> {
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        builder.path_and_query(path).build().ok()
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Option<Uri> = text.parse().ok();
        let parts = uri.filter(|uri| uri.path() == "/" && uri.query().is_none()).map(Uri::into_parts);
        let target = parts.and_then(|parts| Some(Self { scheme: parts.scheme?, authority: parts.authority? }));
        let is_known = |target: &Self| target.scheme == Scheme::HTTP || target.scheme == Scheme::HTTPS;
        // `http://:1` has no host.
        let is_right = |target: &Self| is_known(target) && !target.authority.host().is_empty();
        let is_plain = |target: &Self| is_right(target) && !target.authority.as_str().contains('@');
        target.filter(is_plain).ok_or_else(|| {
            format!(
                "`{text}` is not an upstream: write one like \"http://127.0.0.1:3000\" or \"https://api.internal\", \
                 without a path"
            )
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

#[test]
fn a_path_stays_what_it_was_whatever_stood_before_it() {
    let target: Target = "https://127.0.0.1:3000".parse().unwrap();
    let at = |uri: &'static str| target.at(&Uri::from_static(uri)).map(|uri| uri.to_string());
    assert_eq!(at("/a//b%2f?c=%20&d").as_deref(), Some("https://127.0.0.1:3000/a//b%2f?c=%20&d"));
    assert_eq!(at("http://elsewhere:1/x").as_deref(), Some("https://127.0.0.1:3000/x"));
    assert_eq!(at("http://elsewhere").as_deref(), Some("https://127.0.0.1:3000/"));
}

#[test]
fn an_upstream_is_a_scheme_and_a_host() {
    for wrong in ["", "api", "api:80", "ftp://api", "http://api/v1", "http://api?x", "http://me@api", "/", "http://"] {
        assert!(wrong.parse::<Target>().is_err(), "{wrong}");
    }
}
