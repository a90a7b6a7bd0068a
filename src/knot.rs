//! What ties one claim together that stands in several lines.
//!
//! Each line marks its strand ready when it has come to the front and its tokens are there; the last one to do so
//! commits, and from then on every line grants its strand at sight. Until then a line holds its strand at the front,
//! as it would for the ceiling: nothing is granted in one line and awaited in another.
//!
//! One word carries it, so that "all are ready" and "one of them is not any more" cannot both happen:
//!
//! | word | means | leads to |
//! |---|---|---|
//! | some ready bits | waiting for the others | more or fewer bits, all bits, dead |
//! | all ready bits | committed: granted in every line, at sight | nothing else |
//! | dead | turned away in every line, at sight | nothing else |
//!
//! Whoever commits or kills must have the other lines look: [`Knot::members`], after leaving its own lock.
//!
//! A claim can also wait in one line and, once it is at the front there and ready, send an *envoy* into another (see
//! `shared/roof.rs`): then the second line alone decides, and the first one can only call the envoy back.
//!
//! The instant of the grant is the latest of the instants at which the lines became ready, counted from the moment the
//! claim entered them all. Lines on different clocks have no instants in common: there the grant counts when each of them
//! sees it. The instant of a death is not kept: who learns of it reads the time anew, so only a clock that steps
//! back and forth between the two can let those behind pass as of an earlier time.

use crate::queue::Outcome;
use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DEAD: u64 = 1 << 63;
/// Beside [`DEAD`]: it was turned away in a line that is shared and cannot be reached.
#[cfg(feature = "redis")]
const CUT_OFF: u64 = 1 << 62;

/// The bits of a claim that has an envoy.
#[cfg(feature = "keyed")]
const LED: u64 = 1;
#[cfg(feature = "keyed")]
const ENVOY: u64 = 2;

/// Where some other queue has foretold no instant yet.
pub(crate) const ASIDE: u64 = u64::MAX;

/// How many lines one claim can stand in: one bit each, beside [`DEAD`].
pub(crate) const MOST_LINES: usize = 32;

#[derive(Debug)]
pub(crate) struct Knot {
    word: AtomicU64,
    /// The latest instant at which a line became ready, in nanoseconds since the claim entered.
    ready_at: AtomicU64,
    /// Whether all lines read the same clock.
    one_clock: bool,
    all: u64,
    /// Which queues have foretold an instant: one bit each. A bit is never taken back.
    known: AtomicU64,
    /// The limiters whose queues the claim stands in, by address: claims over the same ones are served in order.
    set: Arc<[usize]>,
    /// One for each limiter of the claim.
    members: Box<[Member]>,
}

/// One limiter of a knot.
#[derive(Debug)]
pub(crate) struct Member {
    /// Must look when the claim is decided, or when another queue foretells another instant.
    shared: Weak<Shared>,
    /// The instant at which this queue expects to have the tokens, in nanoseconds since the claim entered. Means nothing before
    /// the bit in `known` is set.
    foretold: AtomicU64,
}

/// One line's part of a knot.
#[derive(Debug)]
pub(crate) struct Strand {
    pub(crate) knot: Arc<Knot>,
    bit: u64,
    /// When the claim entered, in this line's time; before its beginning, if the clock stepped back.
    entered: i128,
    /// Stands here for a claim that is ready everywhere else: this line alone decides.
    envoy: bool,
}

/// What one caller has heard last, before it read the time: of which claim it is decided, as one of its lines sees it.
#[derive(Debug, Default)]
pub(crate) struct News(Option<(Arc<Knot>, u64)>);

/// What a line does with a strand at its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    /// All lines are ready: grant it.
    Committed,
    /// Others are not ready: hold it at the front.
    Held,
    /// It was given up or turned away elsewhere: turn it away.
    Dead,
}

