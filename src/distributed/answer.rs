//! The answer of a store to a request, and what no store can mean.

use super::{LeaseRequest, QuotaTerms, ReplyKind, Store, StoreError};
use crate::clock::time::wall_micros;
use tokio::time::Instant;

/// No number of an answer is larger: levels, debts and instants are exact in doubles. A store that says too much within
/// this bound, of the tokens promised before for example, is believed: debts may be that large.
const MOST: u64 = 1 << 53;

/// How often a request is sent anew because another period began on its way.
const MOST_PERIODS: u32 = 3;

/// The store's answer to a [`LeaseRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGrant {
    /// The number of the node's previous request known to the store; the number of this request if it is a repeat; 0 if
    /// the store does not know the node. Any other number means that the store has lost its state of this node.
    pub before: u64,
    /// The time since this request was first answered, in microseconds.
    pub age: u64,
    /// Tokens that are available now.
    pub now: u64,
    /// Tokens that will be minted later.
    pub promised: u64,
    /// Tokens promised to other nodes that will be minted before those.
    pub queued_before: u64,
    /// The progress towards the next token, in parts of the period. For a stepped quota, the microseconds since the
    /// period began; for a calendar quota, since it would have begun if all were equally long.
    pub phase: u64,
    /// The time until the tokens of the first claim are there, in microseconds, if none are granted.
    pub wait: u64,
    /// The node's part of the tokens that are there or minted within the horizon.
    pub part: u64,
    /// The node's allowance: how many tokens it may keep unused.
    pub allowance: u64,
    /// The number of nodes known to the store.
    pub nodes: u64,
    /// Tokens that remain in the store.
    pub remaining: u64,
    /// The number of the last of the promised tokens. Each promised token has a number of its own.
    pub last: u64,
    /// For how long the store has kept its state, in microseconds: a store that has lost it begins again at 0.
    pub clock: u64,
    /// The quota of the store, if it is another than that of the request: a newer one. The tokens of this answer are
    /// minted by it: those of a repeated request, or of one that wanted tokens at once. Others get none, and the node
    /// asks anew by this quota.
    pub terms: Option<QuotaTerms>,
    /// What each class of the request gets, in the order of the request.
    pub classes: Vec<ClassGrant>,
}

impl LeaseGrant {
    /// Builds the answer to a request with so many `classes` from the numbers of the script's reply, in their order:
    /// thirteen, four for each class, and those of [terms](QuotaTerms::numbers) if the store has another quota than the
    /// request. `None` if these are no answer.
    pub fn from_numbers(numbers: &[u64], classes: usize) -> Option<Self> {
        let (answer, rest) = numbers.split_first_chunk()?;
        let &[before, age, now, promised, queued_before, phase, wait, part, allowance, nodes, remaining, last, clock] =
            answer;
        let (rows, terms) = rest.split_at_checked(4 * classes)?;
        let terms = if terms.is_empty() { None } else { Some(QuotaTerms::from_numbers(terms)?) };
        let classes =
            rows.chunks_exact(4).map(|row| ClassGrant::from_numbers([row[0], row[1], row[2], row[3]])).collect();
        let tokens = Self { before, age, now, promised, queued_before, phase, ..Self::default() };
        Some(Self { wait, part, allowance, nodes, remaining, last, clock, terms, classes, ..tokens })
    }

    /// Checks that a store can mean this answer to `ask`: its numbers can be counted with, and its tokens were asked
    /// for.
    pub(crate) fn check(&self, ask: &LeaseRequest) -> Result<(), String> {
        let &Self { before, age, now, promised, queued_before, phase, wait, part, allowance, nodes, .. } = self;
        let &Self { remaining, last, clock, terms, .. } = self;
        let numbers =
            [before, age, now, promised, queued_before, phase, wait, part, allowance, nodes, remaining, last, clock];
        let of_classes = self.classes.iter().flat_map(ClassGrant::numbers);
        let mut given = self.classes.iter().zip(&ask.classes).map(|(class, row)| (class.given, row.want));
        let wrong = if numbers.into_iter().chain(of_classes).any(|number| number > MOST) {
            "a number is larger than 2^53"
        } else if promised > 0 && phase >= terms.unwrap_or(ask.terms).period() {
            "the progress towards the next token is a whole period or more"
        } else if promised > last {
            "more tokens are promised than have numbers"
        } else if now + promised > ask.want.saturating_add(ask.ahead) {
            "more tokens than were asked for"
        } else if self.classes.len() != ask.classes.len() || given.any(|(given, want)| given > want) {
            "classes get other tokens than they asked for"
        } else {
            return Ok(());
        };
        Err(format!("{wrong}: {ask:?} gets {self:?}"))
    }
}

/// What a store gives to the claims of one class. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassGrant {
    /// How many of the answer's tokens are for the class.
    pub given: u64,
    /// The time until the tokens of the first claim are there, if none are given.
    pub wait: u64,
    /// When the node asks again, if none are given.
    pub sleep: u64,
    /// The part of the class on this node.
    pub part: u64,
}

impl ClassGrant {
    /// Builds what a class gets from these numbers, in the order of the fields.
    pub fn from_numbers([given, wait, sleep, part]: [u64; 4]) -> Self {
        Self { given, wait, sleep, part }
    }

    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.given, self.wait, self.sleep, self.part]
    }
}

/// A request, its answer, and when it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) ask: LeaseRequest,
    pub(crate) answer: LeaseGrant,
    pub(crate) sent: Instant,
}

/// Sends a request to the store, and counts the answer. The request for a calendar quota says the period that the store's
/// clock is in. An answer that no store can mean is an error, so the request is repeated: the limiter goes on when the store
/// is repaired, and until then nothing of what it says is used.
pub(crate) async fn send(store: &dyn Store, ask: &mut LeaseRequest) -> Result<LeaseGrant, StoreError> {
    // Taken before the request: if the store's code panics, it does so before an answer that would be lost.
    let (tally, began, mut attempts) = (store.tally(), Instant::now(), 0);
    let answer = loop {
        if ask.terms.is_calendar() {
            ask.terms = ask.terms.at(tally.clock());
        }
        let sent = wall_micros();
        match store.ask(ask.clone()).await {
            // A node that goes by the periods of others knows no better one.
            Err(StoreError::OtherPeriod { clock }) if attempts < MOST_PERIODS && ask.terms.ends > 0 => {
                tally.set_clock(clock, sent);
                attempts += 1;
            }
            answer => break answer?,
        }
    };
    match answer.check(ask) {
        Ok(()) => {
            tally.note_answer(store, ask, &answer, began.elapsed());
            Ok(answer)
        }
        Err(message) => {
            tally.count_error_reply(ReplyKind::Damaged);
            Err(StoreError::Reply { kind: ReplyKind::Damaged, message })
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
