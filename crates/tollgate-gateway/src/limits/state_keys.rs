//! The keys of saved states, as bytes.

use std::net::IpAddr;

use tollgate::state::StateKey;

use super::rule_client_limits::RuleKey;
use crate::request::client::Client;
use crate::request::name::Name;

impl StateKey for Client {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Listed(name) => {
                to.push(0);
                to.extend(name.as_str().as_bytes());
            }
            Self::Key { digest, shown } => {
                to.push(1);
                digest.iter().for_each(|half| half.write(to));
                to.extend(shown);
            }
            Self::Address(address) => {
                to.push(2);
                address.write(to);
            }
            Self::Overflow => to.push(3),
        }
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (kind, rest) = from.split_first()?;
        Some(match kind {
            0 => Self::Listed(Name::new(std::str::from_utf8(rest).ok()?)),
            1 => {
                let (first, rest) = rest.split_at_checked(8)?;
                let (second, shown) = rest.split_at_checked(8)?;
                Self::Key { digest: [u64::read(first)?, u64::read(second)?], shown: shown.try_into().ok()? }
            }
            2 => Self::Address(IpAddr::read(rest)?),
            3 if rest.is_empty() => Self::Overflow,
            _ => return None,
        })
    }
}

/// The length of the name, the name, and then the client.
impl StateKey for RuleKey {
    fn write(&self, to: &mut Vec<u8>) {
        let rule = self.rule.as_str();
        (rule.len() as u64).write(to);
        to.extend(rule.as_bytes());
        self.client.write(to);
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (length, rest) = from.split_at_checked(8)?;
        let (rule, client) = rest.split_at_checked(usize::try_from(u64::read(length)?).ok()?)?;
        Some(Self { rule: Name::new(std::str::from_utf8(rule).ok()?), client: Client::read(client)? })
    }
}

#[test]
fn clients_are_read_as_they_were_written() {
    let clients = [
        Client::Listed(Name::new("shop")),
        Client::Key { digest: [1, u64::MAX], shown: *b"abcd" },
        Client::Address([127, 0, 0, 1].into()),
        Client::Address([1, 2, 3, 4, 5, 6, 7, 8].into()),
        Client::Overflow,
    ];
    for client in clients {
        let mut bytes = Vec::new();
        client.write(&mut bytes);
        assert_eq!(Client::read(&bytes), Some(client));
    }
    assert_eq!([&[][..], &[1, 2], &[2, 1], &[3, 0], &[9]].map(Client::read), [None; 5]);

    let key = RuleKey { rule: Name::new("route /a"), client: clients[0] };
    let mut bytes = Vec::new();
    key.write(&mut bytes);
    assert_eq!(RuleKey::read(&bytes), Some(key));
    assert_eq!([&bytes[..7], &bytes[..12], &[255; 20]].map(RuleKey::read), [None; 3]);
}
