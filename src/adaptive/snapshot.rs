//! What an adaptive rate has learned.

use crate::Quota;

/// The state of an adaptive rate, returned by [`Adaptive::snapshot`](super::Adaptive::snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AdaptiveSnapshot {
    /// The learned rate, as the quota that the limiter has.
    pub rate: Quota,
    /// The slowest rate.
    pub slowest: Quota,
    /// The fastest rate.
    pub fastest: Quota,
    /// True while the rate is kept where it is; false while it grows.
    pub is_holding: bool,
    /// The latest change of the rate.
    pub last_change: Option<RateChange>,
    /// How often the rate was raised.
    pub increases: u64,
    /// How often the rate was lowered because a rate that had grown was refused. A refusal at the slowest rate lowers
    /// nothing and counts in `refused` only.
    pub probes_refused: u64,
    /// How often the rate was lowered because a rate that had been accepted was refused. A refusal at the slowest rate
    /// lowers nothing and counts in `refused` only.
    pub falls: u64,
    /// Requests that were accepted.
    pub accepted: u64,
    /// Requests that the server refused.
    pub refused: u64,
}

impl AdaptiveSnapshot {
    /// Returns each reason with the number of changes that it had.
    pub fn changes(&self) -> [(ChangeReason, u64); 3] {
        [
            (ChangeReason::Accepted, self.increases),
            (ChangeReason::ProbeRefused, self.probes_refused),
            (ChangeReason::LimitFell, self.falls),
        ]
    }
}

/// A change of the rate, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RateChange {
    /// The rate before.
    pub from: Quota,
    /// The rate after.
    pub to: Quota,
    /// Why it changed.
    pub reason: ChangeReason,
}

/// Why a rate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ChangeReason {
    /// The server accepted the rate for long enough, so the rate grew.
    Accepted,
    /// The server refused a rate that had grown, so the limit is slightly lower.
    ProbeRefused,
    /// The server refused a rate that it had accepted before: the limit fell, or others use a part of it.
    LimitFell,
}

impl ChangeReason {
    /// Returns the reason as a word, for metrics: `accepted`, `probe_refused` or `limit_fell`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::ProbeRefused => "probe_refused",
            Self::LimitFell => "limit_fell",
        }
    }
}
