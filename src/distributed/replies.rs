//! Error replies of a store's server, by kind.

use std::fmt;

/// The kind of error that a store's server replied with. The server answers and the connection works, so the connection
/// is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ReplyKind {
    /// `OOM`: the server is at its `maxmemory` and may not evict anything. PostgreSQL: class 53 except 53300.
    OutOfMemory,
    /// `WRONGTYPE`: the store's key holds another type of value.
    WrongType,
    /// `NOPERM`, `NOAUTH` or `WRONGPASS`: the user may not run the script, or not on this key. PostgreSQL: 42501 or class 28.
    NoPermission,
    /// `BUSY`: the server runs a script that does not end. PostgreSQL: the row of the store stays locked (55P03), a
    /// statement timeout (57014), or conflicts with other transactions in several attempts (class 40).
    Busy,
    /// `NOSCRIPT`: the server had forgotten the script, and it was sent again. This alone is not a failure.
    NoScript,
    /// `READONLY`: the server is a replica. PostgreSQL: 25006.
    ReadOnly,
    /// `NOREPLICAS`: fewer replicas follow the server than it needs to write.
    NoReplicas,
    /// `MISCONF`: the server cannot save its data to the disk.
    NotSaved,
    /// `LOADING`, `MASTERDOWN`, `CLUSTERDOWN` or `TRYAGAIN`: the server does not serve the key at the moment.
    Unavailable,
    /// The server lacks what the store needs. PostgreSQL: the migration (42P01, 42883, 3F000), or prepared statements, which a
    /// pooler between loses (26000, 42P05).
    Setup,
    /// The store's hash holds a field that no node wrote. The script removed it.
    ForeignField,
    /// A field of the store's hash that every node needs was overwritten by other software, or the store answers what no store
    /// can mean: more tokens than were asked for, or numbers that cannot be counted with.
    Damaged,
    /// Any other error.
    Other,
}

impl ReplyKind {
    /// All kinds in the order of their numbers, with their names in reports and series.
    const NAMED: [(Self, &'static str); 13] = [
        (Self::OutOfMemory, "out_of_memory"),
        (Self::WrongType, "wrong_type"),
        (Self::NoPermission, "no_permission"),
        (Self::Busy, "busy"),
        (Self::NoScript, "no_script"),
        (Self::ReadOnly, "read_only"),
        (Self::NoReplicas, "no_replicas"),
        (Self::NotSaved, "not_saved"),
        (Self::Unavailable, "unavailable"),
        (Self::Setup, "setup"),
        (Self::ForeignField, "foreign_field"),
        (Self::Damaged, "damaged"),
        (Self::Other, "other"),
    ];

    /// All kinds.
    pub fn all() -> [Self; Self::NAMED.len()] {
        Self::NAMED.map(|(kind, _)| kind)
    }

    /// The name in reports and series.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMED[self as usize].1
    }
}

impl fmt::Display for ReplyKind {
    /// Writes the name of the kind in reports and series.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many error replies of each kind a store's server has sent.
pub(super) type ErrorReplies = [u64; ReplyKind::NAMED.len()];

/// Writes a map from the name of each kind to its count.
#[cfg(feature = "serde")]
pub(super) fn by_name<S: serde::Serializer>(replies: &ErrorReplies, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ReplyKind::NAMED.map(|(kind, name)| (name, replies[kind as usize])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_counter_of_its_own() {
        for (index, kind) in ReplyKind::all().into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
