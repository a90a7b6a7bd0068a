//! The node's knowledge of its store, and its next request. Pure: no lock, no clock, no network.
//!
//! The node needs tokens for two purposes, at two rhythms:
//!
//! * **Waiters** lack tokens. The planner requests them in whole claims, up to the node's part of what the store mints
//!   within the horizon. It requests more shortly before the last promised token comes, so nothing is requested twice and no
//!   node takes all tokens of the store at once. If the store has none for it, it asks again at the instant at which the store
//!   expects it.
//! * **The banked tokens** serve callers that come soon. The planner banks as many tokens as were used in the last
//!   quarter of a second, and requests more when three quarters of them are used.
//!
//! **The refill task's invariant:** while the refill task sleeps, either the front waiter has an instant at which its
//! leased tokens let it pass, or the task's last plan was made for this very waiter, and the task wakes by itself: when
//! the store expects the node, after one share time, or when a pause ends. A plan adds up tokens, but the front waiter
//! needs them in one piece. Which tokens form one piece depends on the allowance and on the front waiter, and both
//! change while the task sleeps. Therefore every change of the queue checks the front waiter again, and wakes the task
//! if its plan was made for another waiter. [`RefillPlanner::next`] (`choose.rs`) maintains the second half of this
//! invariant and `State::is_hungry` the first; `State::assert_kept` checks both.

use super::losses::Losses;
use super::node_classes::NodeClasses;
use super::{Answered, LEAST_SLEEP, LeaseGrant, LeaseRequest, Outage, Pace, QuotaTerms};
use crate::core::outcome::CutOff;
use crate::core::rovers::ahead;
use crate::core::source::RequestTask;
use crate::error::QuotaConflict;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

mod choose;
mod view;

use choose::SHARE;
pub(crate) use view::{Plan, SentAway, View, Wanted};

const TTL: u64 = LeaseRequest::LEASE_TIME.as_nanos() as u64;
/// As in `bucket.rs`: how far ahead a store promises tokens, and how long a node with a place may sleep.
const HORIZON: u64 = 250_000_000;
const LONGEST_HORIZON: u64 = 1_000_000_000;
const SLEEP: u64 = 700_000_000;

#[derive(Debug, Default)]
pub(crate) struct RefillPlanner {
    pub(super) terms: QuotaTerms,
    pub(crate) outage: Outage,
    /// True while the store cannot be reached, or answers with errors.
    pub(crate) is_out: bool,
    /// Set while the store refuses the quota of this node.
    pub(crate) conflict: Option<QuotaConflict>,
    /// The waker of the refill task while it sleeps.
    pub(super) waker: Option<Waker>,
    /// The refill task that goes on after one that ended with its runtime. The next waiter on another runtime spawns it.
    pub(crate) vacant: Option<RequestTask>,
    /// The refill task is woken when claims pass this position.
    low: Option<u64>,
    /// The refill task is also woken if this is set: a caller was denied more than callers before it, or promised
    /// tokens were lost.
    pub(super) called: bool,
    /// The front waiter without an instant for which the last plan was made.
    stuck: Option<u64>,
    node: u128,
    number: u64,
    /// The last request that was answered; 0 if the store does not know this node.
    acked: u64,
    /// The largest cost denied to `try_acquire` since the last answer that covered it.
    minimum: u64,
    /// `try_acquire` was denied tokens since a claim last waited.
    pub(crate) denies: bool,
    /// The allowance: how many tokens may be kept unused. It ends at `until`.
    pub(crate) allowance: u64,
    pub(crate) until: u64,
    nodes: u64,
    /// The node's part of what the store mints within the horizon, by the last answer: the tokens that it takes in one request.
    pub(super) part: u64,
    /// If the last answer gave nothing to waiters: when the node asks again.
    retry_at: u64,
    /// The store may hold tokens back from other nodes for claims here. It must be told when they do not wait for these any
    /// more.
    pub(super) placed: bool,
    /// The first of the requests since which waiters got nothing.
    pub(super) in_vain_since: Option<u64>,
    pub(crate) sent_away: Option<SentAway>,
    /// The number of the first claim of the last request.
    asked_for: u64,
    /// How many tokens the last answer left in the store for others.
    left: u64,
    /// `short`: the last answer granted less than was requested. `vain`: it granted nothing although a caller had been
    /// denied.
    short: bool,
    vain: bool,
    /// A request is under way.
    pub(super) is_asking: bool,
    /// The total of claimed tokens at the last request, and the instant of that request.
    total: u64,
    asked_at: u64,
    /// Tokens per second.
    pace: u64,
    /// Nanoseconds, on average.
    pub(super) round_trip: u64,
    pub(super) losses: Losses,
    /// Present if the limiter has classes.
    pub(crate) classes: Option<NodeClasses>,
    /// The final request. The refill task finds it here after the limiter is dropped.
    pub(crate) final_return: Arc<OnceLock<LeaseRequest>>,
}

