//! The parts of joint claims that wait in one queue, kept apart from the list of waiters.
//!
//! A part has no position in the line of tokens: it stands between the waiters that were there when it came and those that
//! came later, and takes its tokens from in front of the latter when it is granted. So whether a later waiter passes it changes
//! no ticket, however many parts it passes.
//!
//! Parts of claims over the same limiters are served in order, so only the first of them matters: a *head*. How many wait behind
//! the heads costs nothing but memory.

use super::Outcome;
use crate::knot::Strand;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

/// What one limiter grants of a joint claim.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) waker: Waker,
    pub(crate) cost: u64,
    /// The tail when it came: waiters that begin before it are ahead of it.
    pub(crate) at: u64,
    pub(crate) strand: Strand,
}

/// A head that later claims must not delay, as of the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    pub(crate) number: u64,
    pub(crate) cost: u64,
    /// What earlier heads claim that it may not pass.
    pub(crate) before: u64,
    /// When it has its tokens here, if no other claim passes it.
    pub(crate) due: Option<u64>,
    /// When all other queues expect to have its tokens. `None`: not known, and no claim passes it here.
    pub(crate) meets: Option<u64>,
    /// Since when its tokens are here, and no one else's.
    pub(crate) ready: Option<u64>,
}

/// By number, which is given in order of arrival. Claims enter all their queues under all locks: two of them have the same order
/// wherever they meet.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    heads: BTreeMap<u64, Part>,
    /// Those behind each head, by the limiters of their claims.
    behind: BTreeMap<Arc<[usize]>, BTreeMap<u64, Part>>,
    /// Called out, and not looked at by their callers.
    called: BTreeMap<u64, Outcome>,
    next: u64,
    tokens: u64,
    /// The instant of the next look, as of the last one.
    pub(crate) alarm: u64,
    /// What is minted while they are looked at goes to the one that holds the others up, as of the instant it became ready.
    pub(crate) stays: bool,
    /// Reused by each look.
    pub(crate) stands: Vec<Stand>,
}

impl Parts {
    pub(super) fn push(&mut self, part: Part) -> u64 {
        let number = self.next;
        self.next += 1;
        self.tokens += part.cost;
        let set = Arc::clone(part.strand.knot.set());
        match self.behind.get_mut(&set) {
            Some(behind) => drop(behind.insert(number, part)),
            None => {
                self.behind.insert(set, BTreeMap::new());
                self.heads.insert(number, part);
            }
        }
        number
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = (u64, &Part)> {
        self.heads.iter().map(|(number, part)| (*number, part))
    }

    pub(crate) fn head(&self, number: u64) -> Option<&Part> {
        self.heads.get(&number)
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Takes a part out that waits, of a claim over the limiters of `set`; the next one of that set becomes a head.
    pub(super) fn remove(&mut self, number: u64, set: &[usize]) -> Option<Part> {
        let behind = self.behind.get_mut(set)?;
        let part = match self.heads.remove(&number) {
            Some(part) => {
                match behind.pop_first() {
                    Some((next, part)) => drop(self.heads.insert(next, part)),
                    None => drop(self.behind.remove(set)),
                }
                part
            }
            None => behind.remove(&number)?,
        };
        self.tokens -= part.cost;
        Some(part)
    }

    pub(super) fn call(&mut self, number: u64, outcome: Outcome) {
        self.called.insert(number, outcome);
    }

    pub(crate) fn take_outcome(&mut self, number: u64) -> Option<Outcome> {
        self.called.remove(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64, set: &[usize]) -> Option<&mut Part> {
        match self.heads.get_mut(&number) {
            Some(part) => Some(part),
            None => self.behind.get_mut(set)?.get_mut(&number),
        }
    }

    pub(super) fn wakers(&mut self) -> impl Iterator<Item = &mut Waker> {
        let behind = self.behind.values_mut().flat_map(BTreeMap::values_mut);
        self.heads.values_mut().chain(behind).map(|part| &mut part.waker)
    }
}
