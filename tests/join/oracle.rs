//! Two queues and the joint claims that stand in both, nanosecond by nanosecond: no rovers, no virtual time, no threads.
//!
//! The rule of `src/state/joint.rs`, said once more: a claim passes a joint claim in one queue if that still has its tokens
//! there by the instant at which the other queue expects to have them.

use std::collections::{HashMap, VecDeque};

/// `amount` tokens per `period` nanoseconds, in lowest terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) amount: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    pub(crate) cap: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    rule: Rule,
    level: u64,
    rem: u64,
    pub(crate) flying: u64,
    paused_until: u64,
    /// Number and cost of each claim in line.
    line: VecDeque<(usize, u64)>,
}

/// What has become of a claim: its cost in each line, and whether it was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) costs: [u64; 2],
    pub(crate) granted_at: Option<u64>,
    is_joint: bool,
    /// When each queue expects to have its tokens, once it has said so.
    told: [Option<u64>; 2],
}

/// A joint claim at the front of one queue.
#[derive(Clone, Copy, Debug)]
struct Stand {
    number: usize,
    cost: u64,
    before: u64,
    /// When the other queue expects to have its tokens; `None` if this one has said nothing.
    meets: Option<u64>,
}

/// The other queue has said nothing.
const ASIDE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) buckets: [Bucket; 2],
    pub(crate) claims: HashMap<usize, Claim>,
}

impl Bucket {
    fn new(rule: Rule) -> Self {
        Self { rule, level: rule.initial, rem: 0, flying: 0, paused_until: 0, line: VecDeque::new() }
    }

    /// What `nanoseconds` bring: none or one.
    fn mint(&mut self, nanoseconds: u64, saver: Option<u64>) {
        let Rule { amount, period, burst, .. } = self.rule;
        let bound = burst.max(saver.unwrap_or(0));
        let credit = amount * nanoseconds + self.rem;
        let (minted, rem) = (credit / period, credit % period);
        let room = bound.saturating_sub(self.level);
        // Full before this very nanosecond: time burns.
        let burned = minted > room || (minted == room && rem >= amount);
        self.level += minted.min(room);
        self.rem = if burned { 0 } else { rem };
    }

    /// When `tokens` are here, if the level is no higher than the burst or `bound`; `None` if no clock can tell.
    fn due(&self, tokens: u64, bound: u64, now: u64, by_release: bool) -> Option<u64> {
        let Rule { amount, period, burst, cap, .. } = self.rule;
        if !by_release && cap.is_some_and(|cap| self.flying + tokens > cap) {
            return None;
        }
        let need = tokens.saturating_sub(self.level.min(burst.max(bound)));
        let wait = if need == 0 { 0 } else { (need * period - self.rem).div_ceil(amount) };
        Some((now + wait).max(self.paused_until))
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        self.due(cost, cost, now, false) == Some(now)
    }

    fn take(&mut self, cost: u64) {
        self.level -= cost;
        self.flying += cost;
    }

    fn give_back(&mut self, cost: u64) {
        self.level = self.level.max((self.level + cost).min(self.rule.burst));
        self.flying -= cost;
    }

    fn burn(&mut self, bound: u64) {
        if self.level > bound {
            (self.level, self.rem) = (bound, 0);
        }
    }

    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.line.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    pub(crate) fn available(&self, now: u64) -> u64 {
        let most = self.rule.cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.flying));
        if self.line.is_empty() && now >= self.paused_until { self.level.min(most) } else { 0 }
    }
}

impl Oracle {
    /// Whether a joint claim waits there.
    pub(crate) fn holds_joint(&self, line: usize) -> bool {
        self.buckets[line].line.iter().any(|(number, _)| self.claims[number].is_joint)
    }

