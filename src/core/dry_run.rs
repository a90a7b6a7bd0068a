//! Dry run: what a limiter would do if all of its quotas were enforced.
//!
//! A limiter with a quota in dry run has two parts that do not read each other:
//!
//! * The limiter itself. A quota in dry run is represented there by an [open](super::schedule::Schedule::open) schedule,
//!   which holds back no claim. All algorithms are the same as without dry run.
//! * A [`DryRun`], which simulates the same limiter with **all** quotas enforced. Every call that the limiter itself does
//!   not refuse arrives here too, and gets a [`Verdict`]. The simulation never grants, delays or refuses anything.
//!
//! So a quota in dry run cannot weaken or delay the enforced quotas beside it, and the simulation is exact by
//! construction: it moves the same [`Supply`] by the same rule as the queue of a limiter (see `state/serving.rs`).
//!
//! The simulated queue is first come, first served, and its claims have no callers. So the wait of an arriving claim is
//! known at once: it is the instant at which the claim passes behind all claims in the queue, which `core/forecast.rs`
//! tells.
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

use crate::core::forecast::{Claim, Forecast, Line};
use crate::core::schedule::Schedule;
use crate::core::supply::Supply;
use crate::error::Bound;
use crate::observe::{GrantWord, Reason, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most claims that the simulated queue holds. It has no futures that hold its claims, so nothing else would bound
/// its memory while more calls arrive than the quotas allow.
const MOST_WAITING: u64 = 1 << 16;

/// Successive claims of one cost in the simulated queue, which numbers its claims from 1 in the order of their arrival.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The numbers of the first claim, and of the one after the last.
    first: u64,
    end: u64,
    cost: u64,
    /// The debt that is paid after the last of them.
    debt_after: u64,
}

/// A claim that waits in the limiter's own queue: an enforced quota, the cap or a pause holds it back there.
#[derive(Clone, Copy, Debug)]
struct Held {
    cost: u64,
    /// Its number in the simulated queue; 0 if it never waited there.
    number: u64,
    /// The word of the verdict on it; `None` if it waited already when the simulation began.
    word: Option<GrantWord>,
}

