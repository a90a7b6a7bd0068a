//! What the refill task does next: request tokens, and how many, or sleep.

use super::{LeaseRequest, Outage, Plan, RefillPlanner, TTL, View, Wanted};
use crate::core::rovers;
use crate::distributed::MARGIN;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
/// The least time after which the task looks again at a waiter without an instant.
pub(super) const SHARE: u64 = 100 * MILLIS;
/// The shortest time over which the pace is computed.
const SHORTEST_PACE: u64 = 100 * MILLIS;

/// The planner banks as many tokens as are used in this time.
const AHEAD: u64 = 250 * MILLIS;

impl RefillPlanner {
    /// Chooses the refill task's next action: a request, or sleep. The sleep is short while the front waiter has no
    /// instant.
    pub(crate) fn next(&mut self, view: &View) -> Plan {
        self.low = None;
        let mut plan = if view.lack > 0 { self.choose_for_waiters(view) } else { self.choose_alone(view) };
        // Where callers do not wait for the store, the answer to a request for nothing tells that it grants tokens again.
        let tries = self.conflict.is_some() || self.is_out && self.outage != Outage::Wait;
        if tries && matches!(plan, Plan::Sleep(_)) {
            plan = self.ask(view, Wanted::default(), 0, 0);
        }
        if let Plan::Sleep(until) = &mut plan {
            (self.stuck, self.is_asking) = (view.stuck, false);
            if view.stuck.is_some() {
                let looks_at = view.now.saturating_add(SHARE.max(4 * self.round_trip));
                *until = (*until).min(looks_at.max(view.gate).max(self.retry_at));
            }
        }
        plan
    }

    fn choose_for_waiters(&mut self, view: &View) -> Plan {
        let bank = self.bank_at(self.pace_at(view));
        let lead_time = self.round_trip + MARGIN;
        let runs_out = view.ends.map_or(0, |ends| ends.saturating_sub(lead_time)).max(self.retry_at);
        let mut due = view.class_due.unwrap_or(runs_out).max(view.gate);
        let renewal = self.renews_at(view);
        let mut renews = renewal <= view.now || view.has_unused;
        if due <= view.now || renews && view.gate <= view.now {
            let claims = view.wanted;
            if claims.want > 0 {
                self.denies = false;
                // If all claims can have their tokens, the rest of the part is for callers to come.
                let bank = if claims.want >= view.lack { bank } else { 0 };
                let ahead = bank.min(self.part.saturating_sub(claims.want));
                return self.ask(view, claims, ahead, bank);
            }
            // Another bound delays the queue: even the front waiter could not use tokens now.
            due = view.now.saturating_add(lead_time);
            self.low = Some(view.covered.wrapping_add(view.lack));
            // Tell the store once that no claim here waits for its tokens. The answer clears `placed`.
            renews |= self.placed;
        }
        if view.class_due.is_some() {
            // The next claim may be of a class that lacks nothing so far, and asks at once.
            self.low = Some(view.covered.wrapping_add(view.lack));
        }
        if renews {
            return self.ask(view, Wanted::default(), 0, bank);
        }
        Plan::Sleep(due.min(renewal))
    }

    /// The plan while no caller waits: tokens for callers to come.
    fn choose_alone(&mut self, view: &View) -> Plan {
        let pace = self.pace_at(view);
        // A node that asks for more than it may keep waits before it asks again. Callers that wait then need fewer requests;
        // callers that do not would be denied meanwhile.
        let most = if self.denies { self.fair_allowance() } else { u64::MAX };
        let bank = self.bank_at(pace).min(most);
        if view.has_unused {
            return self.ask(view, Wanted::default(), 0, bank);
        }
        let target = bank.min(self.allowance).max(self.minimum);
        let low = self.low_mark(target, pace);
        let is_low = target.max(bank) > 0 && view.banked <= low;
        let again = if is_low { self.may_bank_at() } else { u64::MAX };
        if again <= view.now {
            let bank = bank.max(self.minimum);
            // Other nodes count on their shares of what is left.
            let most = self.part.max(self.minimum);
            let ahead = bank.saturating_sub(view.banked).min(most);
            return self.ask(view, Wanted::default(), ahead, bank);
        }
        // Callers that do not wait find a token again only if the last one that is used is asked for at once.
        let least = u64::from(self.denies && view.banked > 0);
        let low = if is_low { 0 } else { low.max(least) };
        let renewal = self.renews_at(view);
        if renewal > view.now {
            self.low = Some(view.covered.wrapping_sub(low));
            return Plan::Sleep(again.min(renewal));
        }
        if view.total == self.total && !view.is_waiting {
            // It returns all tokens, and the store may forget it.
            (self.pace, self.allowance) = (0, 0);
            (self.total, self.asked_at) = (view.total, view.now);
            Plan::Request(self.final_request())
        } else {
            self.ask(view, Wanted::default(), 0, bank)
        }
    }

