//! What a node knows of its line, and what it asks for next. Pure: no lock, no clock, no network.
//!
//! Two needs, two rhythms. **Waiters** lack tokens: they are asked for in whole claims, a share at a time, and the next share
//! is asked for shortly before the last promised token comes, so that nothing is asked twice and nobody takes the whole line
//! at once. **The bank** is what callers will want soon: it is filled to what was used in the last quarter of a second, and
//! asked for again when three quarters of it are gone.
//!
//! **The keeper's invariant:** while the keeper sleeps, the front waiter has an instant at which its leased tokens let it
//! pass; or the keeper has planned for this very waiter, and wakes by itself after a turn (or when a pause ends). A plan sums
//! up tokens, but the front waiter needs them in one piece, and which tokens form one piece depends on the hold and on which
//! waiter is in front. Both change while the keeper sleeps: so every change of the queue checks the front waiter anew, and
//! wakes the keeper if its plan was made for another one. [`Feed::next`] keeps the second half of this,
//! `State::is_hungry` the first, and `State::assert_kept` checks both.

use super::{Answer, Ask, LEASE_TIME, Outage, Post, Terms};
use crate::core::rovers::ahead;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};
use std::task::Waker;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
/// In contention, all shares together are what is minted in this time: nobody new waits much longer.
const SHARE: u64 = 100 * MILLIS;
/// The bank is filled for this time.
const AHEAD: u64 = 250 * MILLIS;
/// The shortest time over which a pace is taken.
const GLANCE: u64 = 100 * MILLIS;
const TTL: u64 = LEASE_TIME.as_nanos() as u64;

/// What the keeper does next.
#[derive(Debug)]
pub(crate) enum Plan {
    Ask(Ask),
    /// Sleep until this instant, in the limiter's nanoseconds, or until woken.
    Sleep(u64),
}

/// What the limiter looks like to the feed.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: u64,
    /// All tokens that were ever claimed.
    pub(crate) total: u64,
    /// Tokens that are claimed and neither minted nor promised.
    pub(crate) lack: u64,
    /// Tokens that are minted or promised and not claimed.
    pub(crate) bank: u64,
    /// The position beyond which nothing is promised.
    pub(crate) covered: u64,
    /// When the last promised token comes.
    pub(crate) ends: Option<u64>,
    /// Nobody passes before this instant.
    pub(crate) gate: u64,
    pub(crate) is_waiting: bool,
    /// The ticket of the front waiter, if what is promised gives it no instant to pass at.
    pub(crate) stuck: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Feed {
    /// Which of the limiter's quotas is shared.
    pub(crate) quota: usize,
    terms: Terms,
    pub(crate) outage: Outage,
    /// True while the line cannot be reached.
    pub(crate) is_out: bool,
    /// The keeper, asleep.
    waker: Option<Waker>,
    /// There is no keeper any more, since its runtime is gone.
    pub(crate) vacant: Option<Post>,
    /// It is to be woken once claims pass this position,
    low: Option<u64>,
    /// or where somebody was denied more than others before, or what was promised is lost.
    called: bool,
    /// The front waiter without an instant for which the last plan was made.
    stuck: Option<u64>,
    /// Until when that plan has the keeper sleep.
    sleeps_until: u64,
    node: u128,
    number: u64,
    /// The last ask that was answered; 0 if the line does not know this node.
    acked: u64,
    /// The most that `try_acquire` was denied since, and by when it may be asked for again.
    must: u64,
    /// What may be kept unused, and until when.
    pub(crate) hold: u64,
    pub(crate) until: u64,
    nodes: u64,
    busy: u64,
    /// How many tokens the last answer left there for others.
    left: u64,
    /// There was less in it than was asked for; and nothing at all for a caller who was denied.
    short: bool,
    vain: bool,
    /// An ask is under way.
    #[cfg_attr(not(feature = "keyed"), allow(dead_code, reason = "only keyed limiters forget limiters"))]
    is_asking: bool,
    /// What had been claimed when it asked last, and when that was.
    total: u64,
    asked_at: u64,
    /// Tokens per second.
    pace: u64,
    /// Nanoseconds, on average.
    round_trip: u64,
    /// What the keeper finds when the limiter is gone.
    pub(crate) remains: Arc<Mutex<Option<Ask>>>,
}

