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

mod address;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Request};
use std::net::{IpAddr, SocketAddr};

pub use address::{ClientAddress, Ipv6Prefix, PrefixTooLong};

/// Reads the client's address from `X-Forwarded-For`, behind `proxies` proxies that are trusted.
///
/// Each proxy appends the address that it was called from. So the client's address is the entry number `proxies`,
/// counted from the end; what stands before it was written by the client and is not read.
///
/// `None` if there is no such entry, which means that the request has not passed all the proxies, or if the entry
/// is no address. With `proxies` 0 there is no entry to trust.
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

/// Keys requests by the client's address in `X-Forwarded-For`; see [`forwarded_address`]. [`Ipv6Prefix`] sets how much
/// of an IPv6 address counts.
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
    Ipv6Prefix::default().forwarded_for(proxies)
}

/// [`forwarded_for`] was called with 0 trusted proxies: no entry of the field is to be trusted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`forwarded_for` trusts 0 proxies, so it would find no address and all requests would share a bucket: say how many \
     proxies are in front of the server, or use the peer's address"
)]
pub struct NoTrustedProxies;

/// Keys requests by the address from which the client connected, as axum's
/// [`ConnectInfo`](axum::extract::ConnectInfo) has it. [`Ipv6Prefix`] sets how much of an IPv6 address counts.
///
/// # Panics
///
/// The closure panics if a request has no `ConnectInfo<SocketAddr>`. Serve the router with
/// `into_make_service_with_connect_info::<SocketAddr>()`. (A key that all requests share would turn the limit of each
/// client into one of all clients.)
#[cfg(feature = "axum")]
pub fn peer_address<B>() -> impl Fn(&Request<B>) -> (ClientAddress, u64) + Clone + Send + Sync + 'static {
    Ipv6Prefix::default().peer_address()
}

impl Ipv6Prefix {
    /// Keys requests as [`forwarded_for`] does, by networks of this prefix.
    ///
    /// # Errors
    ///
    /// Returns [`NoTrustedProxies`] if `proxies` is 0: all requests would share a bucket.
    pub fn forwarded_for<B>(
        self,
        proxies: usize,
    ) -> Result<impl Fn(&Request<B>) -> (Option<ClientAddress>, u64) + Clone + Send + Sync + 'static, NoTrustedProxies>
    {
        if proxies == 0 {
            return Err(NoTrustedProxies);
        }
        let client = move |headers: &HeaderMap| Some(self.client(forwarded_address(headers, proxies)?));
        Ok(move |request: &Request<B>| (client(request.headers()), 1))
    }

    /// Keys requests as [`peer_address`] does, by networks of this prefix.
    ///
    /// # Panics
    ///
    /// The closure panics if a request has no `ConnectInfo<SocketAddr>`.
    #[cfg(feature = "axum")]
    pub fn peer_address<B>(self) -> impl Fn(&Request<B>) -> (ClientAddress, u64) + Clone + Send + Sync + 'static {
        extension(move |extensions: &Extensions| {
            let info = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().unwrap_or_else(|| {
                panic!(
                    "requests have no ConnectInfo<SocketAddr>: serve the router with \
                     `into_make_service_with_connect_info::<SocketAddr>()`"
                )
            });
            self.client(info.0.ip())
        })
    }
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
///
/// # Panics
///
/// Panics if `name` is a literal and no name of a header field. Upper and lower case are the same.
///
/// # Examples
///
/// ```
/// use tollgate_tower::key;
/// let by_key = key::header("X-Api-Key");
/// let call = http::Request::builder().header("x-api-key", "ann").body(()).unwrap();
/// assert_eq!(by_key(&call).0.unwrap(), "ann");
/// ```
///
/// A name that is known only at run time must be checked first:
///
/// ```compile_fail,E0277
/// use tollgate_tower::key;
/// let from_file = String::from("x-api-key");
/// let by_key = key::header::<()>(from_file);
/// ```
///
/// ```
/// use http::HeaderName;
/// use tollgate_tower::key;
/// # fn main() -> Result<(), http::header::InvalidHeaderName> {
/// let from_file = String::from("x-api-key");
/// let by_key = key::header::<()>(HeaderName::try_from(from_file)?);
/// # let _ = by_key; Ok(()) }
/// ```
#[track_caller]
pub fn header<B>(
    name: impl FieldName,
) -> impl Fn(&Request<B>) -> (Option<HeaderValue>, u64) + Clone + Send + Sync + 'static {
    let name = name.into_name();
    move |request| (request.headers().get(&name).cloned(), 1)
}

/// The name of a header field, for [`header`]: a [`HeaderName`], or a literal.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a header field",
    label = "write a literal such as `\"x-api-key\"`, or a `HeaderName`",
    note = "a name that is known only at run time may be wrong: `HeaderName::try_from(name)?` checks it"
)]
pub trait FieldName {
    /// Returns the name. A literal that is no name panics.
    fn into_name(self) -> HeaderName;
}

impl FieldName for HeaderName {
    fn into_name(self) -> HeaderName {
        self
    }
}

impl FieldName for &'static str {
    #[track_caller]
    fn into_name(self) -> HeaderName {
        HeaderName::try_from(self).unwrap_or_else(|_| {
            panic!("`{self}` is not the name of a header field: write letters, digits and hyphens, such as `x-api-key`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<L: AsRef<[u8]>>(lines: &[L], proxies: usize) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(line.as_ref()).unwrap());
        }
        forwarded_address(&headers, proxies).map(|address| ClientAddress::from(address).to_string())
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
    fn a_field_is_named_by_a_literal_in_any_case_or_by_a_header_name() {
        let mut call = Request::new(());
        call.headers_mut().insert("x-api-key", HeaderValue::from_static("ann"));
        let ann = (Some(HeaderValue::from_static("ann")), 1);
        assert_eq!(header("x-api-key")(&call), ann);
        assert_eq!(header("X-API-Key")(&call), ann);
        assert_eq!(header(HeaderName::from_static("x-api-key"))(&call), ann);
        assert_eq!(header("x-user")(&call), (None, 1));
    }

    #[test]
    #[should_panic(expected = "`x api key` is not the name of a header field: write letters, digits and hyphens")]
    fn a_literal_that_is_no_name_panics_at_construction() {
        let _ = header::<()>("x api key");
    }

    #[test]
    fn no_byte_of_the_client_hides_the_address_that_a_proxy_appended() {
        assert_eq!(client(&[b"\xff, 192.0.2.1"], 1).unwrap(), "192.0.2.1");
        assert_eq!(client(&[&b"198.51.100.9"[..], b"\xff, 192.0.2.1"], 1).unwrap(), "192.0.2.1");
        assert_eq!(client(&[b"\xff, 192.0.2.1"], 2), None);
    }
}
