//! A model of a few keys and their parent limiter that simulates every nanosecond and knows nothing of the
//! implementation: buckets in integers, queues of claims, and at most one parent ticket per key in the parent's queue.

use std::collections::VecDeque;

pub(crate) type Id = usize;

/// `amount` tokens each `period` nanoseconds, with at most `cap` in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) amount: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) cap: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    /// A claim on the parent itself.
    Claim {
        id: Id,
        cost: i128,
    },
    /// A parent ticket, for the front of a key's queue.
    ParentTicket {
        key: usize,
        cost: i128,
    },
    Debt(i128),
}

impl Item {
    fn cost(self) -> i128 {
        match self {
            Self::Claim { cost, .. } | Self::ParentTicket { cost, .. } | Self::Debt(cost) => cost,
        }
    }
}

#[derive(Debug)]
struct Bucket {
    rule: Rule,
    /// In fractions of a token: `period` of them are one token.
    level: i128,
    line: VecDeque<Item>,
    flying: i128,
    paused: u64,
}

impl Bucket {
    fn new(rule: Rule) -> Self {
        let level = i128::from(rule.burst * rule.period);
        Self { rule, level, line: VecDeque::new(), flying: 0, paused: 0 }
    }

    fn unit(&self) -> i128 {
        self.rule.period.into()
    }

    fn tokens(&self) -> i128 {
        self.level.div_euclid(self.unit())
    }

    /// What exceeds the burst is lost, except the fraction that came with the last token in this very nanosecond.
    fn burn(&mut self) {
        let front = self.line.front().map_or(0, |front| front.cost());
        let brim = front.max(self.rule.burst.into()) * self.unit();
        if self.level >= brim + i128::from(self.rule.amount.min(self.rule.period)) {
            self.level = brim;
        }
    }

    fn pass_nanosecond(&mut self) {
        self.level += i128::from(self.rule.amount);
        self.burn();
    }

    fn has(&self, cost: i128, now: u64) -> bool {
        let lands = self.rule.cap.is_none_or(|cap| self.flying + cost <= i128::from(cap));
        now >= self.paused && lands && self.tokens() >= cost
    }

    fn is_open(&self, cost: i128, now: u64) -> bool {
        self.line.is_empty() && self.has(cost, now)
    }

    fn take(&mut self, cost: i128) {
        self.level -= cost * self.unit();
        self.flying += cost;
    }

    /// The front item is gone: the debts behind it are charged.
    fn move_up(&mut self) {
        while let Some(Item::Debt(debt)) = self.line.front() {
            self.level -= debt * self.unit();
            self.line.pop_front();
        }
        self.burn_saved();
    }

    /// The claim that was saved for above the burst is gone.
    fn burn_saved(&mut self) {
        if self.tokens() > self.rule.burst.into() {
            self.level = i128::from(self.rule.burst) * self.unit();
        }
        self.burn();
    }

    fn leave(&mut self, is_it: impl Fn(&Item) -> bool) -> bool {
        let Some(place) = self.line.iter().position(is_it) else { return false };
        self.line.remove(place);
        if place == 0 {
            self.move_up();
        }
        true
    }

    fn give_back(&mut self, tokens: i128) {
        let room = (i128::from(self.rule.burst) - self.tokens()).max(0);
        self.level += tokens.min(room) * self.unit();
        self.flying -= tokens;
        self.burn();
    }

    fn charge(&mut self, tokens: i128) {
        self.flying += tokens;
        if self.line.is_empty() {
            self.level -= tokens * self.unit();
        } else {
            self.line.push_back(Item::Debt(tokens));
        }
    }

    fn waiting(&self) -> usize {
        self.line.iter().filter(|item| !matches!(item, Item::Debt(_))).count()
    }

    fn available(&self, now: u64) -> u64 {
        if !self.line.is_empty() || now < self.paused {
            return 0;
        }
        let lands = self.rule.cap.map_or(i128::MAX, |cap| i128::from(cap) - self.flying);
        self.tokens().min(lands).max(0) as u64
    }
}

