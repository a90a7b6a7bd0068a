//! Requests of proxies that ask over HTTP: which parts of them are which values of descriptors.

use crate::fields::shortened;
use crate::proto::{Descriptor, Entry};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::net::IpAddr;

/// The descriptors that a domain takes from an HTTP request.
pub type Mapping = Vec<Vec<(String, Part)>>;

/// A part of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The value of a header field.
    Header(HeaderName),
    /// The address of the client: the last entry of `X-Forwarded-For`, which the nearest proxy wrote, or the peer.
    Address,
    /// The method: `X-Forwarded-Method` or `X-Original-Method`, or that of the request.
    Method,
    /// The path without the query: `X-Forwarded-Uri` or `X-Original-Uri`.
    Path,
    /// The host: `X-Forwarded-Host`, or `Host`.
    Host,
    /// Always this text.
    Text(String),
}

impl Part {
    /// The forms in which a file names a part.
    pub const FORMS: &str = "`header NAME`, `address`, `method`, `path`, `host` or `text VALUE`";

    /// Parses a part.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(char::is_whitespace) {
            Some(("header", name)) => HeaderName::from_bytes(name.trim().as_bytes()).ok().map(Self::Header),
            Some(("text", value)) => Some(Self::Text(value.trim().to_owned())),
            Some(_) => None,
            None => match text {
                "address" => Some(Self::Address),
                "method" => Some(Self::Method),
                "path" => Some(Self::Path),
                "host" => Some(Self::Host),
                _ => None,
            },
        }
    }

    fn of(&self, method: &Method, headers: &HeaderMap, peer: IpAddr) -> Option<String> {
        // A value that is not text counts too: otherwise one byte would get a client around its limit.
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let field = |name: &str| headers.get(name).map(text);
        match self {
            Self::Header(name) => headers.get(name).map(text),
            Self::Address => {
                let list = headers.get_all("x-forwarded-for").iter().next_back().map(text).unwrap_or_default();
                match list.rsplit(',').next().map(str::trim) {
                    Some(last) if !last.is_empty() => Some(last.to_owned()),
                    _ => Some(peer.to_canonical().to_string()),
                }
            }
            Self::Method => {
                let forwarded = field("x-forwarded-method").or_else(|| field("x-original-method"));
                Some(forwarded.unwrap_or_else(|| method.to_string()))
            }
            Self::Path => {
                let uri = field("x-forwarded-uri").or_else(|| field("x-original-uri"))?;
                uri.split(['?', '#']).next().map(str::to_owned)
            }
            Self::Host => field("x-forwarded-host").or_else(|| field("host")),
            Self::Text(text) => Some(text.clone()),
        }
    }
}

/// Returns the descriptors of a request. A descriptor is left out if the request lacks one of its parts, as in Envoy.
pub fn descriptors(mapping: &Mapping, method: &Method, headers: &HeaderMap, peer: IpAddr) -> Vec<Descriptor> {
    let entry = |(key, part): &(String, Part)| {
        let value = part.of(method, headers, peer).filter(|value| !value.is_empty())?;
        Some(Entry { key: key.clone(), value: value.into() })
    };
    let descriptor = |parts: &Vec<(String, Part)>| {
        let entries = parts.iter().map(entry).collect::<Option<_>>()?;
        Some(Descriptor { entries, ..Descriptor::default() })
    };
    mapping.iter().filter_map(descriptor).collect()
}

/// Returns what a problem says about a part that is none.
pub fn no_part(text: &str) -> String {
    format!("`{}` is no part of a request: write {}", shortened(text), Part::FORMS)
}
