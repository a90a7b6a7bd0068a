//! The bound that keeps a request from its tokens.

use crate::name::{Name, QuotaNames};

/// The number of the quota with the index 0.
const FIRST_QUOTA: u64 = 9;

/// The bound that keeps a request from its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The quota with this index, in the order in which they were added to the builder.
    Quota(usize),
    /// The cap on tokens in flight.
    InFlight,
    /// The largest cost that [`max_cost`](crate::Builder::max_cost) allows.
    MaxCost,
    /// A pause.
    Pause,
    /// Other callers are waiting, and no caller overtakes them.
    Queue,
    /// The ceiling of the class, or of a class around it.
    Ceiling,
    /// A quota or a ceiling of the parent of a keyed limiter, which limits all keys together.
    Parent,
    /// The cap on tokens in flight of the parent of a keyed limiter.
    ParentInFlight,
    /// A pause of the parent of a keyed limiter.
    ParentPause,
    /// The queue of the parent of a keyed limiter: other callers are waiting there.
    ParentQueue,
}

impl Bound {
    /// Returns true if the bound belongs to the parent of a keyed limiter.
    pub const fn is_parent(self) -> bool {
        matches!(self, Self::Parent | Self::ParentInFlight | Self::ParentPause | Self::ParentQueue)
    }

    /// How a child reports this bound of its parent.
    pub(crate) fn of_parent(self) -> Self {
        match self {
            Self::InFlight => Self::ParentInFlight,
            Self::Pause => Self::ParentPause,
            Self::Queue => Self::ParentQueue,
            Self::Quota(_) | Self::Ceiling | Self::MaxCost => Self::Parent,
            Self::Parent | Self::ParentInFlight | Self::ParentPause | Self::ParentQueue => self,
        }
    }

    /// A number that stands for this bound. It is below 2^31: a limiter with 2^31 quotas does not fit into memory.
    pub(crate) fn to_number(self) -> u64 {
        match self {
            Self::InFlight => 0,
            Self::Pause => 1,
            Self::Queue => 2,
            Self::Parent => 3,
            Self::Ceiling => 4,
            Self::ParentInFlight => 5,
            Self::ParentPause => 6,
            Self::ParentQueue => 7,
            Self::MaxCost => 8,
            Self::Quota(index) => FIRST_QUOTA + index as u64,
        }
    }

    /// The bound with this [number](Self::to_number).
    pub(crate) fn from_number(number: u64) -> Self {
        match number {
            0 => Self::InFlight,
            1 => Self::Pause,
            2 => Self::Queue,
            3 => Self::Parent,
            4 => Self::Ceiling,
            5 => Self::ParentInFlight,
            6 => Self::ParentPause,
            7 => Self::ParentQueue,
            8 => Self::MaxCost,
            _ => Self::Quota((number - FIRST_QUOTA) as usize),
        }
    }

    /// The name of the quota that this bound is, if it is a quota with a name.
    pub(crate) fn name(self, names: &QuotaNames) -> Name {
        let Self::Quota(index) = self else { return Name::NONE };
        names.get(index).and_then(Option::as_ref).map_or(Name::NONE, |name| name.1)
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quota(index) => write!(f, "quota {index}"),
            Self::InFlight => f.write_str("the in-flight cap"),
            Self::MaxCost => f.write_str("`max_cost`"),
            Self::Pause => f.write_str("a pause"),
            Self::Queue => f.write_str("the queue of waiters"),
            Self::Ceiling => f.write_str("the ceiling of the class"),
            Self::Parent => f.write_str("the parent limiter"),
            Self::ParentInFlight => f.write_str("the in-flight cap of the parent limiter"),
            Self::ParentPause => f.write_str("a pause of the parent limiter"),
            Self::ParentQueue => f.write_str("the queue of the parent limiter"),
        }
    }
}