#[derive(Debug)]
pub(crate) struct ParentModel {
    keys: Vec<Bucket>,
    above: Bucket,
    now: u64,
    /// The claims that were granted and have not been reported, in order.
    granted: Vec<Id>,
}

impl ParentModel {
    pub(crate) fn new(rules: &[Rule], above: Rule) -> Self {
        let keys = rules.iter().copied().map(Bucket::new).collect();
        Self { keys, above: Bucket::new(above), now: 0, granted: Vec::new() }
    }

    pub(crate) fn pass_nanosecond(&mut self) {
        self.now += 1;
        self.keys.iter_mut().chain([&mut self.above]).for_each(Bucket::pass_nanosecond);
        self.serve();
        (0..self.keys.len()).for_each(|key| self.climb(key));
    }

    /// Serves the parent's queue, then the keys with granted parent tickets, in that order.
    fn serve(&mut self) {
        self.serve_above().into_iter().for_each(|key| self.climb(key));
    }

    /// Serves the parent's queue. Returns the keys with granted parent tickets, which claim from the parent next.
    fn serve_above(&mut self) -> Vec<usize> {
        let mut moved = Vec::new();
        while let Some(front) = self.above.line.front().copied().filter(|front| self.above.has(front.cost(), self.now))
        {
            self.above.line.pop_front();
            self.above.take(front.cost());
            self.above.move_up();
            match front {
                Item::Claim { id, .. } => self.granted.push(id),
                Item::ParentTicket { key, .. } => {
                    self.grant_front(key);
                    moved.push(key);
                }
                Item::Debt(_) => unreachable!("debts are charged when they come to the front"),
            }
        }
        moved
    }

    fn grant_front(&mut self, key: usize) {
        let own = &mut self.keys[key];
        let Some(Item::Claim { id, cost }) = own.line.pop_front() else { panic!("a parent ticket without a front") };
        own.take(cost);
        own.move_up();
        self.granted.push(id);
    }

    fn has_envoy(&self, key: usize) -> bool {
        self.above.line.iter().any(|item| matches!(item, Item::ParentTicket { key: it, .. } if *it == key))
    }

    /// The front of a key takes the tokens it waits for, or enters a parent ticket, or withdraws it.
    fn climb(&mut self, key: usize) {
        loop {
            let front = self.keys[key].line.front().map(|front| front.cost());
            let ready = front.filter(|cost| self.keys[key].has(*cost, self.now));
            match ready {
                None if self.has_envoy(key) => {
                    self.call_back(key);
                    return self.serve();
                }
                None => return,
                Some(_) if self.has_envoy(key) => return,
                Some(cost) if self.above.is_open(cost, self.now) => {
                    self.above.take(cost);
                    self.grant_front(key);
                }
                Some(cost) => {
                    self.above.line.push_back(Item::ParentTicket { key, cost });
                    return;
                }
            }
        }
    }

    fn call_back(&mut self, key: usize) {
        self.above.leave(|item| matches!(item, Item::ParentTicket { key: it, .. } if *it == key));
    }

    pub(crate) fn try_acquire(&mut self, key: usize, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let own = &self.keys[key];
        let fits = cost <= own.rule.burst.min(self.above.rule.burst);
        let cost = cost.into();
        let open = fits && own.is_open(cost, self.now) && self.above.is_open(cost, self.now);
        if open {
            self.keys[key].take(cost);
            self.above.take(cost);
        }
        open
    }

    /// Returns true if the claim was granted at once.
    pub(crate) fn consume(&mut self, id: Id, key: usize, cost: u64) -> bool {
        let cost = cost.into();
        if self.keys[key].is_open(cost, self.now) && self.above.is_open(cost, self.now) {
            self.keys[key].take(cost);
            self.above.take(cost);
            return true;
        }
        self.keys[key].line.push_back(Item::Claim { id, cost });
        self.climb(key);
        false
    }

