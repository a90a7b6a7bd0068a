//! Blocks of addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A block of addresses, like `10.0.0.0/8`, or a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    /// As IPv6, into which IPv4 is mapped.
    first: u128,
    /// The number of bits that all addresses of the block share.
    bits: u32,
}

impl Network {
    /// The block of this length that contains `address`. Of IPv4 addresses the length counts the 96 bits before them.
    pub(crate) fn around(address: IpAddr, bits: u32) -> Self {
        let network = Self { first: mapped(address), bits };
        Self { first: network.masked(network.first), ..network }
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.masked(mapped(address)) == self.first
    }

    fn masked(self, address: u128) -> u128 {
        address & u128::MAX.checked_shl(128 - self.bits).unwrap_or(0)
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u32 = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| ()))?;
        if bits > most {
            return Err(());
        }
        let network = Self { first: mapped(address), bits: 128 - most + bits };
        // Bits behind the prefix would mean that the block is not the one that its author had in mind.
        if network.masked(network.first) == network.first { Ok(network) } else { Err(()) }
    }
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The network of one subscriber: an IPv4 address, or the /64 network of an IPv6 address, whose host can use all of it.
pub(crate) fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address => address,
    }
}

/// Parses an address as proxies write it: with or without a port, and IPv6 with or without brackets.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

#[test]
fn a_network_contains_what_its_prefix_says() {
    let network = |text: &str| text.parse::<Network>().unwrap();
    let contains = |block: &str, address: &str| network(block).contains(address.parse().unwrap());
    for (block, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.1.1", "::10.1.1.1"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ("::1", "::1", "127.0.0.1"),
        ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
    ] {
        assert_eq!([contains(block, inside), contains(block, outside)], [true, false], "{block}");
    }
    assert!(contains("::/0", "2001:db8::1") && contains("::/0", "192.0.2.1"));
    for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.1/8", "10.0.0.0/-1", "10.0.0.0/", "10.0/8", "proxy"] {
        assert_eq!(wrong.parse::<Network>(), Err(()), "{wrong}");
    }
}
