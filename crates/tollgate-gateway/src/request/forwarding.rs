//! The fields in which proxies name the client that they forward for.

use std::net::IpAddr;

use axum::http::header::{FORWARDED, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_tower::key;

use super::network::Network;
use crate::http::hop_by_hop::drop_hop_by_hop;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields in which a proxy names the client, besides all that begin with `X-Forwarded-`.
const CLIENT_NAMES: [&str; 7] = [
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "true-client-ip",
    "cf-connecting-ip",
];

/// Some upstreams take the path or the method from these fields, and not from the request line by which the gateway
/// prices a request.
const PATH_NAMES: [&str; 2] = ["x-original-url", "x-rewrite-url"];
const METHOD_NAMES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// What ends a request: with `_` they would end it for some upstreams only.
const FRAMING_NAMES: [&str; 2] = ["content-length", "transfer-encoding"];

/// What the gateway knows about a request besides its fields.
pub(crate) struct Received<'a> {
    pub(crate) peer: IpAddr,
    /// The one that the request named.
    pub(crate) host: Option<HeaderValue>,
    /// That of its URL.
    pub(crate) scheme: &'static str,
    /// The field of the key, if it has one.
    pub(crate) key_field: Option<&'a HeaderName>,
}

/// The proxies in front of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Proxies {
    /// How many of them a request passes. Each appends an address to `X-Forwarded-For`, so this many addresses at its end
    /// are theirs.
    pub(crate) before: usize,
    /// From where they connect; `None` if only they can reach the gateway.
    pub(crate) trusted: Option<Vec<Network>>,
}

impl Proxies {
    /// Whether what `peer` says about its clients is believed.
    pub(crate) fn trust(&self, peer: IpAddr) -> bool {
        let is_trusted = |trusted: &Vec<Network>| trusted.iter().any(|network| network.contains(peer));
        self.before > 0 && self.trusted.as_ref().is_none_or(is_trusted)
    }

    /// The address of the client, as far as it is trusted.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        if !self.trust(peer) {
            return peer;
        }
        key::forwarded_address(headers, self.before).unwrap_or(peer)
    }

    /// The addresses that trusted proxies appended.
    fn chain<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a str> {
        let entries = (1..=self.before).rev().filter_map(|proxies| key::forwarded_entry(headers, proxies));
        entries.map(text).collect()
    }

    /// Sets the fields for the upstream: those of trusted proxies stay, with the peer after them, and those of clients
    /// are replaced.
    pub(crate) fn rewrite(&self, headers: &mut HeaderMap, received: Received<'_>) {
        let Received { peer, host, scheme, key_field } = received;
        let is_trusted = self.trust(peer);
        let peer = peer.to_canonical().to_string();
        let mut chain = if is_trusted { self.chain(headers) } else { Vec::new() };
        chain.push(&peer);
        let chain = HeaderValue::try_from(chain.join(", "));
        let is_key = |name: &HeaderName| key_field.is_some_and(|key| is_lookalike(name, key));
        let is_gone = |name: &&HeaderName| is_dropped(name, is_trusted) || is_key(name);
        let gone: Vec<HeaderName> = headers.keys().filter(is_gone).cloned().collect();
        for name in gone {
            headers.remove(name);
        }
        if let Ok(chain) = chain {
            headers.insert(FORWARDED_FOR, chain);
        }
        if let Some(host) = host {
            headers.entry(FORWARDED_HOST).or_insert(host);
        }
        headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static(scheme));
    }
}

/// Removes from the trailers of a request what decides about it at its head. Some upstreams add trailers to the head: there
/// the request would have another key, client or method than here.
pub(crate) fn drop_from_trailers(trailers: &mut HeaderMap, key_field: Option<&HeaderName>) {
    drop_hop_by_hop(trailers);
    let is_key = |name: &HeaderName| key_field.is_some_and(|key| name == key || is_lookalike(name, key));
    let is_gone = |name: &&HeaderName| {
        is_dropped(name, false)
            || is_key(name)
            || METHOD_NAMES.contains(&name.as_str())
            || FRAMING_NAMES.contains(&name.as_str())
            || *name == HOST
    };
    let gone: Vec<HeaderName> = trailers.keys().filter(is_gone).cloned().collect();
    for name in gone {
        trailers.remove(name);
    }
}

/// Whether some upstreams take `name` for `field`: to CGI and its successors `_` and `-` are the same. The key of such a
/// request would be one here and another one there.
fn is_lookalike(name: &HeaderName, field: &HeaderName) -> bool {
    let (name, field) = (name.as_str().as_bytes(), field.as_str().as_bytes());
    let folded = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    name.len() == field.len() && name != field && name.iter().map(folded).eq(field.iter().map(folded))
}

/// The entry, or the word of RFC 7239 for one that other programs could not read either.
fn text(entry: &[u8]) -> &str {
    std::str::from_utf8(entry).ok().filter(|entry| entry.is_ascii()).unwrap_or("unknown")
}

/// Whether the field is not forwarded: it names the client and does not come from a trusted proxy, or it names another
/// path.
fn is_dropped(name: &HeaderName, is_trusted: bool) -> bool {
    let text = name.as_str();
    if text.contains('_') {
        // To CGI and its successors `_` and `-` are the same, so that a proxy's field could be replaced by a client's.
        let meant = text.replace('_', "-");
        let others = [&PATH_NAMES[..], &METHOD_NAMES, &FRAMING_NAMES];
        return is_about_client(&meant) || others.iter().any(|names| names.contains(&&*meant));
    }
    // The gateway does not continue `Forwarded`, so it would become wrong.
    *name == FORWARDED || PATH_NAMES.contains(&text) || (!is_trusted && is_about_client(text))
}

fn is_about_client(name: &str) -> bool {
    name == "forwarded" || name.starts_with("x-forwarded-") || CLIENT_NAMES.contains(&name)
}

/// The other methods that a request names.
pub(crate) fn methods(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = METHOD_NAMES.iter().flat_map(|name| headers.get_all(*name));
    values.filter_map(|value| value.to_str().ok()).map(str::trim)
}
