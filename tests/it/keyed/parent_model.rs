//! A model of a few keys and their parent limiter that simulates every nanosecond and knows nothing of the
//! implementation: buckets of the oracle, queues of claims, and at most one proxy per key in the parent's queue.

use crate::oracle::{self, ops::continuous};
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
    /// A proxy, for the front of a key's queue.
    ProxyState {
        key: usize,
        cost: i128,
    },
    Debt(i128),
}

impl Item {
    fn cost(self) -> i128 {
        match self {
            Self::Claim { cost, .. } | Self::ProxyState { cost, .. } | Self::Debt(cost) => cost,
        }
    }

    fn is_proxy_of(&self, of: usize) -> bool {
        matches!(self, Self::ProxyState { key, .. } if *key == of)
    }
}

#[derive(Debug)]
struct Bucket {
    rule: Rule,
    supply: oracle::Bucket,
    queue: VecDeque<Item>,
    in_flight: i128,
    paused: u64,
}

impl Bucket {
    fn new(rule: Rule) -> Self {
        let burst = rule.burst.into();
        let supply = oracle::Bucket::new(continuous(rule.amount.into(), rule.period.into(), burst, burst), 0);
        Self { rule, supply, queue: VecDeque::new(), in_flight: 0, paused: 0 }
    }

    fn mint(&mut self, nanoseconds: i128) {
        let front = self.queue.front().map(|front| front.cost());
        self.supply.mint(0, nanoseconds, front);
    }

    /// A fraction above a full bucket is lost, except the one that came with the last token in this very nanosecond.
    fn burn(&mut self) {
        self.mint(0);
    }

    fn has(&self, cost: i128, now: u64) -> bool {
        let has_space = self.rule.cap.is_none_or(|cap| self.in_flight + cost <= i128::from(cap));
        now >= self.paused && has_space && self.supply.level >= cost
    }

    fn is_open(&self, cost: i128, now: u64) -> bool {
        self.queue.is_empty() && self.has(cost, now)
    }

    fn take(&mut self, cost: i128) {
        self.supply.level -= cost;
        self.in_flight += cost;
    }

    /// The front item is gone: the debts behind it are charged, and what it had saved is lost.
    fn move_up(&mut self) {
        self.drop_front();
        self.burn();
    }

    fn drop_front(&mut self) {
        while let Some(Item::Debt(debt)) = self.queue.front() {
            self.supply.level -= debt;
            self.queue.pop_front();
        }
        self.supply.cut_to_burst();
    }

    fn leave(&mut self, is_it: impl Fn(&Item) -> bool) {
        self.remove(is_it);
        self.burn();
    }

    fn remove(&mut self, is_it: impl Fn(&Item) -> bool) -> bool {
        let Some(place) = self.queue.iter().position(is_it) else { return false };
        self.queue.remove(place);
        if place == 0 {
            self.drop_front();
        }
        true
    }

    fn give_back(&mut self, tokens: i128) {
        self.supply.add(tokens, self.rule.burst.into());
        self.in_flight -= tokens;
        self.burn();
    }

    fn charge(&mut self, tokens: i128) {
        self.in_flight += tokens;
        if self.queue.is_empty() {
            self.supply.level -= tokens;
        } else {
            self.queue.push_back(Item::Debt(tokens));
        }
    }

    fn waiting(&self) -> u64 {
        self.queue.iter().filter(|item| !matches!(item, Item::Debt(_))).count() as u64
    }

    fn available(&self, now: u64) -> u64 {
        if !self.queue.is_empty() || now < self.paused {
            return 0;
        }
        let has_space = self.rule.cap.map_or(i128::MAX, |cap| i128::from(cap) - self.in_flight);
        self.supply.level.min(has_space).max(0) as u64
    }
}

#[derive(Debug)]
pub(crate) struct ParentModel {
    keys: Vec<Bucket>,
    parent: Bucket,
    now: u64,
    /// The claims that were granted and have not been reported, in order.
    granted: Vec<Id>,
}

impl ParentModel {
    pub(crate) fn new(rules: &[Rule], parent: Rule) -> Self {
        let keys = rules.iter().copied().map(Bucket::new).collect();
        Self { keys, parent: Bucket::new(parent), now: 0, granted: Vec::new() }
    }

    pub(crate) fn pass_nanosecond(&mut self) {
        self.now += 1;
        self.keys.iter_mut().chain([&mut self.parent]).for_each(|bucket| bucket.mint(1));
        self.serve();
        (0..self.keys.len()).for_each(|key| self.poll_parent(key));
    }

    /// Serves the parent's queue. A key whose proxy is granted claims from the parent again at once.
    fn serve(&mut self) {
        while let Some(front) =
            self.parent.queue.front().copied().filter(|front| self.parent.has(front.cost(), self.now))
        {
            self.parent.queue.pop_front();
            self.parent.take(front.cost());
            self.parent.move_up();
            match front {
                Item::Claim { id, .. } => self.granted.push(id),
                Item::ProxyState { key, .. } => {
                    self.grant_front(key);
                    self.poll_parent(key);
                }
                Item::Debt(_) => unreachable!("debts are charged when they come to the front"),
            }
        }
    }

    fn grant_front(&mut self, key: usize) {
        let own = &mut self.keys[key];
        let Some(Item::Claim { id, cost }) = own.queue.pop_front() else { panic!("a proxy without a front") };
        own.take(cost);
        own.move_up();
        self.granted.push(id);
    }

    fn has_proxy(&self, key: usize) -> bool {
        self.parent.queue.iter().any(|item| item.is_proxy_of(key))
    }

