//! The addresses of clients: which bits of an IPv6 address count, and IPv4 addresses within IPv6 addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a client: an IPv4 address, or the network of an IPv6 address.
///
/// The network is the first 64 bits, or as many as an [`Ipv6Prefix`] says. The rest of an IPv6 address is left out
/// because a subscriber has at least all addresses of a /64, and could use a new one for each request.
///
/// An IPv6 address that contains the client's IPv4 address is that IPv4 address. Otherwise all IPv4 clients behind a
/// translator would share one network, and so one key:
///
/// | range | of |
/// |---|---|
/// | `::ffff:0:0/96`, `::/96` | IPv4 addresses written as IPv6 addresses; not `::` and `::1` |
/// | `64:ff9b::/96`, `64:ff9b:1::/48`, `::ffff:0:0:0/96` | translators: NAT64, RFC 8215, SIIT |
/// | `2002::/16`, `2001::/32` | tunnels: 6to4, Teredo |
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
/// assert_eq!(client("64:ff9b::192.0.2.1"), client("192.0.2.1"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientAddress {
    /// Of IPv6, the first address of the network.
    address: IpAddr,
    /// The bits of the network.
    prefix: u8,
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Ipv6Prefix::default().client(address)
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/{}", self.prefix),
        }
    }
}

/// The address, of IPv6 the first one of the network.
impl From<ClientAddress> for IpAddr {
    fn from(client: ClientAddress) -> Self {
        client.address
    }
}

/// How many bits of an IPv6 address identify a client: 64 by default. IPv4 addresses count whole.
///
/// A hosting provider gives a customer a /56 or a /48, and the customer can use each /64 in it as another client. A
/// shorter prefix makes these one client. It also makes one client of all subscribers that share the prefix.
///
/// # Examples
///
/// ```
/// use tollgate_tower::key::Ipv6Prefix;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let by_client = Ipv6Prefix::new(48)?.forwarded_for::<String>(1)?;
/// let call = http::Request::builder().header("x-forwarded-for", "2001:db8:1:2::3").body(String::new())?;
/// assert_eq!(by_client(&call).0.unwrap().to_string(), "2001:db8:1::/48");
/// assert!(Ipv6Prefix::new(129).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix(u8);

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl Ipv6Prefix {
    /// Creates a prefix of this many bits. With 0, all IPv6 clients share a key.
    ///
    /// # Errors
    ///
    /// Returns [`PrefixTooLong`] if `bits` is more than 128.
    pub fn new(bits: u8) -> Result<Self, PrefixTooLong> {
        if bits <= 128 { Ok(Self(bits)) } else { Err(PrefixTooLong { bits }) }
    }

    /// Returns the client that has this address.
    pub fn client(self, address: IpAddr) -> ClientAddress {
        match address {
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => self.client(address.into()),
                None => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(self.0)).unwrap_or(0);
                    ClientAddress { address: Ipv6Addr::from_bits(address.to_bits() & mask).into(), prefix: self.0 }
                }
            },
            IpAddr::V4(_) => ClientAddress { address, prefix: 32 },
        }
    }
}

/// The bits of an [`Ipv6Prefix`] are more than an IPv6 address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IPv6 prefix of {bits} bits is longer than an address: write 0 to 128, such as 64")]
pub struct PrefixTooLong {
    /// The bits that were asked for.
    pub bits: u8,
}

/// The client's IPv4 address, if `address` contains one.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let found = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => bits as u32,
        // `::`, `::1` and the like are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0x100..=0xffff, _] => bits as u32,
        [0x64, 0xff9b, 1, ..] => translated(bits),
        [0x2002, ..] => (bits >> 80) as u32,
        // Teredo inverts the address of the client. The address of the server stands before it, and is left out.
        [0x2001, 0, ..] => !(bits as u32),
        _ => return None,
    };
    Some(found.into())
}

/// Reads an address by RFC 6052 whose translator has a prefix of 48, 56, 64 or 96 bits. What follows the IPv4 address is
/// zero, which tells the four apart. After a shorter prefix than 96, bits 64 to 71 are zero and not part of the IPv4
/// address.
fn translated(bits: u128) -> u32 {
    let without_gap = bits >> 64 << 56 | bits & ((1 << 56) - 1);
    let shift = match bits.trailing_zeros() {
        40.. => 40,
        32.. => 32,
        24.. => 24,
        _ => 0,
    };
    (without_gap >> shift) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> String {
        ClientAddress::from(text.parse::<IpAddr>().unwrap()).to_string()
    }

    #[test]
    fn an_ipv4_client_is_one_client_however_its_address_is_written() {
        for text in [
            "192.0.2.33",
            "::ffff:192.0.2.33",
            "::192.0.2.33",
            "::ffff:0:192.0.2.33",
            "64:ff9b::192.0.2.33",
            // RFC 6052, 2.2: the prefixes of 96, 64, 56 and 48 bits.
            "64:ff9b:1::192.0.2.33",
            "64:ff9b:1:abcd::192.0.2.33",
            "64:ff9b:1:fffe:1:2:c000:221",
            "64:ff9b:1:1:c0:2:2100:0",
            "64:ff9b:1:1c0:0:221::",
            "64:ff9b:1:c000:2:2100::",
            "2002:c000:221::1",
            "2002:c000:221:ffff:1:2:3:4",
            // RFC 4380: the server 65.54.227.120, a port, and the inverted client.
            "2001:0:4136:e378:8000:63bf:3fff:fdde",
        ] {
            assert_eq!(client(text), "192.0.2.33", "{text}");
        }
    }

    #[test]
    fn other_addresses_are_networks() {
        for (text, network) in [
            ("::", "::/64"),
            ("::1", "::/64"),
            ("64:ff9b::1:192.0.2.33", "64:ff9b::/64"),
            ("64:ff9b:2::192.0.2.33", "64:ff9b:2::/64"),
            ("2001:1::192.0.2.33", "2001:1::/64"),
            ("2003:c000:221::1", "2003:c000:221::/64"),
            ("::1:ffff:192.0.2.33", "::/64"),
        ] {
            assert_eq!(client(text), network, "{text}");
        }
    }

    #[test]
    fn a_prefix_has_from_0_to_128_bits() {
        let address = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        for (bits, network) in [
            (0, "::/0"),
            (1, "::/1"),
            (48, "2001:db8:ffff::/48"),
            (56, "2001:db8:ffff:ff00::/56"),
            (64, "2001:db8:ffff:ffff::/64"),
            (127, "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127"),
            (128, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128"),
        ] {
            let prefix = Ipv6Prefix::new(bits).unwrap();
            assert_eq!(prefix.client(address).to_string(), network);
            assert_eq!(prefix.client("64:ff9b::192.0.2.1".parse().unwrap()).to_string(), "192.0.2.1");
        }
        for bits in [129, 255] {
            assert_eq!(Ipv6Prefix::new(bits), Err(PrefixTooLong { bits }));
        }
        let text = "an IPv6 prefix of 129 bits is longer than an address: write 0 to 128, such as 64";
        assert_eq!(PrefixTooLong { bits: 129 }.to_string(), text);
    }
}
