//! Ready-made keys for [`LimitLayer::keyed`](crate::LimitLayer::keyed): the client's address, or a header field.
//!
//! Each function returns a closure that computes the key of a request, at a cost of one token.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, routing::get};
//! use http::header::AUTHORIZATION;
//! use tollgate::{KeyedLimiter, Quota};
//! use tollgate_tower::{LimitLayer, key};
//! let by_token = KeyedLimiter::new(Quota::per_second(10))?;
//! let by_address = KeyedLimiter::new(Quota::per_second(50))?;
//! # #[cfg(feature = "http")] {
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(LimitLayer::keyed(&by_token, key::header(AUTHORIZATION)).refuse().respond())
//!     .layer(LimitLayer::keyed(&by_address, key::forwarded_for(1)?).refuse().respond());
//! # let _ = app; }
//! # Ok(()) }
//! ```
//!
//! Which address is the client's depends on what stands in front of the server:
//!
//! | in front of the server | use |
//! |---|---|
//! | nothing: clients connect to it | `peer_address` (feature `axum`), or [`extension`] |
//! | `n` proxies of your own, each of which appends to `X-Forwarded-For` | [`forwarded_for(n)`](forwarded_for) |
//!
//! A key taken from a field that the client writes itself is no limit: a client that invents a new value for each
//! request is a new client each time. That includes `X-Forwarded-For` without a proxy, and API keys that are not
//! checked before the limiter is asked.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Request};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address of a client: an IPv4 address, or the first 64 bits of an IPv6 address.
///
/// The rest of an IPv6 address is left out because a subscriber has at least all addresses of a /64, and could use a
/// new one for each request. An IPv4 address that is written as an IPv6 address (`::ffff:192.0.2.1`) is an IPv4
/// address.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_tower::key::ClientAddress;
/// let client = |text: &str| ClientAddress::from(text.parse::<IpAddr>().unwrap());
/// assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
/// assert_eq!(client("2001:db8::1").to_string(), "2001:db8::/64");
/// assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientAddress(IpAddr);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
            address => Self(address),
        }
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(prefix) => write!(f, "{prefix}/64"),
        }
    }
}

/// The address, of IPv6 the first one of the network.
impl From<ClientAddress> for IpAddr {
    fn from(client: ClientAddress) -> Self {
        client.0
    }
}

impl ClientAddress {
    /// Reads the client's address from `X-Forwarded-For`, behind `proxies` proxies that are trusted.
    ///
    /// Each proxy appends the address that it was called from. So the client's address is the entry number `proxies`,
    /// counted from the end; what stands before it was written by the client and is not read.
    ///
    /// `None` if there is no such entry, which means that the request has not passed all the proxies, or if the entry
    /// is no address. With `proxies` 0 there is no entry to trust.
    pub fn forwarded_for(headers: &HeaderMap, proxies: usize) -> Option<Self> {
        forwarded_address(headers, proxies).map(Self::from)
    }
}

/// The whole address that [`ClientAddress::forwarded_for`] takes the client's network from.
pub fn forwarded_address(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    address(std::str::from_utf8(forwarded_entry(headers, proxies)?).ok()?)
}

/// The entry number `proxies` of `X-Forwarded-For`, counted from the end, as it stands there.
///
/// Its bytes need not be text, and need not be an address. Entries are separated before they are read as text, so that
/// no byte that a client sends hides an entry that a proxy appends to the same line.
pub fn forwarded_entry(headers: &HeaderMap, proxies: usize) -> Option<&[u8]> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    entries.map(<[u8]>::trim_ascii).nth(proxies.checked_sub(1)?)
}

/// Reads an address with or without a port, brackets and quotes. A trusted proxy wrote the entry, so a spelling that no
/// proxy is known to use can be accepted: refusing it would make all clients of that proxy one client.
fn address(entry: &str) -> Option<IpAddr> {
    let unquoted = entry.strip_prefix('"').and_then(|entry| entry.strip_suffix('"')).unwrap_or(entry);
    let bare = unquoted.strip_prefix('[').and_then(|entry| entry.strip_suffix(']')).unwrap_or(unquoted);
    bare.parse().ok().or_else(|| unquoted.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// Keys requests by the client's address in `X-Forwarded-For`; see [`ClientAddress::forwarded_for`].
///
/// All requests without such an address, which have not come through `proxies` proxies, share a bucket.
///
/// # Errors
///
/// Returns [`NoTrustedProxies`] if `proxies` is 0: all requests would share a bucket.
///
/// # Examples
///
/// ```
/// use tollgate_tower::key;
/// # fn main() -> Result<(), key::NoTrustedProxies> {
/// let by_client = key::forwarded_for::<String>(1)?;
/// let call = http::Request::builder().header("x-forwarded-for", "198.51.100.7, 192.0.2.1").body(String::new()).unwrap();
/// assert_eq!(by_client(&call).0.unwrap().to_string(), "192.0.2.1");
/// assert!(key::forwarded_for::<String>(0).is_err());
/// # Ok(()) }
/// ```
pub fn forwarded_for<B>(
    proxies: usize,
) -> Result<impl Fn(&Request<B>) -> (Option<ClientAddress>, u64) + Clone + Send + Sync + 'static, NoTrustedProxies> {
    if proxies == 0 {
        return Err(NoTrustedProxies);
    }
    Ok(move |request: &Request<B>| (ClientAddress::forwarded_for(request.headers(), proxies), 1))
}

/// [`forwarded_for`] was called with 0 trusted proxies: no entry of the field is to be trusted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`forwarded_for` trusts 0 proxies, so it would find no address and all requests would share a bucket: say how many \
     proxies are in front of the server, or use the peer's address"
)]
pub struct NoTrustedProxies;

