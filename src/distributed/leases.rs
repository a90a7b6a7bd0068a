//! What the shared line has promised to this node: tokens, and the instants at which they are minted. Pure: no lock, no
//! clock, no network.
//!
//! **What this file guarantees:** no token is minted before its instant, pieces are minted in the order in which they
//! were promised, and each token once: here, or not at all. What comes while there is no room for it is `spare`: tokens that
//! are given back.

use super::{Feed, Terms};
use crate::Quota;
use crate::core::schedule::{gcd, mul_div, wait_for};
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    list: VecDeque<Lease>,
    /// Tokens that came and found no room.
    spare: u64,
    /// From this instant on only so many may be kept unused: the line may have given the place to others.
    until: u64,
    after: u64,
    /// What the node knows of its line.
    pub(crate) feed: Option<Box<Feed>>,
}

impl Clone for Leases {
    /// To run ahead in: without the feed, which belongs to the limiter.
    fn clone(&self) -> Self {
        let &Self { ref list, spare, until, after, .. } = self;
        Self { list: list.clone(), spare, until, after, feed: None }
    }
}

/// So many tokens, at these instants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// From when on `pace` counts, in the limiter's nanoseconds.
    at: u64,
    pace: Pace,
    /// Tokens of that pace that are others'.
    behind: u64,
    tokens: u64,
    /// How many of them were minted, or spared.
    taken: u64,
    /// Not promised by anybody: what this node allows itself while the line is out of reach.
    own: bool,
    /// Nobody else's tokens are minted between those of the lease before and these.
    goes_on: bool,
}

/// How fast tokens come. Periods in nanoseconds; `part` is how much of the first one, or of the first token, had passed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    AtOnce,
    Evenly { amount: u64, period: u64, part: u64 },
    InSteps { amount: u64, period: u64, part: u64 },
}

impl Pace {
    /// That of a line, where `part` had passed.
    pub(crate) fn of(terms: &Terms, part: u64) -> Self {
        let (amount, period, part) = (terms.amount, terms.period * 1_000, part * 1_000);
        if terms.stepped { Self::InSteps { amount, period, part } } else { Self::Evenly { amount, period, part } }
    }
}

impl Lease {
    pub(crate) fn new(at: u64, pace: Pace, behind: u64, tokens: u64) -> Self {
        Self { at, pace, behind, tokens, taken: 0, own: false, goes_on: false }
    }

    /// Says whether it is one piece with the lease before.
    pub(crate) fn going_on(self, goes_on: bool) -> Self {
        Self { goes_on, ..self }
    }

    /// Of what came by `now` only so many: nobody counts on the rest.
    pub(crate) fn without_stale(self, now: u64, kept: u64) -> Self {
        Self { taken: self.taken + self.due_by(now).saturating_sub(kept), ..self }
    }

    /// What a node allows itself from `at` on, by a checked quota.
    pub(crate) fn of_our_own(at: u64, quota: &Quota) -> Self {
        let (amount, period) = (quota.amount(), quota.period_nanos());
        let common = gcd(amount, period);
        let pace = if quota.is_stepped() {
            Pace::InSteps { amount, period, part: 0 }
        } else {
            Pace::Evenly { amount: amount / common, period: period / common, part: 0 }
        };
        Self { own: true, ..Self::new(at, pace, 0, 1 << 61) }
    }

    fn left(&self) -> u64 {
        self.tokens - self.taken
    }

    /// How many of the tokens that are left have come by `now`.
    fn due_by(&self, now: u64) -> u64 {
        let Some(elapsed) = now.checked_sub(self.at) else { return 0 };
        let minted = match self.pace {
            Pace::AtOnce => u64::MAX,
            Pace::Evenly { amount, period, part } => mul_div(elapsed, amount, part, period).0,
            Pace::InSteps { amount, period, part } => (elapsed.saturating_add(part) / period).saturating_mul(amount),
        };
        minted.saturating_sub(self.behind).min(self.tokens).saturating_sub(self.taken)
    }

    /// When the `nth` of the tokens that are left comes; `None` if that is beyond the end of time.
    pub(crate) fn instant(&self, nth: u64) -> Option<u64> {
        let count = self.behind.checked_add(self.taken)?.checked_add(nth)?;
        match self.pace {
            Pace::AtOnce => Some(self.at),
            Pace::Evenly { amount, period, part } => self.at.checked_add(wait_for(count, period, part, amount)?),
            Pace::InSteps { amount, period, part } => {
                self.at.checked_add(count.div_ceil(amount).checked_mul(period)?.saturating_sub(part))
            }
        }
    }
}

impl Leases {
    pub(crate) fn push(&mut self, lease: Lease) {
        if lease.tokens > 0 {
            self.list.push_back(lease);
        }
    }

    /// Tokens that were promised and are not minted yet.
    pub(crate) fn promised(&self) -> u64 {
        self.list.iter().filter(|lease| !lease.own).map(Lease::left).sum()
    }

    /// When the last of them comes.
    pub(crate) fn ends(&self) -> Option<u64> {
        let last = self.list.iter().rev().find(|lease| !lease.own)?;
        last.instant(last.left())
    }

    pub(crate) fn keep_until(&mut self, until: u64, after: u64) {
        (self.until, self.after) = (until, after);
    }

    /// How many of `burst` tokens may be kept unused at `now`.
    pub(crate) fn kept(&self, burst: u64, now: u64) -> u64 {
        if now < self.until { burst } else { burst.min(self.after) }
    }

