//! Two lines and the joint claims that stand in both, nanosecond by nanosecond: no rovers, no virtual time, no threads.

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
}

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
    fn mint(&mut self, nanoseconds: u64) {
        let Rule { amount, period, burst, .. } = self.rule;
        let bound = self.line.front().map_or(burst, |(_, cost)| burst.max(*cost));
        let credit = amount * nanoseconds + self.rem;
        let (minted, rem) = (credit / period, credit % period);
        let room = bound.saturating_sub(self.level);
        // Full before this very nanosecond: time burns.
        let burned = minted > room || (minted == room && rem >= amount);
        self.level += minted.min(room);
        self.rem = if burned { 0 } else { rem };
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        let flies = self.rule.cap.is_none_or(|cap| self.flying + cost <= cap);
        self.level >= cost && flies && now >= self.paused_until
    }

    fn take(&mut self, cost: u64) {
        self.level -= cost;
        self.flying += cost;
    }

    fn give_back(&mut self, cost: u64) {
        self.level = self.level.max((self.level + cost).min(self.rule.burst));
        self.flying -= cost;
    }

    fn leave(&mut self, number: usize) {
        let at_front = self.line.front().is_some_and(|(first, _)| *first == number);
        self.line.retain(|(other, _)| *other != number);
        if at_front && self.level > self.rule.burst {
            (self.level, self.rem) = (self.rule.burst, 0);
        }
    }

    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.line.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn front_cost(&self) -> Option<u64> {
        self.line.front().map(|(_, cost)| *cost)
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
    pub(crate) fn new(rules: [Rule; 2]) -> Self {
        Self { now: 0, buckets: rules.map(Bucket::new), claims: HashMap::new() }
    }

    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        for _ in 0..nanoseconds {
            self.now += 1;
            self.buckets.iter_mut().for_each(|bucket| bucket.mint(1));
            self.serve();
        }
    }

    /// Whether it can be claimed at all.
    pub(crate) fn claim(&mut self, number: usize, costs: [u64; 2]) -> bool {
        if self.buckets.iter().zip(costs).any(|(bucket, cost)| bucket.rule.cap.is_some_and(|cap| cost > cap)) {
            return false;
        }
        if !self.try_claim(number, costs) {
            for (bucket, cost) in self.buckets.iter_mut().zip(costs).filter(|(_, cost)| *cost > 0) {
                bucket.line.push_back((number, cost));
            }
            self.claims.insert(number, Claim { costs, granted_at: None });
        }
        true
    }

    /// All now, or nothing.
    pub(crate) fn try_claim(&mut self, number: usize, costs: [u64; 2]) -> bool {
        let free = |(bucket, cost): (&Bucket, u64)| cost == 0 || bucket.line.is_empty() && bucket.fits(cost, self.now);
        let granted = self.buckets.iter().zip(costs).all(free);
        if granted {
            self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.take(cost));
            self.claims.insert(number, Claim { costs, granted_at: Some(self.now) });
        }
        granted
    }

    /// Serves whoever is at the front of all its lines and fits in all of them.
    fn serve(&mut self) {
        while let Some(number) = self.next_to_pass() {
            let claim = self.claims.get_mut(&number).expect("who stands in line was written down");
            claim.granted_at = Some(self.now);
            for (bucket, cost) in self.buckets.iter_mut().zip(claim.costs).filter(|(_, cost)| *cost > 0) {
                bucket.line.pop_front();
                bucket.take(cost);
            }
        }
    }

    fn next_to_pass(&mut self) -> Option<usize> {
        // A bucket that was filled in this instant keeps no fraction either.
        self.buckets.iter_mut().for_each(|bucket| bucket.mint(0));
        let fronts = self.buckets.iter().filter_map(|bucket| bucket.line.front());
        let mut numbers = fronts.map(|(number, _)| *number);
        numbers.find(|number| self.passes(*number))
    }

    fn passes(&self, number: usize) -> bool {
        self.buckets.iter().zip(self.claims[&number].costs).all(|(bucket, cost)| {
            cost == 0 || bucket.line.front().is_some_and(|front| front.0 == number) && bucket.fits(cost, self.now)
        })
    }

    /// The claim's caller has gone, and never saw a grant. What was granted is given back to one line after the other.
    pub(crate) fn cancel(&mut self, number: usize, order: [usize; 2]) {
        let claim = self.claims.remove(&number).expect("who leaves was there");
        if claim.granted_at.is_none() {
            self.buckets.iter_mut().for_each(|bucket| bucket.leave(number));
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
        self.buckets.iter_mut().zip(claim.costs).for_each(|(bucket, cost)| bucket.flying -= cost);
        self.serve();
    }

    pub(crate) fn pause(&mut self, line: usize, nanoseconds: u64) {
        let bucket = &mut self.buckets[line];
        bucket.paused_until = bucket.paused_until.max(self.now + nanoseconds);
    }

    pub(crate) fn set_cap(&mut self, line: usize, cap: u64) {
        self.buckets[line].rule.cap = Some(cap);
        self.serve();
    }
}