impl RefillPlanner {
    pub(crate) fn new(terms: QuotaTerms, outage: Outage) -> Self {
        Self { terms, outage, node: random_node(), part: 1, ..Self::default() }
    }

    /// The reason why claims fail for which no tokens are promised.
    pub(crate) fn cut_off(&self) -> Option<CutOff> {
        let unreachable = (self.is_out && self.outage == Outage::Fail).then_some(CutOff::Unreachable);
        self.conflict.map(CutOff::QuotaConflict).or(unreachable)
    }

    /// The allowance that the node gives itself while the store cannot be reached, whatever the last answer said.
    pub(crate) fn own(&self) -> u64 {
        match self.outage {
            Outage::Share(share) if self.is_out => share.capacity(),
            _ => 0,
        }
    }

    /// The next request, for no tokens.
    fn request(&mut self) -> LeaseRequest {
        self.number += 1;
        self.is_asking = true;
        LeaseRequest::new(self.node, self.number, self.terms)
    }

    /// A final request; the store may then forget this node.
    pub(crate) fn final_request(&mut self) -> LeaseRequest {
        LeaseRequest { leave: true, ..self.request() }
    }

    /// True if the store may know this node: it does, or it may carry out a request that is under way after the limiter
    /// is gone.
    pub(crate) fn may_be_known(&self) -> bool {
        self.acked > 0 || self.is_asking
    }

    /// True if the node may keep no tokens, and no request is under way or wanted; or the refill task ended with its runtime so
    /// long ago that the store has forgotten the node.
    pub(crate) fn is_at_rest(&self, now: u64) -> bool {
        let is_forgotten = self.vacant.is_some() && self.asked_at.saturating_add(TTL) <= now;
        (is_forgotten || !self.is_asking && !self.called) && (self.allowance == 0 || self.until <= now)
    }

    /// Records the store's answer to a request that was sent `elapsed` nanoseconds ago. Claims before number `next` have come.
    ///
    /// Returns an error if the store has lost its state of this node: then the promised tokens are void. The error says how
    /// many tokens a bucket may lack; `None` if none, because the server's clock has leapt ahead.
    pub(super) fn record(&mut self, answered: &Answered, now: u64, elapsed: u64, next: u64) -> Result<(), Option<u64>> {
        let Answered { ask, answer, .. } = answered;
        let sent = now.saturating_sub(elapsed);
        let is_lost = self.losses.begins_anew(answer, sent);
        // The store forgets a node that is silent for long, and one that leaves: a repeat of its final request finds it gone.
        let is_forgotten = answer.before == 0 && (sent >= self.until || ask.leave);
        let is_sound = !is_lost && (answer.before == self.acked || is_forgotten) || answer.before == ask.number;
        let known = if is_sound { Ok(()) } else { Err(self.losses.take(answer, now)) };
        // The next token may be about to come.
        let promised = Pace::of(&self.terms, self.terms.period()).minted(self.reach());
        self.losses.note_state(ask, answer, sent, now, promised);
        self.acked = if ask.leave { 0 } else { ask.number };
        self.is_asking = false;
        self.conflict = None;
        if let Some(newer) = answer.terms {
            self.terms = self.terms.followed_by(newer);
        }
        self.allowance = answer.allowance;
        // Subtract a 64th, so that the clocks of node and server may run at slightly different speeds.
        self.until = sent.saturating_add(TTL - TTL / 64);
        self.nodes = answer.nodes;
        self.left = answer.remaining;
        // A node that has left asks as a new one does.
        self.part = if ask.leave { 1 } else { answer.part.max(1) };
        // A request by an older quota gets nothing, and is made anew at once.
        let is_outdated = answer.terms.is_some() && answer.now + answer.promised == 0;
        if !is_sound {
            self.classes.iter_mut().for_each(NodeClasses::clear);
        }
        self.short = !is_outdated && answer.now + answer.promised < ask.want + ask.ahead;
        self.vain = !is_outdated && ask.minimum > 0 && answer.now + answer.promised == 0;
        // Bound the sample: if this process stood still, the delay is not the store's, and share times of seconds would
        // follow.
        let trip = elapsed.min(TTL / 2);
        self.round_trip = trip.max((7 * self.round_trip + 3 * trip) / 10);
        // A denial since the request was sent is not covered by this answer.
        self.minimum = if self.minimum > ask.minimum || is_outdated { self.minimum } else { 0 };
        self.note_wait(ask, answer, now, next);
        known
    }

