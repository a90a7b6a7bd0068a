//! Dry run: what a limiter would do if all of its quotas were enforced.
//!
//! A limiter with a quota in dry run has two parts that do not read each other:
//!
//! * The limiter itself. A quota in dry run is represented there by an [open](super::schedule::Schedule::open) schedule,
//!   which holds back no claim. All algorithms are the same as without dry run.
//! * A [`DryRun`], which simulates the same limiter with **all** quotas enforced. Every call arrives here too, and gets a
//!   [`Verdict`]. The simulation never grants, delays or refuses anything.
//!
//! So a quota in dry run cannot weaken or delay the enforced quotas beside it, and the simulation is exact by
//! construction: it moves the same [`Supply`] by the same rule as the queue of a limiter (see `state/serving.rs`).
//!
//! The simulated queue is first come, first served, and its claims have no callers. So the wait of an arriving claim is
//! known at once: it is the instant at which the claim passes behind all claims in the queue. `ahead` keeps the supply
//! as it will be once the last claim has been granted, so that an arrival takes a few steps per quota. If the position
//! alone decides, no step per claim is needed; see `state/forecast.rs`, which has the same three cases.
//!
//! # What is simulated, and what is not
//!
//! Quotas, pauses and `max_waiting` are simulated. The in-flight cap is not, as in
//! [`estimate`](crate::Limiter::estimate): no clock can tell when grants are dropped. The cap, pauses, `close` and
//! `max_waiting` are also enforced, because they are no quotas.
//!
//! The verdict is given at arrival. What happens later (a pause, another quota, a refund, a cancellation) moves the
//! claims in the simulated queue, and so changes the verdicts of later calls.

mod changes;
mod view;

use crate::core::supply::Supply;
use crate::error::Bound;
use crate::observe::{Reason, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most claims that the simulated queue holds. It has no futures that hold its claims, so nothing else would bound
/// its memory while more calls arrive than the quotas allow.
const MOST_WAITING: u64 = 1 << 16;

/// An entry of the simulated queue.
#[derive(Clone, Debug)]
enum Entry {
    /// `count` successive claims of one cost that the limiter itself granted at once.
    Passed { cost: u64, count: usize },
    /// A claim that also waits in the limiter's own queue, where it has this number: an enforced quota, the cap or a
    /// pause holds it back there.
    Waiting { cost: u64, number: u64 },
    /// Tokens of a debt: charged behind the claims that arrived before it.
    Debt(u64),
}

/// The supply once the last claim in the simulated queue has been granted.
#[derive(Debug)]
enum Ahead {
    /// To be computed.
    Stale,
    /// No clock can tell when one of the claims is granted.
    Unknown,
    Known(Supply),
}

/// The simulation of one limiter; see the head of this file.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// All quotas, as of the instant up to which the simulated queue has been served. Without a ceiling.
    supply: Supply,
    queue: VecDeque<Entry>,
    /// How many claims the queue holds.
    waiting: u64,
    /// The tokens of all entries of the queue.
    tokens: u64,
    /// An upper bound for the cost of any claim in the queue, in tokens.
    largest: u64,
    ahead: Ahead,
    /// A copy of the supply that is minted ahead of time, kept to be reused.
    scratch: Option<Supply>,
    /// Which quotas are in dry run.
    is_dry: Box<[bool]>,
    /// The costs of the claims that wait in the limiter's own queue, by number, and the verdicts on them. A claim that waited
    /// there when the simulation began has none.
    held: BTreeMap<u64, (u64, Option<Verdict>)>,
    pub(crate) totals: DryTotals,
}

/// Counts of the verdicts on the calls that passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryTotals {
    pub(crate) would_wait: u64,
    pub(crate) would_refuse: u64,
    /// The part of `would_refuse` that each quota caused.
    pub(crate) refused_by: Box<[u64]>,
    /// The longest wait, in nanoseconds.
    pub(crate) longest: u64,
}

/// Whether and how long a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// `try_acquire`.
    AtOnce,
    /// `consume`, and the longest wait in nanoseconds that it accepts.
    Wait { allowed: Option<u64>, max_waiting: u64 },
}

impl DryRun {
    /// Starts from the limiter's own supply, when everything before its queue ends at `claimed`.
    pub(crate) fn new(supply: &Supply, claimed: u64) -> Self {
        let mut supply = supply.clone();
        supply.uncap();
        supply.know_claimed(claimed);
        let count = supply.quotas().len();
        Self {
            supply,
            queue: VecDeque::new(),
            waiting: 0,
            tokens: 0,
            largest: 0,
            ahead: Ahead::Stale,
            scratch: None,
            is_dry: vec![false; count].into(),
            held: BTreeMap::new(),
            totals: DryTotals { refused_by: vec![0; count].into(), ..DryTotals::default() },
        }
    }

    pub(crate) fn is_dry(&self, quota: usize) -> bool {
        self.is_dry.get(quota).is_some_and(|is_dry| *is_dry)
    }

