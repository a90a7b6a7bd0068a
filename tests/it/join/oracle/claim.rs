//! The state of one claim, in all its queues.

use super::QUEUES;

/// A claim: its cost in each queue, and its state.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) costs: [u64; QUEUES],
    pub(crate) granted_at: Option<u64>,
    pub(super) committed_at: Option<u64>,
    /// The queues in the order in which the caller named them.
    pub(super) order: [usize; QUEUES],
    pub(super) arrived: [bool; QUEUES],
    pub(super) ready: [bool; QUEUES],
    pub(super) due_instants: [Option<u64>; QUEUES],
    pub(super) is_dead: bool,
}

impl Claim {
    pub(super) fn joint_due(&self) -> Option<u64> {
        self.due_instants.iter().copied().reduce(latest).flatten()
    }

    pub(super) fn others(&self, queue: usize) -> Option<u64> {
        let others = self.due_instants.iter().enumerate().filter(|(index, _)| *index != queue).map(|(_, due)| *due);
        others.reduce(latest).flatten()
    }

    pub(super) fn is_committed(&self) -> bool {
        self.ready.iter().all(|ready| *ready)
    }
}

/// The later one; `None` means never.
fn latest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.max(other?))
}