    /// Mints what has come by `now`, and says how much that was: as far as there is `room`, and up to what the front claim
    /// `lacks` if it was promised that in one piece. (What it saves up in several pieces would come on top of what others
    /// save up between them.) What came before `now` and finds no room is spare; what comes in this very nanosecond waits
    /// until the next one, for whoever is next in line, unless the front claim has no use for it.
    pub(crate) fn mint(&mut self, now: u64, room: u64, lacks: u64) -> u64 {
        let (mut minted, mut spare) = (0, 0);
        loop {
            let (end, tokens) = self.piece(0);
            let Some(first) = self.list.front() else { break };
            let is_own = first.own;
            let is_whole = tokens >= lacks.saturating_sub(minted);
            let most = if is_whole { room.max(lacks) } else { room };
            let gone_by = if is_whole { now.checked_sub(1) } else { Some(now) };
            let fits = self.due_by(0..end, now).min(most.saturating_sub(minted));
            let before = gone_by.map_or(0, |then| self.due_by(0..end, then));
            let lost = before.saturating_sub(fits);
            minted += fits;
            if !is_own {
                spare += lost;
            }
            self.take(end, now, fits + lost);
            if fits + lost < tokens {
                break;
            }
        }
        self.spare(spare);
        minted
    }

    /// Takes so many of the tokens that have come by `now` from the first piece, which ends at `end`.
    fn take(&mut self, end: usize, now: u64, mut tokens: u64) {
        for lease in self.list.range_mut(..end) {
            let taken = lease.due_by(now).min(tokens);
            lease.taken += taken;
            tokens -= taken;
        }
        while self.list.front().is_some_and(|lease| lease.left() == 0) {
            self.list.pop_front();
        }
    }

    /// How many tokens of these leases have come by `now`.
    fn due_by(&self, leases: Range<usize>, now: u64) -> u64 {
        self.list.range(leases).map(|lease| lease.due_by(now)).sum()
    }

    /// When so many tokens of these leases have come, which are one piece and have as many.
    ///
    /// One lease mostly begins where the one before ends. But once other nodes give tokens back, the line is ahead of what it
    /// has promised, and the next lease begins earlier: then tokens of both come side by side, and none may be left behind
    /// for the sake of their order.
    fn come_by(&self, leases: Range<usize>, tokens: u64) -> Option<u64> {
        let (mut need, mut at, mut is_side_by_side) = (tokens, 0, false);
        for lease in self.list.range(leases.clone()).filter(|lease| lease.left() > 0) {
            is_side_by_side |= lease.instant(1)? < at;
            let nth = need.min(lease.left());
            if nth > 0 {
                at = at.max(lease.instant(nth)?);
                need -= nth;
            }
        }
        if !is_side_by_side {
            return Some(at);
        }
        let (mut early, mut late) = (0, at);
        while early < late {
            let middle = early + (late - early) / 2;
            if self.due_by(leases.clone(), middle) >= tokens { late = middle } else { early = middle + 1 }
        }
        Some(late)
    }

    /// The instant at which `need` more tokens are minted, if nothing limits it; `None` if so many were not promised.
    pub(crate) fn reached(&self, need: u64) -> Option<u64> {
        self.passes(need, u64::MAX)
    }

    /// The same for the front claim, for which no more than `room` is kept of what comes in other pieces.
    pub(crate) fn passes(&self, need: u64, room: u64) -> Option<u64> {
        let (mut first, mut need, mut room, mut at) = (0, need, room, 0);
        while first < self.list.len() {
            let (end, tokens) = self.piece(first);
            at = at.max(self.come_by(first..end, tokens.min(need))?);
            if tokens >= need {
                return Some(at);
            }
            let kept = tokens.min(room);
            (first, need, room) = (end, need - kept, room - kept);
        }
        None
    }

    /// How many tokens are left in the pieces in which they were promised, one after the other.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = u64> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let (end, tokens) = self.piece(first);
            (end > std::mem::replace(&mut first, end)).then_some(tokens)
        })
    }

    /// Where the piece ends that begins with the lease of this index, and how many tokens are left in it.
    fn piece(&self, first: usize) -> (usize, u64) {
        let Some(lease) = self.list.get(first) else { return (first, 0) };
        let rest = self.list.range(first + 1..).take_while(|lease| lease.goes_on);
        rest.fold((first + 1, lease.left()), |(end, tokens), lease| (end + 1, tokens + lease.left()))
    }

    /// `tokens` were minted and cannot be kept. Somebody may have counted on them: the keeper is to look.
    pub(crate) fn spare(&mut self, tokens: u64) {
        if tokens > 0 {
            self.spare += tokens;
            self.feed.iter_mut().for_each(|feed| feed.call());
        }
    }

    pub(crate) fn take_spares(&mut self) -> u64 {
        std::mem::take(&mut self.spare)
    }

    /// What was promised is to be given back: it is spare from now on.
    pub(crate) fn give_up(&mut self) {
        self.spare += self.promised();
        self.list.retain(|lease| lease.own);
    }

    /// What was promised is void, and what is spare is nobody's.
    pub(crate) fn forget(&mut self) {
        self.list.retain(|lease| lease.own);
        self.spare = 0;
    }

    /// Ends what this node allowed itself.
    pub(crate) fn end_own(&mut self) {
        self.list.retain(|lease| !lease.own);
    }
}
