//! The hash of a client in the tables of limiters.

use std::hash::{BuildHasherDefault, Hasher};

/// The hasher of tables whose keys are clients.
pub(crate) type ClientHash = BuildHasherDefault<ClientHasher>;

/// Mixes words that no sender of requests can choose: addresses of names, and digests with the secret of the process
/// (`client.rs`). Therefore it needs no secret of its own, and the standard library's hasher would only hash again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientHasher(u64);

/// An odd number without a pattern: the golden ratio in 64 bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for ClientHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    /// For completeness: a client is hashed as words.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::client::Client;
    use crate::request::name::Name;
    use std::collections::HashSet;
    use std::hash::BuildHasher;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn clients_have_different_hashes_that_a_sender_cannot_compute() {
        let v4 = (0..2_000).map(|number| Client::Address(IpAddr::from(Ipv4Addr::from_bits(number << 8))));
        let v6 = (0..2_000).map(|number| Client::Address(IpAddr::from(Ipv6Addr::from_bits(number << 64))));
        let keys = (0..2_000).map(|number| Client::of_key(&number.to_string()));
        let names = (0..2_000).map(|number| Client::Listed(Name::new(&format!("hash-{number}"))));
        let all: Vec<Client> = v4.chain(v6).chain(keys).chain(names).chain([Client::Overflow]).collect();
        let hashes: HashSet<u64> = all.iter().map(|client| ClientHash::default().hash_one(client)).collect();
        assert_eq!(hashes.len(), all.len());
        // The hash of an address depends on the secret, and not on the address alone.
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut plain = ClientHasher::default();
        std::hash::Hash::hash(&address, &mut plain);
        assert!(!hashes.contains(&plain.finish()));
    }
}