/// Keys requests by the address from which the client connected, as axum's
/// [`ConnectInfo`](axum::extract::ConnectInfo) has it.
///
/// # Panics
///
/// The closure panics if a request has no `ConnectInfo<SocketAddr>`. Serve the router with
/// `into_make_service_with_connect_info::<SocketAddr>()`. (A key that all requests share would turn the limit of each
/// client into one of all clients.)
#[cfg(feature = "axum")]
pub fn peer_address<B>() -> impl Fn(&Request<B>) -> (ClientAddress, u64) + Clone + Send + Sync + 'static {
    extension(|extensions: &Extensions| {
        let info = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().unwrap_or_else(|| {
            panic!(
                "requests have no ConnectInfo<SocketAddr>: serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`"
            )
        });
        ClientAddress::from(info.0)
    })
}

/// Keys requests by what `key` finds in their extensions: the address that a server put there, or the user that an
/// earlier layer authenticated.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use tollgate_tower::key::{self, ClientAddress};
/// // Of a server that stores the peer's address itself.
/// let by_address = key::extension::<String, _>(|found| found.get::<SocketAddr>().map(|peer| ClientAddress::from(*peer)));
/// let mut request = http::Request::new(String::new());
/// request.extensions_mut().insert::<SocketAddr>("192.0.2.1:4711".parse().unwrap());
/// assert_eq!(by_address(&request).0.unwrap().to_string(), "192.0.2.1");
/// ```
pub fn extension<B, K>(
    key: impl Fn(&Extensions) -> K + Clone + Send + Sync + 'static,
) -> impl Fn(&Request<B>) -> (K, u64) + Clone + Send + Sync + 'static {
    move |request| (key(request.extensions()), 1)
}

/// Keys requests by the value of a header field, such as an API key that was checked before. All requests without the
/// field share a bucket.
pub fn header<B>(
    name: HeaderName,
) -> impl Fn(&Request<B>) -> (Option<HeaderValue>, u64) + Clone + Send + Sync + 'static {
    move |request| (request.headers().get(&name).cloned(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<L: AsRef<[u8]>>(lines: &[L], proxies: usize) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(line.as_ref()).unwrap());
        }
        ClientAddress::forwarded_for(&headers, proxies).map(|client| client.to_string())
    }

    #[test]
    fn the_entry_that_the_outermost_trusted_proxy_wrote_counts() {
        let one = ["198.51.100.7, 203.0.113.9,192.0.2.1"];
        let of = [0, 1, 2, 3, 4].map(|proxies| client(&one, proxies));
        let [none, last, middle, first, beyond] = of;
        assert_eq!((none, beyond), (None, None));
        assert_eq!([last, middle, first].map(Option::unwrap), ["192.0.2.1", "203.0.113.9", "198.51.100.7"]);
        let lines = ["198.51.100.7", "203.0.113.9 , 192.0.2.1"];
        assert_eq!(client(&lines, 2).unwrap(), "203.0.113.9", "several lines are one list");
        assert_eq!(client(&lines, 3).unwrap(), "198.51.100.7");
        assert_eq!(client::<&str>(&[], 1), None);
        assert_eq!(forwarded_for::<()>(0).err(), Some(NoTrustedProxies));
        assert!(forwarded_for::<()>(1).is_ok());
    }

    #[test]
    fn an_entry_may_have_a_port_and_brackets_and_is_no_key_if_it_is_no_address() {
        for (entry, expected) in [
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::/64")),
            ("[2001:db8::1]:443", Some("2001:db8::/64")),
            ("[2001:db8::1]", Some("2001:db8::/64")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
            ("192.0.2", None),
            ("192.0.2.1:http", None),
            ("[192.0.2.1]", Some("192.0.2.1")),
            ("\"192.0.2.1\"", Some("192.0.2.1")),
            ("\"[2001:db8::1]:443\"", Some("2001:db8::/64")),
            ("\"192.0.2.1", None),
            ("[192.0.2.1", None),
        ] {
            assert_eq!(client(&[entry], 1).as_deref(), expected, "{entry}");
        }
    }

    #[test]
    fn a_client_can_put_nothing_in_front_of_a_trusted_proxy() {
        for lie in ["192.0.2.99", "192.0.2.99,", ",,", "x,y"] {
            assert_eq!(client(&[&format!("{lie}, 203.0.113.9")], 1).unwrap(), "203.0.113.9");
        }
    }
    #[test]
    fn no_byte_of_the_client_hides_the_address_that_a_proxy_appended() {
        assert_eq!(client(&[b"\xff, 192.0.2.1"], 1).unwrap(), "192.0.2.1");
        assert_eq!(client(&[&b"198.51.100.9"[..], b"\xff, 192.0.2.1"], 1).unwrap(), "192.0.2.1");
        assert_eq!(client(&[b"\xff, 192.0.2.1"], 2), None);
    }
}