    /// The front of a key takes the tokens it waits for, or enters a proxy, or withdraws it.
    fn poll_parent(&mut self, key: usize) {
        loop {
            let front = self.keys[key].queue.front().map(|front| front.cost());
            let ready = front.filter(|cost| self.keys[key].has(*cost, self.now));
            match ready {
                None if self.has_proxy(key) => {
                    self.replace_proxy(key);
                    return self.serve();
                }
                None => return,
                Some(_) if self.has_proxy(key) => return,
                Some(cost) if self.parent.is_open(cost, self.now) => {
                    self.parent.take(cost);
                    self.grant_front(key);
                }
                Some(cost) => {
                    self.parent.queue.push_back(Item::ProxyState { key, cost });
                    return;
                }
            }
        }
    }

    pub(crate) fn try_acquire(&mut self, key: usize, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let own = &self.keys[key];
        let fits = cost <= own.rule.burst.min(self.parent.rule.burst);
        let cost = cost.into();
        let open = fits && own.is_open(cost, self.now) && self.parent.is_open(cost, self.now);
        if open {
            self.keys[key].take(cost);
            self.parent.take(cost);
        }
        open
    }

    /// Returns true if the claim was granted at once.
    pub(crate) fn consume(&mut self, id: Id, key: usize, cost: u64) -> bool {
        let cost = cost.into();
        if self.keys[key].is_open(cost, self.now) && self.parent.is_open(cost, self.now) {
            self.keys[key].take(cost);
            self.parent.take(cost);
            return true;
        }
        self.keys[key].queue.push_back(Item::Claim { id, cost });
        self.poll_parent(key);
        false
    }

    /// `granted` means that it was granted, but its future had not seen that.
    pub(crate) fn cancel(&mut self, id: Id, key: usize, cost: u64, granted: bool) {
        if granted {
            self.keys[key].give_back(cost.into());
            self.poll_parent(key);
            self.parent.give_back(cost.into());
            return self.serve();
        }
        let is_front = matches!(self.keys[key].queue.front(), Some(Item::Claim { id: it, .. }) if *it == id);
        self.keys[key].leave(|item| matches!(item, Item::Claim { id: it, .. } if *it == id));
        if is_front {
            self.replace_proxy(key);
        }
        self.poll_parent(key);
        self.serve();
    }

    /// The front of a key has left. If it had a proxy, the next one enters at the same instant, before any other is served.
    fn replace_proxy(&mut self, key: usize) {
        if !self.parent.remove(|item| item.is_proxy_of(key)) {
            return;
        }
        let next = self.keys[key].queue.front().map(|front| front.cost());
        let next = next.filter(|cost| self.keys[key].has(*cost, self.now));
        self.parent.queue.extend(next.map(|cost| Item::ProxyState { key, cost }));
        self.parent.burn();
    }

    pub(crate) fn settle(&mut self, key: usize, cost: u64, actual: u64) {
        let more = i128::from(actual) - i128::from(cost);
        for parent in [false, true] {
            let bucket = if parent { &mut self.parent } else { &mut self.keys[key] };
            if more > 0 {
                bucket.charge(more)
            } else {
                bucket.give_back(-more)
            }
            self.poll_parent(key);
            self.serve();
        }
    }

    pub(crate) fn release(&mut self, key: usize, cost: u64) {
        self.keys[key].in_flight -= i128::from(cost);
        self.poll_parent(key);
        self.parent.in_flight -= i128::from(cost);
        self.serve();
    }

    // ---- the parent itself -----------------------------------------------------------------------------------------

    pub(crate) fn try_acquire_parent(&mut self, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let open = cost <= self.parent.rule.burst && self.parent.is_open(cost.into(), self.now);
        if open {
            self.parent.take(cost.into());
        }
        open
    }

    pub(crate) fn consume_parent(&mut self, id: Id, cost: u64) -> bool {
        let open = self.parent.is_open(cost.into(), self.now);
        if open {
            self.parent.take(cost.into());
        } else {
            self.parent.queue.push_back(Item::Claim { id, cost: cost.into() });
        }
        open
    }

    pub(crate) fn cancel_parent(&mut self, id: Id, cost: u64, granted: bool) {
        if granted {
            self.parent.give_back(cost.into());
        } else {
            self.parent.leave(|item| matches!(item, Item::Claim { id: it, .. } if *it == id));
        }
        self.serve();
    }

    pub(crate) fn release_parent(&mut self, cost: u64) {
        self.parent.in_flight -= i128::from(cost);
        self.serve();
    }

    pub(crate) fn pause_parent(&mut self, span: u64) {
        self.parent.paused = self.parent.paused.max(self.now + span);
    }

    pub(crate) fn resume_parent(&mut self) {
        self.parent.paused = 0;
        self.serve();
    }

    /// A proxy of a key that is paused is withdrawn.
    pub(crate) fn pause(&mut self, key: usize, span: u64) {
        let paused = &mut self.keys[key].paused;
        *paused = (*paused).max(self.now + span);
        self.poll_parent(key);
    }

    pub(crate) fn resume(&mut self, key: usize) {
        self.keys[key].paused = 0;
        self.poll_parent(key);
    }

    // ---- observations
    // ------------------------------------------------------------------------------------------------

    pub(crate) fn take_granted(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.granted)
    }

    /// Of a key, or with `None` of the parent: the available tokens, and the number of waiters.
    pub(crate) fn view(&self, key: Option<usize>) -> (u64, u64) {
        let parent = self.parent.available(self.now);
        match key {
            None => (parent, self.parent.waiting()),
            Some(key) => (self.keys[key].available(self.now).min(parent), self.keys[key].waiting()),
        }
    }
}
