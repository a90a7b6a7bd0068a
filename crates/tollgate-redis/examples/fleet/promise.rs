//! For how long a store promises tokens to a node, by the rules of docs/distributed.md.

use crate::law::{Law, SECOND};
use crate::report::Lease;

/// The shares of all nodes are the tokens of this time, or of four round trips.
const SHARE: u64 = SECOND / 10;

/// The longest time, in nanoseconds, for which a store with these leases had promised tokens to one of `nodes` nodes at
/// the instant `at`.
///
/// A node asks for its next share a quarter of the share's time before its last token comes, or two round trips before.
/// Then it stands behind at most a share of each other node.
pub(crate) fn longest<'a>(law: &Law, nodes: usize, leases: impl Iterator<Item = &'a Lease> + Clone, at: u64) -> u64 {
    let recent = leases.filter(|lease| (at.saturating_sub(SECOND)..=at).contains(&lease.until));
    let trip = recent.clone().map(|lease| lease.took).max().unwrap_or(0);
    let busy = recent.map(|lease| lease.busy).min().unwrap_or(1).max(1);
    let time = SHARE.max(4 * trip);
    // A share is a token at least.
    let share = (time / busy).max(SECOND.div_ceil(law.rate));
    (time / 4).max(2 * trip) + share * nodes as u64 + trip
}
