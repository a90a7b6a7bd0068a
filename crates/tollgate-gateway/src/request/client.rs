//! The client of a request: the bucket in which the request is counted.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

use super::name::Name;

/// A client. It does not contain the key itself, which is a secret of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// A listed key, by its name.
    Listed(Name),
    /// Another key, by a digest of 128 bits.
    Key {
        digest: [u64; 2],
        shown: [u8; SHOWN],
    },
    Address(IpAddr),
    /// The bucket that unlisted clients share when there are too many of them.
    Overflow,
}

/// How many bytes of an unlisted key are shown.
const SHOWN: usize = 4;

/// The secret of the digests of keys, without which a client could look for keys with one digest.
pub(crate) type Secret = [u8; 16];

/// Kept in the state file, so that the digests are the same after a restart.
pub(crate) static SECRET: OnceLock<Secret> = OnceLock::new();

pub(crate) fn new_secret() -> Secret {
    // The standard library seeds each of these from the operating system's random numbers.
    let halves = [(); 2].map(|()| RandomState::new().hash_one(0_u8));
    let mut secret = Secret::default();
    secret[..8].copy_from_slice(&halves[0].to_ne_bytes());
    secret[8..].copy_from_slice(&halves[1].to_ne_bytes());
    secret
}

/// Makes the digests of keys those of all gateways with this secret, unless the process has digests already.
pub(crate) fn use_secret(secret: &str) {
    let mut hasher = SipHasher13::new();
    hasher.write(secret.as_bytes());
    let _ = SECRET.set(hasher.finish128().as_bytes());
}

impl Client {
    /// The client of a key that is not listed.
    pub(crate) fn of_key(key: &str) -> Self {
        let mut shown = [b'.'; SHOWN];
        // Of a short key nothing is shown: these bytes would be too much of it.
        if key.len() >= 4 * SHOWN {
            shown.copy_from_slice(&key.as_bytes()[..SHOWN]);
        }
        let mut hasher = secret_hasher();
        hasher.write(key.as_bytes());
        let Hash128 { h1, h2 } = hasher.finish128();
        Self::Key { digest: [h1, h2], shown }
    }
}

/// One word, of which a sender of requests can predict nothing: see `client_hash.rs`.
impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Listed(name) => name.hash(state),
            Self::Key { digest, .. } => state.write_u64(digest[0]),
            Self::Address(address) => {
                let mut hasher = secret_hasher();
                address.hash(&mut hasher);
                state.write_u64(hasher.finish());
            }
            Self::Overflow => state.write_u64(0),
        }
    }
}

/// A hasher with the secret.
fn secret_hasher() -> SipHasher13 {
    SipHasher13::new_with_key(SECRET.get_or_init(new_secret))
}

impl Client {
    /// As the access log names it: without any part of a key that is not listed.
    pub(crate) fn in_log(&self) -> String {
        match self {
            Self::Key { digest, .. } => format!("key:{:016x}", digest[0]),
            Self::Listed(_) | Self::Address(_) | Self::Overflow => self.to_string(),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(name) => write!(f, "{name}"),
            Self::Key { digest, shown } => {
                write!(f, "{}\u{2026}{:04x}", String::from_utf8_lossy(shown), digest[0] as u16)
            }
            Self::Address(address) => write!(f, "{address}"),
            Self::Overflow => f.write_str("(overflow)"),
        }
    }
}