impl Feed {
    pub(crate) fn new(quota: usize, terms: Terms, outage: Outage) -> Self {
        Self {
            quota,
            terms,
            outage,
            is_out: false,
            waker: None,
            vacant: None,
            low: None,
            called: false,
            stuck: None,
            sleeps_until: 0,
            node: random_node(),
            number: 0,
            acked: 0,
            must: 0,
            hold: 0,
            until: 0,
            busy: 1,
            nodes: 0,
            left: 0,
            short: false,
            vain: false,
            is_asking: false,
            total: 0,
            asked_at: 0,
            pace: 0,
            round_trip: 0,
            remains: Arc::default(),
        }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// How many tokens may be kept unused whatever the line says, while it cannot be reached.
    pub(crate) fn own(&self) -> u64 {
        match self.outage {
            Outage::Share(share) if self.is_out => share.capacity(),
            _ => 0,
        }
    }

    /// How long a round trip takes.
    pub(crate) fn round_trip(&self) -> u64 {
        self.round_trip
    }

    /// Whether the line hears of this node often enough for what is kept to last. If not, what is kept lapses each time before
    /// the next answer, and so do the tokens that waiters count on.
    fn renews_in_time(&self) -> bool {
        self.round_trip + self.round_trip.max(TTL / 3) + SHARE <= TTL - TTL / 64
    }

    /// What the keeper does now: asks, or sleeps, but not for long while the front waiter has no instant.
    ///
    /// `whole_claims` says what waiters lack, up to about a share; `counted_on` how much of the hold they count on.
    pub(crate) fn next(
        &mut self,
        view: &View,
        whole_claims: impl FnOnce(u64) -> u64,
        counted_on: impl FnOnce() -> u64,
    ) -> Plan {
        let mut plan = self.choose(view, whole_claims, counted_on);
        if let Plan::Sleep(until) = &mut plan {
            self.stuck = view.stuck;
            if view.stuck.is_some() {
                *until = (*until).min(view.now.saturating_add(self.share_time()).max(view.gate));
            }
            self.sleeps_until = *until;
        }
        plan
    }

    fn choose(&mut self, view: &View, whole_claims: impl FnOnce(u64) -> u64, counted_on: impl FnOnce() -> u64) -> Plan {
        let pace = self.pace_at(view);
        let cushion = self.cushion(pace);
        let renewal = self.asked_at.saturating_add(TTL / 3);
        let is_known = self.acked > 0;
        self.low = None;
        if view.lack > 0 {
            let key_hash = (self.share_time() / 4).max(2 * self.round_trip);
            let mut due = view.ends.map_or(0, |ends| ends.saturating_sub(key_hash)).max(view.gate);
            if due <= view.now {
                let share = self.share();
                let want = whole_claims(share);
                if want > 0 {
                    let all = is_known && want >= view.lack;
                    let ahead = if all { cushion.min(share.saturating_sub(want)) } else { 0 };
                    return self.ask(view, pace, want, ahead, cushion, counted_on);
                }
                // Something else holds the line up: not even for its front would there be a use.
                due = view.now.saturating_add(key_hash);
            }
            return match self.hold {
                0 => Plan::Sleep(due),
                _ if renewal > view.now => Plan::Sleep(due.min(renewal)),
                _ => self.ask(view, pace, 0, 0, cushion, counted_on),
            };
        }
        let aim = cushion.min(self.hold).max(self.must);
        let low = (aim / 4).max(scale(pace, 2 * self.round_trip)).min(aim.saturating_sub(1));
        if aim.max(cushion) > 0 && view.bank <= low {
            // Not again at once where the line gives less than would be good.
            let again = self.asked_at.saturating_add(SHARE);
            let is_vain = if self.must > 0 { self.vain } else { self.short };
            if !is_vain || again <= view.now {
                let aim = cushion.max(self.must);
                return self.ask(view, pace, 0, aim.saturating_sub(view.bank), aim, counted_on);
            }
            return self.sleep(view, 0, again);
        }
        if self.hold == 0 {
            return self.sleep(view, low, u64::MAX);
        }
        if renewal > view.now {
            return self.sleep(view, low, renewal);
        }
        if view.total == self.total && !view.is_waiting {
            self.leave(view)
        } else {
            self.ask(view, pace, 0, 0, cushion, counted_on)
        }
    }

    fn sleep(&mut self, view: &View, low: u64, until: u64) -> Plan {
        self.low = Some(view.covered.wrapping_sub(low));
        Plan::Sleep(until)
    }

    fn ask(
        &mut self,
        view: &View,
        pace: u64,
        want: u64,
        ahead: u64,
        cushion: u64,
        counted_on: impl FnOnce() -> u64,
    ) -> Plan {
        let wish = cushion.max(view.bank).min(self.fair_hold()).max(self.must).min(self.terms.most_held());
        // What shrinks shrinks here first: but not what waiters count on, or one of them would have to be promised all its
        // tokens anew.
        if wish < self.hold / 2 || self.hold > self.fair_hold() {
            self.hold = self.hold.min(wish.max(counted_on()));
        }
        self.pace = pace;
        (self.total, self.asked_at) = (view.total, view.now);
        self.number += 1;
        self.is_asking = true;
        Plan::Ask(Ask {
            want,
            ahead,
            bank: view.bank,
            hold: wish,
            must: self.must,
            held: self.hold,
            ..self.blank(self.number)
        })
    }

    /// Nobody has called for a while: everything goes back, and the line may forget this node.
    fn leave(&mut self, view: &View) -> Plan {
        self.pace = 0;
        self.hold = 0;
        (self.total, self.asked_at) = (view.total, view.now);
        Plan::Ask(self.farewell())
    }

    /// An ask for nothing, after which the line need not remember this node.
    pub(crate) fn farewell(&mut self) -> Ask {
        self.number += 1;
        self.is_asking = true;
        Ask { leave: true, ..self.blank(self.number) }
    }

    /// The limiter is gone, and `back` is left of it: for the keeper.
    pub(crate) fn bequeath(&mut self, back: u64) {
        let ask = Ask { back, ..self.farewell() };
        *self.remains.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(ask);
    }

    /// The ask that was planned last was never sent, and will not be.
    pub(crate) fn withdraw(&mut self) {
        self.is_asking = false;
    }

    /// True if the line counts on this node.
    pub(crate) fn is_known(&self) -> bool {
        self.acked > 0
    }

    /// True if it neither may keep anything, nor asks or is to.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_at_rest(&self, now: u64) -> bool {
        !self.is_asking && !self.called && (self.hold == 0 || self.until <= now)
    }