impl Knot {
    /// A knot over the lines of `members`, of which those in `idle` have nothing to grant and are ready at once.
    pub(crate) fn new(members: Box<[Weak<Shared>]>, idle: impl Iterator<Item = usize>, one_clock: bool) -> Self {
        let all = (1 << members.len()) - 1;
        let word = idle.fold(0, |word, index| word | 1 << index);
        let waits = |(index, _): &(usize, &Weak<Shared>)| word & 1 << index == 0;
        let mut set: Vec<usize> =
            members.iter().enumerate().filter(waits).map(|(_, shared)| shared.as_ptr().addr()).collect();
        set.sort_unstable();
        Self {
            word: AtomicU64::new(word),
            ready_at: AtomicU64::new(0),
            one_clock,
            all,
            known: AtomicU64::new(word),
            set: set.into(),
            members: members.into_iter().map(Member::new).collect(),
        }
    }

    /// The knot of a claim that waits in the line of `led`, where it is ready, and of the envoy it has in another line.
    #[cfg(feature = "keyed")]
    pub(crate) fn of_envoy(led: Weak<Shared>, one_clock: bool) -> Self {
        Self {
            word: AtomicU64::new(LED),
            ready_at: AtomicU64::new(0),
            one_clock,
            all: LED | ENVOY,
            known: AtomicU64::new(0),
            set: Arc::default(),
            members: Box::new([Member::new(led)]),
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Arc<Shared>> {
        self.members.iter().filter_map(|member| member.shared.upgrade())
    }

    /// The limiters whose queues the claim stands in.
    pub(crate) fn set(&self) -> &Arc<[usize]> {
        &self.set
    }

    fn tie(&self) -> Tie {
        let word = self.word.load(Ordering::Acquire);
        if word == self.all {
            Tie::Committed
        } else if word & DEAD != 0 {
            Tie::Dead
        } else {
            Tie::Held
        }
    }

    /// Gives the claim up, unless it is committed.
    pub(crate) fn kill(&self) -> Tie {
        self.change(|_| DEAD)
    }

    /// The same where one line has called the claim out as `outcome`.
    pub(crate) fn kill_as(&self, outcome: Outcome) -> Tie {
        #[cfg(feature = "redis")]
        if outcome == Outcome::Unreachable {
            return self.change(|_| DEAD | CUT_OFF);
        }
        let _ = outcome;
        self.kill()
    }

    /// As what a dead claim is called out that had an envoy: it was the envoy that was turned away.
    pub(crate) fn envoys_fate(&self) -> Outcome {
        #[cfg(feature = "redis")]
        if self.word.load(Ordering::Acquire) & CUT_OFF != 0 {
            return Outcome::Unreachable;
        }
        Outcome::Untied
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> Tie {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == self.all {
                return Tie::Committed;
            }
            if word & DEAD != 0 {
                return Tie::Dead;
            }
            let next = to(word);
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == self.all => return Tie::Committed,
                Ok(_) if next & DEAD != 0 => return Tie::Dead,
                Ok(_) => return Tie::Held,
                Err(now) => word = now,
            }
        }
    }
}

impl Member {
    fn new(shared: Weak<Shared>) -> Self {
        Self { shared, foretold: AtomicU64::new(0) }
    }
}

impl Strand {
    pub(crate) fn new(knot: Arc<Knot>, index: usize, entered: i128) -> Self {
        Self { knot, bit: 1 << index, entered, envoy: false }
    }

    /// The two strands of a [knot of an envoy](Knot::of_envoy): that of the claim, and that of the envoy.
    #[cfg(feature = "keyed")]
    pub(crate) fn pair(knot: Knot, entered: i128, envoy_entered: i128) -> (Self, Self) {
        let knot = Arc::new(knot);
        let led = Self { knot: Arc::clone(&knot), bit: LED, entered, envoy: false };
        (led, Self { knot, bit: ENVOY, entered: envoy_entered, envoy: true })
    }

    pub(crate) fn is_envoy(&self) -> bool {
        self.envoy
    }

    /// This line has been ready to grant its strand since `at`. What it says first counts: later it may only know that
    /// it was ready before it last looked.
    pub(crate) fn ready(&self, at: u64) -> Tie {
        // Only this line sets this bit, under its lock.
        if self.knot.word.load(Ordering::Acquire) & self.bit == 0 {
            // Before the bit, so that whoever sees all bits sees the latest instant.
            self.knot.ready_at.fetch_max(clamp(at as i128 - self.entered), Ordering::AcqRel);
        }
        self.knot.change(|word| word | self.bit)
    }

