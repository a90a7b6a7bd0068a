//! What the planner is told of the limiter, and what it decides.

use crate::distributed::LeaseRequest;

/// The next action of the refill task.
#[derive(Debug)]
pub(crate) enum Plan {
    Request(LeaseRequest),
    /// Sleep until this instant, in the limiter's nanoseconds, or until woken.
    Sleep(u64),
}

/// The limiter's state, as the planner needs it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: u64,
    /// All tokens that were ever claimed.
    pub(crate) total: u64,
    /// Tokens that are claimed and neither minted nor promised.
    pub(crate) lack: u64,
    /// Tokens that are minted or promised and not claimed.
    pub(crate) banked: u64,
    /// The position beyond which no tokens are promised.
    pub(crate) covered: u64,
    /// The instant at which the last promised token comes.
    pub(crate) ends: Option<u64>,
    /// No waiter passes before this instant.
    pub(crate) gate: u64,
    pub(crate) is_waiting: bool,
    /// What the front waiter is known by, if the promised tokens give it no instant at which it passes.
    pub(crate) stuck: Option<u64>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Tokens of claims that wait.
    pub(super) want: u64,
    /// Tokens to be kept unused: those to be requested, and all.
    pub(super) ahead: u64,
    pub(super) bank: u64,
}
