//! Claims on the oracle, and the contents of refusals.

use super::{Answer, Bound, Bucket, COST_MAX, END_OF_TIME, Entry, Id, Int, Oracle, Refill};

impl Oracle {
    pub(crate) fn try_acquire(&mut self, now: Int, id: Id, cost: Int) -> Answer {
        self.advance(now);
        if self.closed {
            return Answer::Closed;
        }
        if cost > self.most_at_once() {
            return Answer::TooLarge { most: self.most_at_once() };
        }
        if cost > 0 && !self.fits_now(cost) {
            return Answer::Denied {
                retry_after: self.wait(now, cost),
                remaining: self.available(),
                by: self.bound_of(cost),
            };
        }
        self.take(id, cost);
        Answer::Granted
    }

    /// The first poll of a `consume`.
    pub(crate) fn consume(&mut self, now: Int, id: Id, cost: Int) -> Answer {
        self.advance(now);
        if self.closed {
            return Answer::Closed;
        }
        if cost > self.most_ever() {
            return Answer::TooLarge { most: self.most_ever() };
        }
        if cost == 0 || self.fits_now(cost) {
            self.take(id, cost);
            return Answer::Granted;
        }
        if self.waiting() >= self.max_waiting {
            return Answer::QueueFull { waiting: self.waiting() };
        }
        self.queue.push_back(Entry::Waiter { id, cost });
        self.advance(now);
        Answer::Waits
    }

    /// The first poll of a `consume(..).within(allowed)`: refused at once if the schedule already says that it will be
    /// late.
    pub(crate) fn consume_within(&mut self, now: Int, id: Id, cost: Int, allowed: Int) -> Answer {
        let mut tried = self.clone();
        let answer = tried.consume(now, id, cost);
        if answer == Answer::Waits {
            // A wait that ends after the end of time takes all of it.
            let estimate = self.estimate(now, cost);
            let estimate = estimate.or(self.is_beyond_time(cost).then_some(END_OF_TIME - now));
            if let Some(estimate) = estimate.filter(|&estimate| estimate > allowed) {
                return Answer::TooLate { estimate };
            }
        }
        *self = tried;
        answer
    }

    /// Whether time mints the tokens for everything that waits and for `cost` more, but only after its end.
    fn is_beyond_time(&self, cost: Int) -> bool {
        let waits = |entry: &Entry| match *entry {
            Entry::Waiter { cost, .. } => cost,
            Entry::Debt(tokens) => tokens,
        };
        let tokens = self.queue.iter().map(waits).sum::<Int>() + cost;
        let is_timed = |bucket: &&Bucket| !matches!(bucket.rule.refill, Refill::Manual | Refill::Sliding { .. });
        self.buckets.iter().filter(is_timed).any(|bucket| bucket.when(self.last, tokens).is_none())
    }

    /// How long a `consume(cost)` would wait if no release were needed. `None` if a manual quota has to be replenished
    /// first, or the claim would be refused. Like every span it is counted from what the clock shows, though that may
    /// have stepped back: it is the clock that the caller will watch.
    pub(crate) fn estimate(&mut self, now: Int, cost: Int) -> Option<Int> {
        self.advance(now);
        if self.closed || cost > self.most_ever() {
            return None;
        }
        let uncapped = Oracle { max_in_flight: None, ..self.clone() };
        if cost == 0 || uncapped.fits_now(cost) {
            return Some(0);
        }
        uncapped.wait(now, cost)
    }

    /// The largest cost that a `consume` could ever be granted.
    fn most_ever(&self) -> Int {
        let is_sliding = |bucket: &&Bucket| matches!(bucket.rule.refill, Refill::Sliding { .. });
        let windows = self.buckets.iter().filter(is_sliding).map(|bucket| bucket.rule.burst);
        windows.chain(self.max_in_flight).min().unwrap_or(COST_MAX).min(COST_MAX)
    }

    /// The largest cost that a `try_acquire` could ever be granted.
    fn most_at_once(&self) -> Int {
        let bursts = self.buckets.iter().map(|bucket| bucket.rule.burst);
        bursts.chain(self.max_in_flight).min().expect("a limiter has a quota")
    }

    fn fits_now(&self, cost: Int) -> bool {
        self.queue.is_empty()
            && self.last >= self.gate
            && !self.ceiling_lacks(cost)
            && self.buckets.iter().all(|bucket| bucket.level >= cost)
    }

    /// How long a new claim at the end of the queue would wait. Zero if its instant has come, also if the clock has
    /// stepped back before it.
    fn wait(&self, now: Int, cost: Int) -> Option<Int> {
        self.grant_instant(cost).map(|at| if at <= self.last { 0 } else { at - now })
    }

    /// When a new claim at the end of the queue is granted if there are no further calls: simulates it.
    fn grant_instant(&self, cost: Int) -> Option<Int> {
        let mut played = Oracle { log: Vec::new(), ..self.clone() };
        let newcomer = Id::MAX;
        played.queue.push_back(Entry::Waiter { id: newcomer, cost });
        while played.log.last().is_none_or(|granted| granted.id != newcomer) {
            let at = played.next_grant()?;
            played.mint(at);
            played.grant_front();
        }
        Some(played.last)
    }

    /// The bound that delays `cost` for the longest time: an unknown wait is longer than a known one, and the ceiling's
    /// is the longest.
    fn bound_of(&self, cost: Int) -> Bound {
        if !self.queue.is_empty() {
            return Bound::Queue;
        }
        let never = Int::MAX;
        let in_flight = self.ceiling_lacks(cost).then_some((never, Bound::InFlight));
        let due = |bucket: &Bucket| bucket.when(self.last, cost).unwrap_or(never);
        let lacking = self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.level < cost);
        let quotas = lacking.map(|(index, bucket)| (due(bucket), Bound::Quota(index)));
        let pause = (self.last < self.gate).then_some((self.gate, Bound::Pause));
        // Of equal waits the first in this order is reported.
        let bounds: Vec<(Int, Bound)> = in_flight.into_iter().chain(quotas).chain(pause).collect();
        let longest = bounds.iter().map(|&(due, _)| due).max();
        bounds.iter().find(|&&(due, _)| Some(due) == longest).expect("something refused it").1
    }
}