    /// When the node asks again, so that the store does not forget what it keeps.
    fn renews_at(&self, view: &View) -> u64 {
        let keeps = self.allowance > 0 || view.keeps;
        if keeps { self.asked_at.saturating_add(TTL / 3) } else { u64::MAX }
    }

    /// Requests tokens for `claims`, and so many `ahead` of callers to come, for whom `bank` tokens are to be kept in all.
    fn ask(&mut self, view: &View, claims: Wanted, ahead: u64, bank: u64) -> Plan {
        let banked = view.banked.min(self.allowance);
        let wanted = bank.max(banked).min(self.fair_allowance()).max(self.minimum).min(self.terms.most_held());
        // A shrinking allowance shrinks here first.
        let is_waiting = view.lack > 0;
        if self.terms.is_calendar() {
            // What is kept when a period begins counts in it: so no more than there is.
            self.allowance = self.allowance.min(banked);
        } else if is_waiting || wanted < self.allowance / 2 || self.allowance > self.fair_allowance() {
            self.allowance = self.allowance.min(wanted);
        }
        (self.pace, self.asked_for) = (self.pace_at(view), claims.claim);
        (self.total, self.asked_at) = (view.total, view.now);
        Plan::Request(LeaseRequest {
            want: claims.want,
            first: claims.first,
            age: claims.age / 1_000,
            useful: claims.useful / 1_000,
            rtt: self.round_trip / 1_000,
            ahead,
            banked: banked.min(self.allowance),
            minimum: self.minimum,
            held: self.allowance,
            ..self.request()
        })
    }

    fn pace_at(&self, view: &View) -> u64 {
        let came = rovers::ahead(view.total, self.total).max(0) as u64;
        let elapsed = view.now.saturating_sub(self.asked_at).max(SHORTEST_PACE);
        let now = (came as u128 * SECOND as u128 / elapsed as u128) as u64;
        now.max(self.pace / 2 + now / 2)
    }

    /// The most that each node may keep unused if other nodes keep tokens too. The store enforces it as well.
    fn fair_allowance(&self) -> u64 {
        (self.terms.burst / (2 * (self.nodes + 1))).max(1).min(self.terms.most_held())
    }

    /// The target number of banked tokens at this pace.
    fn bank_at(&self, pace: u64) -> u64 {
        let soon = scale(pace, AHEAD.max(8 * self.round_trip));
        let is_idle = scale(pace, TTL) == 0;
        soon + u64::from(self.left > 0 && !is_idle)
    }

    /// The number of banked tokens, of `target`, at which to request more: at least one must be used.
    fn low_mark(&self, target: u64, pace: u64) -> u64 {
        (target / 4).max(scale(pace, 2 * self.round_trip)).min(target.saturating_sub(1))
    }

    /// When to ask for tokens to be kept unused. If the store gave less than wanted, the request is not repeated at once.
    fn may_bank_at(&self) -> u64 {
        let is_vain = if self.minimum > 0 { self.vain } else { self.short };
        if is_vain { self.asked_at.saturating_add(SHARE) } else { 0 }
    }
}

/// Tokens used in `nanos` nanoseconds at `pace` tokens per second.
fn scale(pace: u64, nanos: u64) -> u64 {
    (pace as u128 * nanos as u128 / SECOND as u128).min(1 << 48) as u64
}
