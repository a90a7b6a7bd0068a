//! Supply meets line, under the lock: serving. Claims that come are in `state/asking.rs`, what else changes the state in
//! `state/changing.rs`, and what it looks like in `state/looking.rs`.
//!
//! The lock is `Shared::state`; every method here runs with it held and touches no waker beyond moving it. Time comes
//! in as a number that was read before the lock.

mod asking;
mod changing;
mod joint;
#[cfg(feature = "redis")]
mod leasing;
mod looking;
#[cfg(feature = "keyed")]
mod roofed;

pub(crate) use asking::Arrival;

use crate::drivers::Drivers;
use crate::knot::{News, Tie};
use crate::queue::{Line, Outcome, Waiter};
use crate::rovers::{Rovers, ahead, earlier, later};
use crate::stride::Stride;
use crate::supply::Supply;
use crate::wakes::{Landed, Wakes};
use joint::Turn;
use std::sync::Arc;
use tokio::runtime::Handle;
#[cfg(feature = "keyed")]
use {crate::shared::Tenant, std::sync::Weak};

/// The largest claim. Sixteen thousand of them, waiting or cancelled, fit between the rovers.
pub(crate) const MOST_COST: u64 = 1 << 48;
/// How far claims may overrun the tokens, so that wrapping differences stay far from overflowing.
const MOST_SPAN: i64 = 1 << 62;

/// The tail and the time, read in this order before the lock is taken: every claim up to `tail` was made by `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) tail: u64,
    pub(crate) now: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The line is served up to now.
    Done,
    /// Leave the lock, wake, read the time anew, and go on: there is no room for more wakers, or another line has decided
    /// about the front, at an instant that the time read before may not have reached.
    Again,
}

/// How far a line is brought whose front is ready and held by another line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To now, as every line: for whoever acts on the state.
    Now,
    /// To the instant at which it was ready, so that the grant can still have its own instant, and what is minted after
    /// that is not cut at the burst: for whoever only looks, or joins the end.
    Held,
}

enum Served {
    All,
    /// The front is held by another line, and nothing was minted past the instant at which it was ready.
    Held,
    Again,
}

enum Verdict {
    /// As of this instant.
    Grant(u64),
    TurnAway(Outcome),
    /// Ready since this instant, but another line is not.
    Held(u64),
    /// Another line has just decided.
    Again,
    Wait,
    /// Not ready any more: the envoy has been called back.
    CalledBack,
}

/// In this order what is asked for each time somebody waits or is served lies next to the lock, down to the supply and how its
/// quota moves: of one line in a hundred thousand nothing is in any cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) line: Line,
    /// What [`due`](Self::due) said when the lock was left last; 0 if it was left in the middle.
    last_due: u64,
    /// The time that was read by whoever served the line last, and somebody waited.
    last_served: u64,
    pub(crate) max_waiting: usize,
    pub(crate) closed: bool,
    /// Since the lock was taken nothing was done but to deny: what is kept of that holds beyond the next publishing.
    denied: bool,
    /// Nothing is granted here alone: a roof must grant it too.
    #[cfg(feature = "keyed")]
    pub(crate) roofed: bool,
    /// The envoy in the roof's line may be nobody's any more.
    #[cfg(feature = "keyed")]
    recall: bool,
    /// Which of a keyed map's changes of quotas this line has come to know.
    #[cfg(feature = "keyed")]
    pub(crate) edition: u32,
    pub(crate) cap: Option<Cap>,
    pub(crate) drivers: Drivers,
    pub(crate) supply: Supply,
    pub(crate) stride: Stride,
    pub(crate) totals: Totals,
    rare: Option<Box<Rare>>,
}

/// What most limiters never need.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Of the quotas; none if none has one.
    pub(crate) names: Box<[Option<Arc<str>>]>,
    /// A copy of the supply in which `foretell` runs ahead; made when first needed, then reused.
    scratch: Option<Supply>,
    /// Who is to close when this limiter does: keyed limiters under it.
    #[cfg(feature = "keyed")]
    pub(crate) tenants: Vec<Weak<dyn Tenant>>,
}