    fn blank(&self, number: u64) -> Ask {
        Ask::new(self.node, number, self.terms)
    }

    /// The line has answered `ask`, sent `elapsed` ago. False if it has lost what it knew of this node: then what was promised
    /// is void.
    pub(crate) fn hear(&mut self, ask: &Ask, answer: &Answer, now: u64, elapsed: u64) -> bool {
        let sent = now.saturating_sub(elapsed);
        let was_silent = answer.before == 0 && sent >= self.until;
        let is_sound = answer.before == self.acked || answer.before == ask.number || was_silent;
        self.acked = if ask.leave { 0 } else { ask.number };
        self.is_asking = false;
        self.hold = answer.hold;
        // Less a 64th, so that clocks may differ in pace.
        self.until = sent.saturating_add(TTL - TTL / 64);
        self.busy = answer.busy.max(1);
        self.nodes = answer.nodes;
        self.left = answer.left;
        self.short = answer.once + answer.later < ask.want + ask.ahead;
        self.vain = ask.must > 0 && answer.once + answer.later == 0;
        // That this process stood still is not the line's: turns of seconds would come of it.
        let trip = elapsed.min(TTL / 2);
        self.round_trip = if self.round_trip == 0 { trip } else { (3 * self.round_trip + trip) / 4 };
        // What was denied since it asked is not in the answer.
        self.must = if self.must > ask.must { self.must } else { 0 };
        is_sound
    }

    /// `try_acquire` was denied `cost`: perhaps it comes again.
    pub(crate) fn miss(&mut self, cost: u64) {
        self.called |= cost > self.must;
        self.must = self.must.max(cost);
    }

    /// The keeper is to look.
    pub(crate) fn call(&mut self) {
        self.called = true;
    }

    /// Whether the keeper has to look.
    pub(crate) fn is_low(&self, claims: u64) -> bool {
        self.called || self.low.is_some_and(|low| ahead(claims, low) > 0)
    }

    /// Whether the last plan was made for the front waiter that ends at `ticket` and has no instant.
    pub(crate) fn has_planned_for(&self, ticket: u64) -> bool {
        self.stuck == Some(ticket)
    }

    /// Whether the keeper sleeps although the front waiter, which ends at `ticket`, has no instant: after a plan for another
    /// waiter, or until another caller wakes it.
    pub(crate) fn neglects(&self, ticket: u64) -> bool {
        self.waker.is_some() && (!self.has_planned_for(ticket) || self.sleeps_until == u64::MAX)
    }

    /// The keeper goes to sleep; its old waker is to be dropped without the lock.
    pub(crate) fn rest(&mut self, waker: Waker) -> Option<Waker> {
        self.waker.replace(waker)
    }

    pub(crate) fn rouse(&mut self) -> Option<Waker> {
        (self.low, self.called) = (None, false);
        self.waker.take()
    }

    /// What each node may keep unused at most, unless nobody else does: the line sees to it too.
    fn fair_hold(&self) -> u64 {
        if !self.renews_in_time() {
            return 0;
        }
        (self.terms.burst / (2 * (self.nodes + 1))).max(1).min(self.terms.most_held())
    }

    /// What this node takes in one turn while others have waiters too: a part of what is minted soon, or of half of what is
    /// there.
    pub(crate) fn share(&self) -> u64 {
        let soon = self.terms.minted_in(self.share_time());
        if self.acked == 0 { 1 } else { (soon.max(self.left / 2) / self.busy).max(1) }
    }

    fn share_time(&self) -> u64 {
        SHARE.max(4 * self.round_trip)
    }

    fn pace_at(&self, view: &View) -> u64 {
        let came = ahead(view.total, self.total).max(0) as u64;
        let elapsed = view.now.saturating_sub(self.asked_at).max(GLANCE);
        let now = (came as u128 * SECOND as u128 / elapsed as u128) as u64;
        now.max(self.pace / 2 + now / 2)
    }

    /// What is to be in the bank at this pace.
    fn cushion(&self, pace: u64) -> u64 {
        let soon = scale(pace, AHEAD.max(8 * self.round_trip));
        let is_idle = scale(pace, TTL) == 0;
        soon + u64::from(self.left > 0 && !is_idle)
    }
}

/// `pace` per second, for `nanos`.
fn scale(pace: u64, nanos: u64) -> u64 {
    (pace as u128 * nanos as u128 / SECOND as u128).min(1 << 48) as u64
}

/// A number that no other node has: 128 bits by the operating system's randomness, by way of the standard library.
pub(crate) fn random_node() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}
