//! The keys of buckets.

use serde::{Deserialize, Serialize};
use sha1_smol::Sha1;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use tollgate::ToKey;

/// The longest key that is kept in its place. A table of limits has room for this many bytes.
const SHORT: usize = 22;

/// The key of a bucket: the values of a descriptor that the rule leaves open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Key {
    /// A length, and as many bytes.
    Short(u8, [u8; SHORT]),
    /// More bytes than that.
    Long(Box<[u8]>),
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => return Self::Long(bytes.into()),
        }
        Self::Short(bytes.len() as u8, short)
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Self::Long(bytes) => bytes,
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
}

impl ToKey<Key> for [u8] {
    fn to_key(&self) -> Key {
        self.into()
    }
}

/// Returns the SHA-1 of a long key, which is the same in all instances. A client can make two keys with one hash, and then
/// shares a limit with itself; it cannot make a key with the hash of another client's.
pub(crate) fn hash(bytes: &[u8]) -> String {
    format!("#{}", Sha1::from(bytes).digest())
}
