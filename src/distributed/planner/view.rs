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
    /// Tokens that are promised and have not come.
    pub(crate) promised: u64,
    /// The instant at which the last promised token comes.
    pub(crate) ends: Option<u64>,
    /// No waiter passes before this instant.
    pub(crate) gate: u64,
    pub(crate) is_waiting: bool,
    /// Promised tokens that came since the last request and found neither a claim nor space.
    pub(crate) lost: u64,
    /// The ticket of the front waiter, if the promised tokens give it no instant at which it passes.
    pub(crate) stuck: Option<u64>,
}

/// What claims lack that wait, in whole claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The tokens, up to about a share.
    pub(crate) want: u64,
    /// The largest cost of the claims that wait, as far as they were looked at.
    pub(crate) largest: u64,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Tokens of claims that wait.
    pub(super) want: u64,
    /// The most tokens of callers to come.
    pub(super) soon: u64,
    /// The largest cost of the claims that wait.
    pub(super) largest: u64,
    /// Tokens to be kept unused: those to be requested, and all.
    pub(super) ahead: u64,
    pub(super) bank: u64,
}
