//! The keys of buckets.

use sha1_smol::Sha1;

/// The key of a bucket: the values of a descriptor that the rule leaves open.
pub type Key = Box<[u8]>;

/// Returns the SHA-1 of a long key, which is the same in all instances. A client can make two keys with one hash, and then
/// shares a limit with itself; it cannot make a key with the hash of another client's.
pub(crate) fn hash(bytes: &[u8]) -> String {
    format!("#{}", Sha1::from(bytes).digest())
}