/// The in-flight cap; its position is `Supply::ceiling`.
#[derive(Debug)]
pub(crate) struct Cap {
    pub(crate) tokens: u64,
    /// What was read of `Rovers::released` last.
    pub(crate) seen: u64,
    /// True while releases report to us: whenever somebody waits.
    pub(crate) watching: bool,
}

impl Cap {
    /// The word that counts releases, while there is nothing new in it.
    fn word(&self) -> u64 {
        self.seen | u64::from(self.watching)
    }
}

/// What no rover tells.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Where the rovers began.
    pub(crate) origin: u64,
    /// Positions the tail passed without anybody being granted them: cancelled and retracted.
    pub(crate) skipped: u64,
    /// Of these, cancelled claims that still lie behind a waiter.
    pub(crate) holes: u64,
    pub(crate) refunded: u64,
    pub(crate) refused: u64,
    /// The longest time, in nanoseconds, between an instant the schedule gave and its delivery.
    pub(crate) lateness: u64,
}

impl State {
    pub(crate) fn new(supply: Supply, cap: Option<u64>, origin: u64) -> Self {
        Self {
            line: Line::new(),
            last_due: u64::MAX,
            last_served: 0,
            max_waiting: usize::MAX,
            closed: false,
            denied: false,
            #[cfg(feature = "keyed")]
            roofed: false,
            #[cfg(feature = "keyed")]
            recall: false,
            #[cfg(feature = "keyed")]
            edition: 0,
            cap: cap.map(|tokens| Cap { tokens, seen: 0, watching: false }),
            drivers: Drivers::default(),
            supply,
            stride: Stride::new(origin),
            totals: Totals { origin, ..Totals::default() },
            rare: None,
        }
    }

    /// Whether those who wait on `host` can rely on others to serve them.
    pub(crate) fn serves(&self, host: &Handle) -> bool {
        self.drivers.serve(host) && !self.is_unkept()
    }