    /// `granted` means that it was granted, but its future had not seen that.
    pub(crate) fn cancel(&mut self, id: Id, key: usize, cost: u64, granted: bool) {
        if granted {
            self.keys[key].give_back(cost.into());
            self.climb(key);
            self.above.give_back(cost.into());
            return self.serve();
        }
        let is_front = matches!(self.keys[key].line.front(), Some(Item::Claim { id: it, .. }) if *it == id);
        self.keys[key].leave(|item| matches!(item, Item::Claim { id: it, .. } if *it == id));
        // The claims behind the removed parent ticket get its tokens before the key claims from the parent again. But
        // the key of that ticket claims before those that are granted in this way.
        let moved = if is_front { self.call_back_and_serve(key) } else { Vec::new() };
        self.climb(key);
        moved.into_iter().for_each(|key| self.climb(key));
        self.serve();
    }

    fn call_back_and_serve(&mut self, key: usize) -> Vec<usize> {
        self.call_back(key);
        self.serve_above()
    }

    pub(crate) fn settle(&mut self, key: usize, cost: u64, actual: u64) {
        let more = i128::from(actual) - i128::from(cost);
        for above in [false, true] {
            let bucket = if above { &mut self.above } else { &mut self.keys[key] };
            if more > 0 {
                bucket.charge(more)
            } else {
                bucket.give_back(-more)
            }
            self.climb(key);
            self.serve();
        }
    }

    pub(crate) fn land(&mut self, key: usize, cost: u64) {
        self.keys[key].flying -= i128::from(cost);
        self.climb(key);
        self.above.flying -= i128::from(cost);
        self.serve();
    }

    // ---- the parent itself -----------------------------------------------------------------------------------------

    pub(crate) fn try_above(&mut self, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let open = cost <= self.above.rule.burst && self.above.is_open(cost.into(), self.now);
        if open {
            self.above.take(cost.into());
        }
        open
    }

    pub(crate) fn consume_above(&mut self, id: Id, cost: u64) -> bool {
        let open = self.above.is_open(cost.into(), self.now);
        if open {
            self.above.take(cost.into());
        } else {
            self.above.line.push_back(Item::Claim { id, cost: cost.into() });
        }
        open
    }

    pub(crate) fn cancel_above(&mut self, id: Id, cost: u64, granted: bool) {
        if granted {
            self.above.give_back(cost.into());
        } else {
            self.above.leave(|item| matches!(item, Item::Claim { id: it, .. } if *it == id));
        }
        self.serve();
    }

    pub(crate) fn land_above(&mut self, cost: u64) {
        self.above.flying -= i128::from(cost);
        self.serve();
    }

    pub(crate) fn pause_above(&mut self, span: u64) {
        self.above.paused = self.above.paused.max(self.now + span);
    }

    pub(crate) fn resume_above(&mut self) {
        self.above.paused = 0;
        self.serve();
    }

    /// A parent ticket of a key that is paused is withdrawn.
    pub(crate) fn pause(&mut self, key: usize, span: u64) {
        let paused = &mut self.keys[key].paused;
        *paused = (*paused).max(self.now + span);
        self.climb(key);
    }

    pub(crate) fn resume(&mut self, key: usize) {
        self.keys[key].paused = 0;
        self.climb(key);
    }

    // ---- observations
    // ------------------------------------------------------------------------------------------------

    pub(crate) fn take_granted(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.granted)
    }

    /// Of a key, or with `None` of the parent: the available tokens, and the number of waiters.
    pub(crate) fn view(&self, key: Option<usize>) -> (u64, usize) {
        let above = self.above.available(self.now);
        match key {
            None => (above, self.above.waiting()),
            Some(key) => (self.keys[key].available(self.now).min(above), self.keys[key].waiting()),
        }
    }
}
