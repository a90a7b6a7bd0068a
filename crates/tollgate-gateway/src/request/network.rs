//! Blocks of addresses.

use std::net::IpAddr;
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