    /// Whether one of the quotas is shared, and nobody asks for it any more.
    pub(crate) fn is_unkept(&self) -> bool {
        #[cfg(feature = "redis")]
        return self.supply.feed().is_some_and(|feed| feed.vacant.is_some());
        #[cfg(not(feature = "redis"))]
        false
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Brings everything up to `now`. To be called before acting on the state.
    pub(crate) fn settle(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> Progress {
        loop {
            match self.serve(rovers, now, reach, wakes) {
                Served::Again => return self.leave_unfinished(rovers),
                // Releases are for those who advance to now: they make it theirs.
                Served::Held => return Progress::Done,
                Served::All => {}
            }
            // The releases we read count from now on, not from when they were made: what they let through would
            // otherwise be granted in a past in which the ceiling was closed.
            match self.refresh_ceiling(rovers, &mut wakes.landed) {
                Some(0) => return Progress::Done,
                Some(_) => {}
                None => return self.leave_unfinished(rovers),
            }
        }
    }

    /// After acting: serves the line again, publishes, and rouses the drivers whose alarms are too late.
    pub(crate) fn finish(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Progress {
        let watching = self.cap.as_ref().is_some_and(|cap| cap.watching);
        if self.line.is_empty() && !watching {
            // The common case: nobody to serve, no alarm to set.
            self.supply.mint(now, None);
            #[cfg(feature = "redis")]
            if !self.feed_keeper(rovers, wakes) {
                return self.leave_unfinished(rovers);
            }
            self.publish(rovers);
            if self.last_due == u64::MAX {
                return Progress::Done;
            }
            return self.set_alarms(rovers, now, wakes);
        }
        self.last_served = now;
        if self.settle(rovers, now, Reach::Held, wakes) == Progress::Again {
            return Progress::Again;
        }
        #[cfg(feature = "redis")]
        if !self.feed_keeper(rovers, wakes) {
            return self.leave_unfinished(rovers);
        }
        self.publish(rovers);
        self.set_alarms(rovers, now, wakes)
    }

    fn set_alarms(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Progress {
        let due = self.due();
        self.last_due = due;
        if self.drivers.rouse(due, now, wakes) { Progress::Done } else { self.leave_unfinished(rovers) }
    }

    /// The lock is about to be left in the middle: what was worked out before need not be so any more.
    fn leave_unfinished(&mut self, rovers: &Rovers) -> Progress {
        self.last_due = 0;
        self.forget_denial(rovers);
        Progress::Again
    }

    /// Whatever was denied last, the answer may be another one now.
    fn forget_denial(&mut self, rovers: &Rovers) {
        self.denied = false;
        rovers.last_denial().forget();
    }

    /// Serves the line in virtual time: each waiter at the very instant the schedule gives it.
    fn serve(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> Served {
        let mut now = now;
        while !self.line.is_empty() {
            now = now.max(self.supply.synced());
            if self.line.parts().is_some() {
                match self.serve_parts(rovers, now, wakes) {
                    Turn::Pass => {}
                    Turn::Served => continue,
                    Turn::Again => return Served::Again,
                    Turn::Hold { ticket, since } => {
                        let is_held = since.is_some() && reach == Reach::Held;
                        self.supply.mint(if is_held { since.unwrap_or(now) } else { now }, Some(ticket));
                        return if is_held { Served::Held } else { Served::All };
                    }
                }
            }
            let Some(front) = self.line.front() else { break };
            let ticket = front.ticket;
            let verdict = self.verdict(front, now, &mut wakes.heard);
            match verdict {
                Verdict::Held(since) if reach == Reach::Held => {
                    self.supply.mint(since, Some(ticket));
                    return Served::Held;
                }
                Verdict::Held(_) | Verdict::Wait => {
                    self.supply.mint(now, Some(ticket));
                    #[cfg(feature = "redis")]
                    if matches!(verdict, Verdict::Wait) {
                        self.supply.shed(ticket);
                    }
                    return Served::All;
                }
                Verdict::Again => return Served::Again,
                Verdict::CalledBack => {
                    self.line.untie_front();
                    self.recall_envoy();
                }
                _ if wakes.is_full() => return Served::Again,
                #[cfg(feature = "redis")]
                Verdict::Grant(at) if front.strand.is_none() && self.supply.is_stale(ticket, at) => {
                    self.supply.mint(at, Some(ticket));
                    self.supply.shed(ticket);
                }
                // Its lease ran out meanwhile, and with it what was kept.
                #[cfg(feature = "redis")]
                Verdict::Grant(at) if front.strand.is_none() && self.supply.falls_short(ticket, at) => {}
                Verdict::Grant(at) => {
                    self.supply.mint(at, Some(ticket));
                    self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
                    self.call_front(rovers, Outcome::Granted { remaining: self.left_behind(ticket) }, wakes);
                }
                Verdict::TurnAway(outcome) => {
                    self.supply.mint(now, Some(ticket));
                    self.call_front(rovers, outcome, wakes);
                }
            }
        }
        self.supply.mint(now.max(self.supply.synced()), None);
        Served::All
    }

    /// What becomes of the front waiter by `now`.
    fn verdict(&self, front: &Waiter, now: u64, heard: &mut News) -> Verdict {
        if self.closed && !self.is_granted_above(front) {
            return Verdict::TurnAway(Outcome::Closed);
        }
        #[cfg(feature = "redis")]
        if self.is_cut_off(front.ticket) {
            return Verdict::TurnAway(Outcome::Unreachable);
        }
        let due = self.supply.due(front.ticket).filter(|at| *at <= now);
        let Some(strand) = &front.strand else {
            // Under a roof the front has to be granted there, too.
            let ready = if self.is_roofed() { Verdict::Held } else { Verdict::Grant };
            return due.map_or(Verdict::Wait, ready);
        };
        let tie = match due {
            Some(at) => strand.ready(at),
            // Who is not ready must not hold up the roof's line.
            None if self.is_roofed() => strand.knot.kill(),
            None => strand.unready(),
        };
        if strand.is_envoy() && tie == Tie::Committed {
            // Decided here and now.
            return Verdict::Grant(due.unwrap_or(now).max(self.supply.synced()));
        }
        if self.is_roofed() && due.is_none() && tie == Tie::Dead {
            return Verdict::CalledBack;
        }
        if tie != Tie::Held && strand.is_news(heard) {
            return Verdict::Again;
        }
        match (tie, due) {
            // That instant has come, also where this clock has stepped back behind it.
            (Tie::Committed, _) => Verdict::Grant(strand.committed_at(now).max(self.supply.synced())),
            (Tie::Dead, _) if self.is_roofed() => Verdict::TurnAway(strand.knot.envoys_fate()),
            (Tie::Dead, _) => Verdict::TurnAway(Outcome::Untied),
            (Tie::Held, Some(since)) => Verdict::Held(since),
            (Tie::Held, None) => Verdict::Wait,
        }
    }

    fn is_roofed(&self) -> bool {
        #[cfg(feature = "keyed")]
        return self.roofed;
        #[cfg(not(feature = "keyed"))]
        false
    }

    fn recall_envoy(&mut self) {
        #[cfg(feature = "keyed")]
        {
            self.recall = true;
        }
    }

    /// Whether the roof has granted the front claim, which stands: here it was not seen yet. If not, it will not be any more.
    fn is_granted_above(&self, front: &Waiter) -> bool {
        self.is_roofed() && front.strand.as_ref().is_some_and(|strand| strand.knot.kill() == Tie::Committed)
    }

    /// Takes the front waiter out of the line, granted or turned away.
    fn call_front(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        self.forget_denial(rovers);
        let waiter = self.line.call_front(outcome).expect("called only while somebody waits");
        self.totals.holes -= waiter.skip;
        if !matches!(outcome, Outcome::Granted { .. }) {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.fill_front(rovers, &waiter);
        } else {
            self.supply.pass(waiter.stretch(), self.next_start(rovers));
        }
        if let Some(strand) = waiter.strand {
            // A line that closes turns the claim away everywhere. In all other cases this changes nothing, and the
            // other lines must look: they hold the rest of it.
            strand.knot.kill_as(outcome);
            if !self.is_roofed() {
                wakes.push_knot(strand.knot);
            } else if !matches!(outcome, Outcome::Granted { .. }) {
                self.recall_envoy();
            }
        }
        wakes.push(waiter.waker);
    }

    /// Where the front claim begins, or the next one would.
    fn next_start(&self, rovers: &Rovers) -> u64 {
        self.line.front().map_or_else(|| rovers.tail(), Waiter::start)
    }

    fn front_ticket(&self) -> Option<u64> {
        self.line.front().map(|front| front.ticket)
    }

    /// Where the largest joint claim at the front ends, if there is one, where the next waiter begins at `base`. Whichever is
    /// granted burns what is saved beyond its own end.
    fn saver(&self, base: u64) -> Option<u64> {
        let at_front = |at: u64| self.line.front().is_none_or(|front| ahead(front.start(), at) >= 0);
        let heads = self.line.parts()?.heads().filter(|(_, part)| at_front(part.at));
        heads.map(|(_, part)| part.cost).max().map(|cost| base.wrapping_add(cost))
    }

    /// Up to where tokens may be saved above the burst.
    fn bound_ticket(&self, rovers: &Rovers) -> Option<u64> {
        match (self.front_ticket(), self.saver(self.next_start(rovers))) {
            (Some(front), Some(saver)) => Some(later(front, saver)),
            (front, saver) => front.or(saver),
        }
    }

    /// The instant at which the front waiter has to be looked at; `u64::MAX` if nobody waits or no clock can tell.
    pub(crate) fn due(&self) -> u64 {
        if let Some(parts) = self.line.parts() {
            return parts.alarm;
        }
        let due = self.front_ticket().and_then(|ticket| self.supply.due(ticket));
        // Due and still here: another line holds it, and will have this one look.
        due.filter(|at| *at > self.supply.synced()).unwrap_or(u64::MAX)
    }

    /// The same, as of when the line [was served](Self::finish) last.
    pub(crate) fn last_due(&self) -> u64 {
        self.last_due
    }

    /// Reads what was released, raises the ceiling by it, and says how much that was. Whoever waits is told of every
    /// later release: it takes effect at its own instant then. `None` if somebody waits, and there are releases that the caller
    /// knew nothing of when it read the time: they may have been made since, and it is to be read anew.
    fn refresh_ceiling(&mut self, rovers: &Rovers, landed: &mut Landed) -> Option<u64> {
        let Some(cap) = &mut self.cap else { return Some(0) };
        let (watch, seen) = (!self.line.is_empty(), cap.seen);
        let mut released = if watch && !cap.watching {
            rovers.watch_releases(&mut cap.seen)
        } else {
            if cap.watching && !watch {
                rovers.ignore_releases();
            }
            rovers.released_since(&mut cap.seen)
        };
        cap.watching = watch;
        if watch && released > 0 {
            let count = std::mem::replace(&mut cap.seen, seen);
            released = released.min(landed.since(rovers, seen));
            if released == 0 {
                landed.note(rovers, count);
                return None;
            }
            cap.seen = seen.wrapping_add(released << 1);
        }
        self.supply.raise_ceiling(released);
        Some(released)
    }

    /// Tells the fast path how far it may go, and what to answer beyond. While anybody waits that is not even to the tail.
    fn publish(&mut self, rovers: &Rovers) {
        if !std::mem::take(&mut self.denied) {
            self.forget_denial(rovers);
        }
        let limit = self.supply.limit();
        let until = match self.line.front() {
            Some(front) => front.start(),
            None if self.closed || self.supply.is_paused() || !self.line.is_empty() => rovers.tail(),
            None => rovers.tail().wrapping_add(self.stride.tokens),
        };
        rovers.publish(earlier(limit, until), limit);
    }

    /// What a clock would say that has stood still since the last reading.
    pub(crate) fn last_sample(&self) -> Sample {
        Sample { tail: self.supply.claimed(), now: self.supply.synced() }
    }

    /// Takes a reading of tail and time to heart, once the line is served up to it.
    pub(crate) fn observe(&mut self, rovers: &Rovers, sample: Sample) {
        self.supply.know_claimed(earlier(sample.tail, self.next_start(rovers)));
        let most = self.supply.least_burst() / 64;
        self.stride.adapt(rovers.tail(), sample.now, most);
    }

    /// Stops the fast path: what was published and not claimed is ours again.
    pub(crate) fn retract(&mut self, rovers: &Rovers) {
        let shift = rovers.retract();
        self.supply.shift(shift);
        self.totals.skipped = self.totals.skipped.wrapping_add(shift);
        self.stride.shift(shift);
    }

    /// How many tokens a claim that ends at `ticket` leaves behind.
    fn left_behind(&self, ticket: u64) -> u64 {
        ahead(self.supply.limit(), ticket).max(0) as u64
    }

    /// A claim left from the front: jump over it now, and burn what it had saved above the burst.
    fn fill_front(&mut self, rovers: &Rovers, waiter: &Waiter) {
        let next = self.next_start(rovers);
        self.supply.drop_front(waiter.stretch(), next, self.saver(next));
    }
}