    /// Records when to ask again, if the answer gave nothing to waiters.
    fn note_wait(&mut self, ask: &LeaseRequest, answer: &LeaseGrant, now: u64, next: u64) {
        let was_placed = std::mem::take(&mut self.placed);
        self.sent_away = None;
        if ask.want == 0 || answer.now + answer.promised > 0 || answer.terms.is_some() {
            if ask.want > 0 || was_placed {
                (self.retry_at, self.in_vain_since) = (0, None);
            }
            return;
        }
        self.in_vain_since.get_or_insert(self.asked_at);
        let wait = answer.wait.saturating_mul(1_000);
        let at = now.saturating_add(wait);
        self.sent_away = Some(SentAway { claim: self.asked_for, first: ask.first, before: next, since: now, at });
        let sleep = wait.saturating_sub(self.reach()).max(LEAST_SLEEP);
        if self.classes.is_none() {
            self.retry_at = now.saturating_add(sleep.min(SLEEP.max(ask.age.saturating_mul(500))));
        }
        self.placed = answer.wait <= ask.useful;
    }

    /// Asks anew if the claim that had no tokens has left, or lacks fewer: what the store said was for that claim.
    pub(crate) fn recall(&mut self, wanted: &Wanted) {
        let is_other = |away: &SentAway| wanted.claim != away.claim || wanted.first < away.first;
        if wanted.want > 0 && self.sent_away.as_ref().is_some_and(is_other) {
            (self.retry_at, self.sent_away) = (0, None);
        }
    }

    /// Within which time a store promises tokens to this node.
    fn reach(&self) -> u64 {
        if self.terms.is_calendar() {
            return 0;
        }
        (self.round_trip * 5 / 2).clamp(HORIZON, LONGEST_HORIZON)
    }

    /// Whether the task has to tell the store that no claim waits here: `unused` tokens are here or promised.
    pub(crate) fn has_too_much(&self, unused: u64) -> bool {
        self.placed || unused > self.allowance.max(self.own())
    }

    /// Records that `try_acquire` was denied `cost`, so that a retry can succeed.
    pub(crate) fn miss(&mut self, cost: u64) {
        self.called |= cost > self.minimum;
        self.minimum = self.minimum.max(cost);
        self.denies = true;
    }

    /// Whether the refill task has to run.
    pub(crate) fn is_low(&self, claims: u64) -> bool {
        self.called || self.low.is_some_and(|low| ahead(claims, low) > 0)
    }

    /// The instant before which this node cannot have `tokens` more than it was promised, even if the store has a whole burst
    /// for it.
    pub(crate) fn not_before(&self, tokens: u64, now: u64) -> Option<u64> {
        let is_calendar = self.terms.is_calendar();
        // For a moment the node believes that no other one returns tokens of this period.
        let is_used_up = |away: &SentAway| is_calendar && tokens > self.left && now < away.since.saturating_add(SHARE);
        if let Some(away) = self.sent_away.filter(is_used_up) {
            return Some(away.at);
        }
        let missing = tokens.checked_sub(self.terms.burst()).filter(|missing| *missing > 0)?;
        if is_calendar {
            return Some(now); // its periods may be shorter than others
        }
        // The next token may be about to come.
        let wait = Pace::of(&self.terms, self.terms.period()).wait(missing);
        Some(wait.map_or(u64::MAX, |wait| now.saturating_add(wait)))
    }

    /// Whether the refill task sleeps, and its plan was not made for the front `claim`, which has no instant.
    pub(crate) fn sleeps_without_plan_for(&self, claim: u64) -> bool {
        self.waker.is_some() && self.stuck != Some(claim)
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        (self.low, self.called) = (None, false);
        self.waker.take()
    }
}

/// A number that no other node has: 128 bits of the operating system's randomness, through the standard library.
pub(crate) fn random_node() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}