    pub(crate) fn new(rules: [Rule; 2]) -> Self {
        Self { now: 0, buckets: rules.map(Bucket::new), claims: HashMap::new() }
    }

    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        for _ in 0..nanoseconds {
            self.now += 1;
            for line in 0..2 {
                let saver = self.saver(line);
                self.buckets[line].mint(1, saver);
            }
            self.serve();
        }
    }

    /// Whether it is granted at once, or refused; `None` if it has to wait.
    pub(crate) fn claim(&mut self, number: usize, costs: [u64; 2], is_joint: bool) -> Option<bool> {
        if self.buckets.iter().zip(costs).any(|(bucket, cost)| bucket.rule.cap.is_some_and(|cap| cost > cap)) {
            return Some(false);
        }
        let granted = self.try_claim(number, costs);
        if !granted {
            for (bucket, cost) in self.buckets.iter_mut().zip(costs).filter(|(_, cost)| *cost > 0) {
                bucket.line.push_back((number, cost));
            }
            self.claims.insert(number, Claim { costs, granted_at: None, is_joint, told: [None; 2] });
            self.serve();
        }
        granted.then_some(true)
    }

    /// All now, or nothing.
    pub(crate) fn try_claim(&mut self, number: usize, costs: [u64; 2]) -> bool {
        let free = |(bucket, cost): (&Bucket, u64)| cost == 0 || bucket.line.is_empty() && bucket.fits(cost, self.now);
        let granted = self.buckets.iter().zip(costs).all(free);
        if granted {
            self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.take(cost));
            self.claims.insert(number, Claim { costs, granted_at: Some(self.now), is_joint: true, told: [None; 2] });
        }
        granted
    }

    fn serve(&mut self) {
        while self.serve_one() {}
    }

    /// Whether anything happened.
    fn serve_one(&mut self) -> bool {
        // A bucket that was filled in this instant keeps no fraction either.
        for line in 0..2 {
            let saver = self.saver(line);
            self.buckets[line].mint(0, saver);
        }
        let mut ready = [Vec::new(), Vec::new()];
        for line in 0..2 {
            if self.tell(line) {
                return true;
            }
            let stands = self.stands(line);
            let plain = self.plain(line);
            let passes = |cost| stands.iter().all(|stand| self.may_pass(line, stand, cost));
            if let Some((number, cost)) =
                plain.filter(|(_, cost)| passes(*cost) && self.buckets[line].fits(*cost, self.now))
            {
                let bucket = &mut self.buckets[line];
                bucket.burn(bucket.rule.burst.max(cost));
                self.grant(number);
                return true;
            }
            ready[line] = self.ready(line, stands);
        }
        let both =
            |number: &usize| (0..2).all(|line| self.claims[number].costs[line] == 0 || ready[line].contains(number));
        let Some(number) = ready.iter().flatten().copied().find(both) else { return false };
        for line in 0..2 {
            let (bucket, cost) = (&mut self.buckets[line], self.claims[&number].costs[line]);
            if cost > 0 {
                bucket.burn(bucket.rule.burst.max(cost));
            }
        }
        self.grant(number);
        true
    }

    fn grant(&mut self, number: usize) {
        let claim = self.claims.get_mut(&number).expect("a claim in a queue was written down");
        claim.granted_at = Some(self.now);
        for (bucket, cost) in self.buckets.iter_mut().zip(claim.costs).filter(|(_, cost)| *cost > 0) {
            bucket.line.retain(|(other, _)| *other != number);
            bucket.take(cost);
        }
    }

    /// The first of the plain claims.
    fn plain(&self, line: usize) -> Option<(usize, u64)> {
        self.buckets[line].line.iter().copied().find(|(number, _)| !self.claims[number].is_joint)
    }

    /// For whom more than the burst is kept.
    fn saver(&self, line: usize) -> Option<u64> {
        let stands = self.stands(line);
        let plain = self.plain(line).map(|(_, cost)| cost);
        match plain {
            Some(cost) if stands.iter().all(|stand| self.may_pass(line, stand, cost)) => Some(cost),
            _ => stands.iter().map(|stand| stand.cost).max(),
        }
    }

    /// The joint claims at the front: no plain claim is before them, and no joint claim in the same queues.
    fn stands(&self, line: usize) -> Vec<Stand> {
        let mut stands: Vec<Stand> = Vec::new();
        let mut seen = [false; 2];
        for (number, cost) in self.buckets[line].line.iter().copied() {
            let claim = self.claims[&number];
            if !claim.is_joint {
                break;
            }
            let elsewhere = claim.costs[1 - line] > 0;
            if std::mem::replace(&mut seen[usize::from(elsewhere)], true) {
                continue;
            }
            let others = if elsewhere { claim.told[1 - line].unwrap_or(ASIDE) } else { 0 };
            let meets = claim.told[line].map(|_| others);
            let before = stands.iter().filter(|stand| !self.may_pass(line, stand, cost)).map(|stand| stand.cost).sum();
            stands.push(Stand { number, cost, before, meets });
        }
        stands
    }

    fn may_pass(&self, line: usize, stand: &Stand, cost: u64) -> bool {
        let Some(meets) = stand.meets else { return false };
        let tokens = cost + stand.before + stand.cost;
        let due = self.buckets[line].due(tokens, cost, self.now, meets > self.now);
        meets == ASIDE || due.is_some_and(|due| due <= meets.max(self.now))
    }

    /// Each queue says what it expects: for the first time, or where that changes when a claim meets. True if one did.
    fn tell(&mut self, line: usize) -> bool {
        for Stand { number, cost, before, .. } in self.stands(line) {
            let Some(at) = self.buckets[line].due(before + cost, u64::MAX, self.now, false) else { continue };
            let claim = self.claims.get_mut(&number).expect("a claim in a queue was written down");
            let others = if claim.costs[1 - line] == 0 { Some(0) } else { claim.told[1 - line] };
            let is_news = match (claim.told[line], others) {
                (None, _) => true,
                (_, None) => false,
                (Some(told), Some(meets)) => {
                    let is_other = if at <= self.now { told > self.now } else { told != at };
                    is_other && at.max(told) > meets
                }
            };
            if is_news {
                claim.told[line] = Some(at);
                return true;
            }
        }
        false
    }

    /// Those that have tokens of their own here.
    fn ready(&self, line: usize, mut stands: Vec<Stand>) -> Vec<usize> {
        let is_overdue = |stand: &Stand| stand.meets.is_none_or(|meets| meets <= self.now);
        stands.sort_by_key(|stand| (stand.meets.filter(|_| !is_overdue(stand)).unwrap_or(0), stand.number));
        let (mut taken, mut ready) = (0, Vec::new());
        for stand in stands {
            let is_due = self.buckets[line].due(taken + stand.cost, u64::MAX, self.now, false) == Some(self.now);
            if is_due || is_overdue(&stand) {
                taken += stand.cost;
            }
            if is_due && stand.meets.is_some_and(|meets| meets != ASIDE) {
                ready.push(stand.number);
            }
        }
        ready
    }

    /// The claim's caller has gone, and never saw a grant. What was granted is given back to one line after the other.
    pub(crate) fn cancel(&mut self, number: usize, order: [usize; 2]) {
        let claim = self.claims.remove(&number).expect("who leaves was there");
        if claim.granted_at.is_none() {
            for line in 0..2 {
                let bucket = &mut self.buckets[line];
                bucket.line.retain(|(other, _)| *other != number);
            }
            for line in 0..2 {
                let plain = self.plain(line).map(|(_, cost)| cost);
                let most = self.stands(line).iter().map(|stand| stand.cost).chain(plain).max();
                let bound = self.buckets[line].rule.burst.max(most.unwrap_or(0));
                self.buckets[line].burn(bound);
            }
            return self.serve();
        }
        for line in order {
            self.buckets[line].give_back(claim.costs[line]);
            self.serve();
        }
    }

    /// A grant that was seen is dropped.
    pub(crate) fn release(&mut self, number: usize) {
        let claim = self.claims.remove(&number).expect("what is released was granted");
        for (line, cost) in claim.costs.into_iter().enumerate() {
            self.buckets[line].flying -= cost;
            self.serve();
        }
    }

    pub(crate) fn pause(&mut self, line: usize, nanoseconds: u64) {
        let bucket = &mut self.buckets[line];
        bucket.paused_until = bucket.paused_until.max(self.now + nanoseconds);
        self.serve();
    }

    pub(crate) fn set_cap(&mut self, line: usize, cap: u64) {
        self.buckets[line].rule.cap = Some(cap);
        self.serve();
    }
}
