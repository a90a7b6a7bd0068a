//! The blocks of addresses that have limits of their own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use super::name::Name;
use super::network::Network;

/// What the file says about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Its requests take tokens of this rule.
    Limited(Name),
    /// Its requests are refused; the name is for metrics.
    Refused(Name),
    /// Nothing: it is an exception from a larger block.
    Free,
}

/// All blocks. Of those that contain an address, the longest prefix decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Networks {
    blocks: HashMap<Network, Block>,
    /// The lengths of the prefixes in `blocks`, the longest first: a look-up is needed for each.
    lengths: Vec<u32>,
}

impl Networks {
    /// Returns false if there is such a block already.
    pub(crate) fn add(&mut self, network: Network, block: Block) -> bool {
        if let Err(at) = self.lengths.binary_search_by(|bits| network.bits().cmp(bits)) {
            self.lengths.insert(at, network.bits());
        }
        match self.blocks.entry(network) {
            Entry::Vacant(place) => {
                place.insert(block);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn of(&self, address: IpAddr) -> Block {
        let mut containing = self.lengths.iter().map(|bits| Network::around(address, *bits));
        containing.find_map(|network| self.blocks.get(&network).copied()).unwrap_or(Block::Free)
    }
}

#[test]
fn the_longest_prefix_decides() {
    let mut networks = Networks::default();
    let [all, wide, narrow, six] = ["all", "wide", "narrow", "six"].map(|name| Block::Limited(Name::new(name)));
    for (cidr, block) in [
        ("10.0.0.0/8", wide),
        ("0.0.0.0/0", all),
        ("10.1.0.0/16", narrow),
        ("10.1.2.0/24", Block::Free),
        ("2001:db8::/32", six),
    ] {
        assert!(networks.add(cidr.parse().unwrap(), block));
    }
    assert!(!networks.add("10.0.0.0/8".parse().unwrap(), all));
    for (address, expected) in [
        ("10.2.0.1", wide),
        ("10.1.9.1", narrow),
        ("10.1.2.3", Block::Free),
        ("::ffff:10.2.0.1", wide),
        ("192.0.2.1", all),
        ("2001:db8::1", six),
        ("2001:db9::1", Block::Free),
    ] {
        assert_eq!(networks.of(address.parse().unwrap()), expected, "{address}");
    }
}