/// The simulation of one limiter; see the head of this file.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// All quotas, as of the instant up to which the simulated queue has been served. Without a ceiling.
    pub(crate) supply: Supply,
    queue: VecDeque<Run>,
    /// The number of the claim that arrived last.
    last: u64,
    /// How many claims the queue holds.
    waiting: u64,
    /// The tokens of all claims and debts in the queue.
    tokens: u64,
    /// An upper bound for the cost of any claim in the queue, in tokens.
    largest: u64,
    forecast: Forecast,
    /// Which quotas are in dry run.
    is_dry: Box<[bool]>,
    /// The claims that wait in the limiter's own queue, by their numbers there.
    held: BTreeMap<u64, Held>,
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
    /// Starts from the limiter's own supply, with the claims that wait in its queue. The first of them begins at `base`.
    pub(crate) fn new(supply: &Supply, base: u64, claims: impl Iterator<Item = Claim>) -> Self {
        let count = supply.quotas().len();
        let mut simulation = Self {
            supply: supply.copied_at(base),
            queue: VecDeque::new(),
            last: 0,
            waiting: 0,
            tokens: 0,
            largest: 0,
            forecast: Forecast::default(),
            is_dry: vec![false; count].into(),
            held: BTreeMap::new(),
            totals: DryTotals { refused_by: vec![0; count].into(), ..DryTotals::default() },
        };
        let adopt = |(number, cost, debt)| {
            let own = simulation.push(cost);
            simulation.owe(debt);
            (number, Held { cost, number: own, word: None })
        };
        simulation.held = claims.map(adopt).collect();
        simulation
    }

    pub(crate) fn is_dry(&self, quota: usize) -> bool {
        self.is_dry.get(quota).is_some_and(|is_dry| *is_dry)
    }

    /// A quota that was enforced is in dry run from now on, with this schedule.
    pub(crate) fn begin(&mut self, quota: usize, schedule: Schedule) {
        self.is_dry[quota] = true;
        let front = self.front_ticket();
        self.supply.continue_quota(quota, schedule, front);
    }

    /// A quota is enforced from now on.
    pub(crate) fn end(&mut self, quota: usize) {
        self.is_dry[quota] = false;
    }

    /// Whether any quota is in dry run.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_dry.contains(&true)
    }

    /// Serves the simulated queue up to `now`, each claim at the instant that the schedule gives it.
    pub(crate) fn serve(&mut self, now: u64) {
        let now = now.max(self.supply.synced());
        while let Some(run) = self.queue.front_mut() {
            let ticket = self.supply.claimed().wrapping_add(run.cost);
            let Some(at) = self.supply.scheduled(ticket).filter(|at| *at <= now) else {
                return self.supply.mint(now, Some(ticket));
            };
            self.supply.mint(at, Some(ticket));
            run.first += 1;
            self.waiting -= 1;
            let is_last = run.first == run.end;
            let tokens = run.cost + if is_last { run.debt_after } else { 0 };
            self.supply.claim(tokens);
            self.tokens -= tokens;
            if is_last {
                self.queue.pop_front();
            }
        }
        self.largest = 0;
        self.supply.mint(now, None);
    }

    /// The position at which the front claim ends.
    fn front_ticket(&self) -> Option<u64> {
        Some(self.supply.claimed().wrapping_add(self.queue.front()?.cost))
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
                self.push(cost);
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
        let (base, tail) = (self.supply.claimed(), self.tail());
        let Some(front) = self.queue.front().filter(|_| !self.supply.is_straight()) else {
            return self.supply.scheduled(tail.wrapping_add(cost));
        };
        let line = Line { base, tail, first: (front.first, front.cost), largest: self.largest };
        let claims = |from| {
            let runs = self.queue.range(self.queue.partition_point(|run| run.end <= from)..);
            runs.flat_map(move |run| run.claims_from(from))
        };
        self.forecast.predict(&self.supply, line, cost, claims)
    }

    /// A claim of `cost` joins the end of the queue. Returns its number.
    fn push(&mut self, cost: u64) -> u64 {
        self.waiting += 1;
        self.tokens += cost;
        self.largest = self.largest.max(cost);
        self.last += 1;
        match self.queue.back_mut() {
            Some(run) if (run.end, run.cost, run.debt_after) == (self.last, cost, 0) => run.end += 1,
            _ => self.queue.push_back(Run { first: self.last, end: self.last + 1, cost, debt_after: 0 }),
        }
        self.last
    }

    /// Records a debt behind all claims.
    fn owe(&mut self, tokens: u64) {
        let Some(run) = self.queue.back_mut() else { return self.supply.claim(tokens) };
        run.debt_after += tokens;
        self.tokens += tokens;
        self.forecast.note_debt(run.end - 1, tokens);
    }

    /// Records that a claim of `cost`, on which the verdict in `word` was given just now, waits in the limiter's own
    /// queue with this number.
    pub(crate) fn hold(&mut self, number: u64, cost: u64, word: GrantWord) {
        let own = if let Some(Verdict::Waits { .. }) = word.verdict() { self.last } else { 0 };
        self.held.insert(number, Held { cost, number: own, word: Some(word) });
    }

    /// The limiter has granted the claim with this number. Returns the word of the verdict on it. A claim that waited
    /// already when the simulation began has left no tokens, whatever the open schedules say.
    pub(crate) fn pass(&mut self, number: u64) -> Option<GrantWord> {
        Some(self.held.remove(&number)?.word.unwrap_or(GrantWord::NOTHING))
    }

    /// The tokens of the claims in the limiter's own queue that the simulation has refused. Refunds of them count for a quota
    /// that is enforced from `epoch` on, which they will take tokens of.
    pub(crate) fn refused_tokens(&mut self, epoch: u64) -> u64 {
        let words = self.held.values_mut().filter_map(|held| Some((held.cost, held.word.as_mut()?)));
        let refused = words.filter(|(_, word)| word.is_refused());
        refused.map(|(cost, word)| (cost, *word = word.refused_in(epoch)).0).sum()
    }

    /// A claim left the limiter's own queue at `now` without a grant, so it leaves the simulation too. If the
    /// simulation had granted it, its tokens are refunded here.
    pub(crate) fn leave(&mut self, number: u64, now: u64) {
        self.serve(now);
        let Some(Held { cost, number, word }) = self.held.remove(&number) else { return };
        let index = self.queue.partition_point(|run| run.end <= number);
        let Some(run) = self.queue.get_mut(index).filter(|run| run.first <= number) else {
            if !word.is_some_and(GrantWord::is_refused) {
                self.refund(cost, now, None);
            }
            return;
        };
        (self.waiting, self.tokens) = (self.waiting - 1, self.tokens - cost);
        self.forecast.note_leave(number, run.debt_after);
        let after = Run { first: number + 1, ..*run };
        (run.end, run.debt_after) = (number, 0);
        let next = if run.is_empty() { index } else { index + 1 };
        if run.is_empty() {
            self.queue.remove(index);
        }
        if !after.is_empty() {
            self.queue.insert(next, after);
        } else if next > 0 {
            self.queue[next - 1].debt_after += after.debt_after;
        } else {
            self.tokens -= after.debt_after;
            self.supply.claim(after.debt_after);
        }
        if next == 0 {
            // Tokens above the burst that were saved for this claim are lost, after the debts behind it.
            self.supply.cut(None);
            self.serve(now);
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

impl Run {
    fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// The claims with this number or a higher one.
    fn claims_from(self, from: u64) -> impl Iterator<Item = Claim> {
        let debt_after = move |number| if number + 1 == self.end { self.debt_after } else { 0 };
        (self.first.max(from)..self.end).map(move |number| (number, self.cost, debt_after(number)))
    }
}
