//! Error replies of a store's server, by kind.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// statement timeout (57014), class 40.
    Busy,
    /// `NOSCRIPT`: the server had forgotten the script, and it was sent again. This alone is not a failure.
    NoScript,
    /// `READONLY`: the server is a replica. PostgreSQL: 25006.
    ReadOnly,
    /// `LOADING`, `MASTERDOWN`, `CLUSTERDOWN` or `TRYAGAIN`: the server does not serve the key at the moment.
    Unavailable,
    /// The store's hash holds a field that no node wrote. The script removed it.
    ForeignField,
    /// A field of the store's hash that every node needs was overwritten by other software.
    Damaged,
    /// Any other error.
    Other,
}

impl ReplyKind {
    /// All kinds, in the order of their counters.
    const ALL: [Self; 10] = [
        Self::OutOfMemory,
        Self::WrongType,
        Self::NoPermission,
        Self::Busy,
        Self::NoScript,
        Self::ReadOnly,
        Self::Unavailable,
        Self::ForeignField,
        Self::Damaged,
        Self::Other,
    ];

    fn advice(self) -> &'static str {
        match self {
            Self::OutOfMemory => {
                "raise `maxmemory`, or allow eviction of other keys (PostgreSQL: give it more memory or disk)"
            }
            Self::WrongType => "rename the store, or delete the key that holds something else",
            Self::NoPermission => {
                "allow the user EVAL, EVALSHA and the keys `tollgate:*` (PostgreSQL: grant the rights on the table `tollgate`)"
            }
            Self::Busy => {
                "end the running script with SCRIPT KILL (PostgreSQL: end the transaction that locks the store's row)"
            }
            Self::NoScript => "the script is sent again",
            Self::ReadOnly => "point the address to the master",
            Self::Unavailable => "the request is repeated until the server serves the key",
            Self::ForeignField => "the field was removed: find the software that wrote it",
            Self::Damaged => "delete the key, which grants a burst again, and find the software that wrote the field",
            Self::Other => "see the server's documentation",
        }
    }
}

impl fmt::Display for ReplyKind {
    /// Writes the advice for this kind of error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.advice())
    }
}

/// How many error replies of each kind a store's server has sent; from
/// [`StoreSnapshot::error_replies`](super::StoreSnapshot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ErrorReplies {
    /// [`ReplyKind::OutOfMemory`]
    pub out_of_memory: u64,
    /// [`ReplyKind::WrongType`]
    pub wrong_type: u64,
    /// [`ReplyKind::NoPermission`]
    pub no_permission: u64,
    /// [`ReplyKind::Busy`]
    pub busy: u64,
    /// [`ReplyKind::NoScript`]
    pub no_script: u64,
    /// [`ReplyKind::ReadOnly`]
    pub read_only: u64,
    /// [`ReplyKind::Unavailable`]
    pub unavailable: u64,
    /// [`ReplyKind::ForeignField`]
    pub foreign_field: u64,
    /// [`ReplyKind::Damaged`]
    pub damaged: u64,
    /// [`ReplyKind::Other`]
    pub other: u64,
}

impl ErrorReplies {
    /// Each kind's name and count.
    #[cfg(feature = "metrics")]
    pub(crate) fn each(&self) -> [(&'static str, u64); ReplyKind::ALL.len()] {
        let Self { out_of_memory, wrong_type, no_permission, busy, no_script, .. } = *self;
        let Self { read_only, unavailable, foreign_field, damaged, other, .. } = *self;
        [
            ("out_of_memory", out_of_memory),
            ("wrong_type", wrong_type),
            ("no_permission", no_permission),
            ("busy", busy),
            ("no_script", no_script),
            ("read_only", read_only),
            ("unavailable", unavailable),
            ("foreign_field", foreign_field),
            ("damaged", damaged),
            ("other", other),
        ]
    }
}

/// The counters behind [`ErrorReplies`].
#[derive(Debug, Default)]
pub(super) struct ReplyCounts([AtomicU64; ReplyKind::ALL.len()]);

impl ReplyCounts {
    pub(super) fn count(&self, kind: ReplyKind) {
        self.0[kind as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self) -> ErrorReplies {
        let [
            out_of_memory,
            wrong_type,
            no_permission,
            busy,
            no_script,
            read_only,
            unavailable,
            foreign_field,
            damaged,
            other,
        ] = ReplyKind::ALL.map(|kind| self.0[kind as usize].load(Relaxed));
        ErrorReplies {
            out_of_memory,
            wrong_type,
            no_permission,
            busy,
            no_script,
            read_only,
            unavailable,
            foreign_field,
            damaged,
            other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_counter_of_its_own() {
        for (index, kind) in ReplyKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
