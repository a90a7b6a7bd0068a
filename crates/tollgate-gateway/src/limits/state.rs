//! The state: the levels of all limits, so that a restart fills no bucket.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::IpAddr;
use std::path::Path;

use tollgate::state::{KeyedState, LimiterState, StateError, StateKey};
use tollgate::{KeyedLimiter, Limiter};

use crate::request::client::{Client, SECRET, Secret};
use crate::request::name::Name;

const MAGIC: [u8; 8] = *b"tollgate";
/// After the magic bytes of a limiter comes the version, which is 1. No state of a single limiter begins like this.
const GATEWAY: [u8; 3] = [0xff, b'g', 1];

/// A state that was read and checked.
pub(crate) struct State {
    secret: Secret,
    pub(crate) all: LimiterState,
    pub(crate) listed: KeyedState<Client>,
    pub(crate) unlisted: KeyedState<Client>,
}

impl State {
    /// Reads a state file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StateError> {
        let unreadable = |error: io::Error| StateError::Read { kind: error.kind(), message: error.to_string() };
        match File::open(path) {
            Ok(file) => Self::of(&mut BufReader::new(file)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn of(from: &mut impl Read) -> Result<Self, StateError> {
        let (mut head, mut secrets, mut length) = ([0; 11], [[0; 16]; 2], [0; 4]);
        read(from, &mut head)?;
        if head[..8] != MAGIC || head[8..] != GATEWAY {
            return Err(StateError::Foreign);
        }
        for secret in &mut secrets {
            read(from, secret)?;
        }
        // It is written twice, in place of a checksum.
        if secrets[0] != secrets[1] {
            return Err(StateError::Damaged { part: "its head" });
        }
        read(from, &mut length)?;
        let mut all = Vec::new();
        let count = from.take(u32::from_le_bytes(length).into()).read_to_end(&mut all);
        count.map_err(|error| StateError::Read { kind: error.kind(), message: error.to_string() })?;
        Ok(Self {
            secret: secrets[0],
            all: LimiterState::from_bytes(&all)?.convert(),
            listed: KeyedState::read_from(from)?.convert(),
            unlisted: KeyedState::read_from(from)?.convert(),
        })
    }

    /// Uses the digests of keys that this state uses, unless the process has digests already.
    pub(crate) fn use_secret(&self) {
        let _ = SECRET.set(self.secret);
    }
}

fn read(from: &mut impl Read, to: &mut [u8]) -> Result<(), StateError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StateError::Truncated,
        kind => StateError::Read { kind, message: error.to_string() },
    })
}

/// Writes the states of the limit of all requests, of the listed keys and of the unlisted clients.
pub(crate) fn write(to: &mut impl Write, all: &Limiter, each: [&KeyedLimiter<Client>; 2]) -> io::Result<()> {
    let secret = SECRET.get_or_init(crate::request::client::new_secret);
    let all = all.state().map_err(io::Error::other)?.to_bytes();
    let length = u32::try_from(all.len()).map_err(io::Error::other)?;
    for part in [&MAGIC[..], &GATEWAY, secret, secret, &length.to_le_bytes(), &all] {
        to.write_all(part)?;
    }
    for keyed in each {
        keyed.save().map_err(io::Error::other)?.write_to(to)?;
    }
    Ok(())
}

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
}