    pub(crate) fn set_dry(&mut self, quota: usize, is_dry: bool) {
        self.is_dry[quota] = is_dry;
    }

    /// Whether any quota is in dry run.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_dry.contains(&true)
    }

    /// Serves the simulated queue up to `now`, each claim at the instant that the schedule gives it.
    pub(crate) fn serve(&mut self, now: u64) {
        let now = now.max(self.supply.synced());
        while let Some(cost) = self.front() {
            let ticket = self.supply.claimed().wrapping_add(cost);
            let Some(at) = self.supply.scheduled(ticket).filter(|at| *at <= now) else {
                return self.supply.mint(now, Some(ticket));
            };
            self.supply.mint(at, Some(ticket));
            self.supply.claim(cost);
            self.take_front(cost);
        }
        (self.ahead, self.largest) = (Ahead::Stale, 0);
        self.supply.mint(now, None);
    }

    /// Charges the debts in front of all claims. Returns the cost of the front claim.
    fn front(&mut self) -> Option<u64> {
        loop {
            match *self.queue.front()? {
                Entry::Passed { cost, .. } | Entry::Waiting { cost, .. } => return Some(cost),
                Entry::Debt(tokens) => {
                    self.supply.claim(tokens);
                    self.tokens -= tokens;
                    self.queue.pop_front();
                }
            }
        }
    }

    /// Removes the front claim, which costs `cost`.
    fn take_front(&mut self, cost: u64) {
        self.waiting -= 1;
        self.tokens -= cost;
        match self.queue.front_mut() {
            Some(Entry::Passed { count, .. }) if *count > 1 => *count -= 1,
            _ => drop(self.queue.pop_front()),
        }
    }

    /// The verdict on a claim of `cost` that arrives at `now`. The claim takes its place in the simulation.
    pub(crate) fn arrive(&mut self, cost: u64, now: u64, ask: Ask) -> Verdict {
        self.serve(now);
        // Compared as a number of tokens: a position so far ahead would wrap around.
        if let Some(remaining) = self.available().checked_sub(cost) {
            self.supply.claim(cost);
            return Verdict::AtOnce { remaining };
        }
        let ticket = self.tail().wrapping_add(cost);
        if let Some(index) = self.window_below(cost) {
            return Verdict::Refused { reason: Reason::TooLarge, by: Bound::Quota(index) };
        }
        match ask {
            Ask::AtOnce => self.deny(cost, ticket),
            Ask::Wait { allowed, max_waiting } => {
                if self.waiting >= max_waiting.min(MOST_WAITING) || cost > self.space_left() {
                    return Verdict::Refused { reason: Reason::QueueFull, by: Bound::Queue };
                }
                let nanos = self.predict(cost).map(|at| self.wait_until(at, now));
                // As in `State::check_in_time`: where no clock can tell, the call waits and sees.
                let least = || self.supply.not_before(ticket).map_or(0, |at| self.wait_until(at, now));
                if allowed.is_some_and(|allowed| nanos.unwrap_or_else(least) > allowed) {
                    let by = self.supply.scheduled_obstacle(ticket);
                    return Verdict::Refused { reason: Reason::TooLate, by };
                }
                self.push(Entry::Passed { cost, count: 1 });
                Verdict::Waits { nanos }
            }
        }
    }

    /// The refusal of a `try_acquire` that would end at `ticket`.
    fn deny(&self, cost: u64, ticket: u64) -> Verdict {
        if cost > self.supply.most_at_once() {
            let by = Bound::Quota(self.supply.smallest());
            return Verdict::Refused { reason: Reason::TooLarge, by };
        }
        let by = if self.queue.is_empty() { self.supply.obstacle(ticket) } else { Bound::Queue };
        Verdict::Refused { reason: Reason::of_bound(by), by }
    }

    /// The wait from `now` until `at`. A claim that can pass by now does not wait for a clock that stepped back.
    fn wait_until(&self, at: u64, now: u64) -> u64 {
        if at <= self.supply.synced() { 0 } else { at.saturating_sub(now) }
    }

    /// The sliding quota that never lets a claim of `cost` pass, if there is one.
    fn window_below(&self, cost: u64) -> Option<usize> {
        self.supply.smallest_window().filter(|(_, amount)| cost > *amount).map(|(index, _)| index)
    }

    /// How long a claim of `cost` that arrives at `now` would wait. `None` if no clock can tell, or if it would be refused.
    pub(crate) fn estimate(&mut self, cost: u64, now: u64) -> Option<Duration> {
        self.serve(now);
        if cost == 0 {
            return Some(Duration::ZERO);
        }
        if self.window_below(cost).is_some() {
            return None;
        }
        self.predict(cost).map(|at| Duration::from_nanos(self.wait_until(at, now)))
    }

    /// The instant at which a claim of `cost` behind all claims in the queue passes. `None` if no clock can tell.
    fn predict(&mut self, cost: u64) -> Option<u64> {
        let end = self.tail().wrapping_add(cost);
        let front = match self.queue.front() {
            Some(Entry::Passed { cost, .. } | Entry::Waiting { cost, .. }) if !self.supply.is_straight() => *cost,
            _ => return self.supply.scheduled(end),
        };
        let front = self.supply.claimed().wrapping_add(front);
        if let Some(at) = self.supply.scheduled_behind(&mut self.scratch, front, self.largest, end) {
            return Some(at);
        }
        if let Ahead::Stale = self.ahead {
            let mut supply = self.supply.clone();
            self.ahead = match self.queue.iter().try_for_each(|entry| cover(&mut supply, entry)) {
                Some(()) => Ahead::Known(supply),
                None => Ahead::Unknown,
            };
        }
        match &self.ahead {
            Ahead::Known(supply) => supply.scheduled(supply.claimed().wrapping_add(cost)),
            Ahead::Stale | Ahead::Unknown => None,
        }
    }

    fn push(&mut self, entry: Entry) {
        if let Ahead::Known(supply) = &mut self.ahead {
            if cover(supply, &entry).is_none() {
                self.ahead = Ahead::Unknown;
            }
        }
        match entry {
            Entry::Debt(tokens) => self.tokens += tokens,
            Entry::Passed { cost, .. } | Entry::Waiting { cost, .. } => {
                self.waiting += 1;
                self.tokens += cost;
                self.largest = self.largest.max(cost);
            }
        }
        match (self.queue.back_mut(), &entry) {
            (Some(Entry::Passed { cost: last, count }), Entry::Passed { cost, .. }) if last == cost => *count += 1,
            _ => self.queue.push_back(entry),
        }
    }

    /// Records that a claim of `cost`, on which `verdict` was given just now, waits in the limiter's own queue with
    /// this number.
    pub(crate) fn hold(&mut self, number: u64, cost: u64, verdict: Verdict) {
        if let Verdict::Waits { .. } = verdict {
            match self.queue.back_mut() {
                Some(Entry::Passed { count, .. }) if *count > 1 => {
                    *count -= 1;
                    self.queue.push_back(Entry::Waiting { cost, number });
                }
                Some(last) => *last = Entry::Waiting { cost, number },
                None => {}
            }
        }
        self.held.insert(number, (cost, Some(verdict)));
    }

    /// Adds a claim that waited in the limiter's own queue when the simulation began.
    pub(crate) fn adopt(&mut self, number: u64, cost: u64) {
        self.push(Entry::Waiting { cost, number });
        self.held.insert(number, (cost, None));
    }

    /// Adds a debt that was in the limiter's own queue, behind claims, when the simulation began.
    pub(crate) fn adopt_debt(&mut self, tokens: u64) {
        if tokens > 0 {
            self.push(Entry::Debt(tokens));
        }
    }

    /// The limiter has granted the claim with this number. Returns the verdict on it, if it arrived here.
    pub(crate) fn pass(&mut self, number: u64) -> Option<Verdict> {
        self.held.remove(&number)?.1
    }

    /// A claim left the limiter's own queue at `now` without a grant, so it leaves the simulation too. If the
    /// simulation had granted it, its tokens are refunded here.
    pub(crate) fn leave(&mut self, number: u64, now: u64) {
        self.serve(now);
        let held = self.held.remove(&number);
        let is_it = |entry: &Entry| matches!(entry, Entry::Waiting { number: own, .. } if *own == number);
        let index = self.queue.iter().position(is_it);
        if let Some((index, Entry::Waiting { cost, .. })) =
            index.and_then(|index| Some((index, self.queue.remove(index)?)))
        {
            (self.waiting, self.tokens) = (self.waiting - 1, self.tokens - cost);
            self.ahead = Ahead::Stale;
            if index == 0 {
                // Tokens above the burst that were saved for this claim are lost, after the debts behind it.
                self.front();
                self.supply.cut(None);
                self.serve(now);
            }
        } else if let Some((cost, None | Some(Verdict::AtOnce { .. } | Verdict::Waits { .. }))) = held {
            self.refund(cost, now, None);
        }
    }

    /// Counts the verdict on a call that passed, or that waits for another reason.
    pub(crate) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::AtOnce { .. } | Verdict::Waits { nanos: Some(0) } => {}
            Verdict::Waits { nanos } => {
                self.totals.would_wait += 1;
                self.totals.longest = self.totals.longest.max(nanos.unwrap_or(0));
            }
            Verdict::Refused { by, .. } => {
                self.totals.would_refuse += 1;
                if let Bound::Quota(index) = by {
                    self.totals.refused_by[index] += 1;
                }
            }
        }
    }
}

/// Serves `entry` ahead of time. `None` if no clock can tell when.
fn cover(supply: &mut Supply, entry: &Entry) -> Option<()> {
    let (cost, count) = match *entry {
        Entry::Passed { cost, count } => (cost, count),
        Entry::Waiting { cost, .. } => (cost, 1),
        Entry::Debt(tokens) => {
            supply.claim(tokens);
            return Some(());
        }
    };
    (0..count).try_for_each(|_| supply.serve_ahead(supply.claimed(), cost))
}
