//! What the planner is told of the limiter, and what it decides.

use crate::distributed::LeaseRequest;
use crate::distributed::leases::Wait;

/// The next action of the refill task.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum Plan {
    Request(LeaseRequest),
    /// Sleep until this instant, in the limiter's nanoseconds, or until woken.
    Sleep(u64),
}

/// The limiter's state, as the planner needs it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: u64,
    /// When an answer would come to a request that is sent now.
    pub(crate) soon: u64,
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
    /// Whether a joint claim keeps tokens: the store takes them back from a node that it knows only.
    pub(crate) keeps: bool,
    /// Whether to tell the store at once: tokens that have come are kept for no claim, or were promised beyond those that may
    /// be used, so other nodes get them before the bucket fills up without them; or a place is kept for none.
    pub(crate) has_unused: bool,
    /// All promised tokens come during a pause.
    pub(crate) is_paused: bool,
    /// The number of the front claim, if it can use none of the promised tokens: no piece of them completes it.
    pub(crate) useless_to: Option<u64>,
    /// How long waiters have got nothing.
    pub(crate) in_vain_for: u64,
    /// What waiters lack in whole claims, up to about this node's part.
    pub(crate) wanted: Wanted,
    /// With classes: when the first of those that lack tokens asks.
    pub(crate) class_due: Option<u64>,
    /// What the front waiter is known by, if the promised tokens give it no instant at which it passes.
    pub(crate) stuck: Option<u64>,
}

/// The store had no tokens for the claims that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAway {
    /// The first claim that lacked tokens, and how many.
    pub(crate) claim: u64,
    pub(crate) first: u64,
    /// By the answer that came at `since`, the claims before this number have so many tokens no sooner than at this instant.
    pub(crate) before: u64,
    pub(crate) since: u64,
    pub(crate) at: u64,
}

/// What claims that wait lack. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Whole claims.
    pub(crate) want: u64,
    /// The number of the first of them (0 with classes), what it lacks, and how long it has waited. For a joint claim, how
    /// long the node has asked in vain.
    pub(crate) claim: u64,
    pub(crate) first: u64,
    pub(crate) age: u64,
    /// The longest time that any of them still waits.
    pub(crate) useful: u64,
}

impl Wanted {
    /// Adds a claim that lacks so many tokens.
    pub(crate) fn add(&mut self, view: &View, number: u64, lacks: u64, wait: Option<&Wait>) {
        if self.want == 0 {
            let age = wait.map_or(view.in_vain_for, |wait| view.now.saturating_sub(wait.since));
            (self.claim, self.first, self.age) = (number, lacks, age);
        }
        self.useful = self.useful.max(wait.map_or(u64::MAX, |wait| wait.until).saturating_sub(view.now));
        self.want += lacks;
    }

    /// What is not lacked by claims that were counted is debts, or claims that were not looked at. Debts wait for as long as
    /// the node asks in vain: a node that seemed to wait anew with each request would leave all tokens for the others.
    pub(crate) fn or_debts(self, most: u64, in_vain_for: u64) -> Self {
        match self.want {
            0 => Self { want: most, first: most, age: in_vain_for, useful: u64::MAX, ..self },
            want => Self { want: want.max(most), ..self },
        }
    }
}