    /// This line is not, or not any more, ready.
    pub(crate) fn unready(&self) -> Tie {
        self.knot.change(|word| word & !self.bit)
    }

    /// From when on this queue counts the instants that it foretells. Where the clock has stepped back behind the beginning of
    /// this queue's time, that is where its time stands still.
    fn since(&self) -> u64 {
        clamp(self.entered)
    }

    /// What has become of the claim.
    pub(crate) fn tie(&self) -> Tie {
        self.knot.tie()
    }

    /// Whether this queue has marked it [ready](Self::ready).
    pub(crate) fn is_ready(&self) -> bool {
        self.knot.word.load(Ordering::Acquire) & self.bit != 0
    }

    /// What other queues can use of `due`, the instant at which this one expects to have the tokens: on one clock the instant
    /// itself, and else only that it has come.
    pub(crate) fn tellable(&self, due: Option<u64>, now: u64) -> Option<u64> {
        if self.knot.one_clock { due } else { due.filter(|at| *at <= now).map(|_| self.since()) }
    }

    /// Tells the other queues that this one expects to have the tokens at the instant `at`. True if with this all queues have
    /// said so for the first time.
    pub(crate) fn foretell(&self, at: u64) -> bool {
        let member = &self.knot.members[self.bit.trailing_zeros() as usize];
        member.foretold.store(at.saturating_sub(self.since()), Ordering::Release);
        // After the instant, so that the queue that finds the bit finds the instant too. One word for all queues, so that one
        // of them finds all bits, however they race.
        let known = self.knot.known.fetch_or(self.bit, Ordering::AcqRel);
        known != self.knot.all && known | self.bit == self.knot.all
    }

    /// The instant that this queue has told the others, if it has.
    pub(crate) fn foretold(&self) -> Option<u64> {
        let is_known = self.knot.known.load(Ordering::Acquire) & self.bit != 0;
        let member = &self.knot.members[self.bit.trailing_zeros() as usize];
        is_known.then(|| self.since().saturating_add(member.foretold.load(Ordering::Acquire)))
    }

    /// The latest of the instants that the other queues have told, in this queue's time; `None` while one of them has told none.
    pub(crate) fn others(&self) -> Option<u64> {
        if self.knot.known.load(Ordering::Acquire) | self.bit != self.knot.all {
            return None;
        }
        let own = self.bit.trailing_zeros() as usize;
        let others = self.knot.members.iter().enumerate().filter(|(index, _)| *index != own);
        let latest = others.map(|(_, member)| member.foretold.load(Ordering::Acquire)).max().unwrap_or(0);
        Some(self.since().saturating_add(latest))
    }

    /// When all other queues expect to have the tokens, or [`ASIDE`]. `None` while this queue has told nothing.
    pub(crate) fn meets(&self) -> Option<u64> {
        self.foretold().map(|_| self.others().unwrap_or(ASIDE))
    }

    /// The instant at which all lines were ready, in this line's time.
    pub(crate) fn committed_at(&self, now: u64) -> u64 {
        let ready_at = self.knot.ready_at.load(Ordering::Acquire);
        if self.knot.one_clock { clamp(self.entered + ready_at as i128) } else { now }
    }

    /// True if the caller who has `heard` so much sees only now what became of the claim in this line: it must read the
    /// time again then, since the reading it has may be older than the decision. That others have done so is no help.
    pub(crate) fn is_news(&self, heard: &mut News) -> bool {
        let is_known = heard.0.as_ref().is_some_and(|(knot, bit)| Arc::ptr_eq(knot, &self.knot) && *bit == self.bit);
        if !is_known {
            heard.0 = Some((Arc::clone(&self.knot), self.bit));
        }
        !is_known
    }
}

fn clamp(nanos: i128) -> u64 {
    nanos.clamp(0, u64::MAX as i128) as u64
}
