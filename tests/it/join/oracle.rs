//! Three queues with joint claims, simulated nanosecond by nanosecond: the rule of `core/state/joint.rs`, without
//! positions, virtual time, atomics and threads.

use std::collections::{BTreeSet, HashMap, VecDeque};

pub(crate) const QUEUES: usize = 3;

/// `amount` tokens per `period` nanoseconds, in lowest terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) amount: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    pub(crate) cap: Option<u64>,
}

/// The part of a joint claim at the front.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: usize,
    stays: bool,
    announced: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    rule: Rule,
    /// The instant up to which it has been served.
    at: u64,
    level: u64,
    rem: u64,
    pub(crate) flying: u64,
    paused_until: u64,
    /// Plain claims with their costs, and the places of joint claims, which have no cost here.
    queue: VecDeque<(usize, Option<u64>)>,
    held: Option<Held>,
    blocked: BTreeSet<usize>,
    aside: BTreeSet<usize>,
    alarms: BTreeSet<(u64, usize)>,
}

/// A claim: its cost in each queue, and its state.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) costs: [u64; QUEUES],
    pub(crate) granted_at: Option<u64>,
    committed_at: Option<u64>,
    /// The queues in the order in which the caller named them.
    order: [usize; QUEUES],
    arrived: [bool; QUEUES],
    ready: [bool; QUEUES],
    dues: [Option<u64>; QUEUES],
    is_dead: bool,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) buckets: [Bucket; QUEUES],
    pub(crate) claims: HashMap<usize, Claim>,
    updates: VecDeque<(usize, u64)>,
    unserved: Vec<usize>,
}

impl Bucket {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            at: 0,
            level: rule.initial,
            rem: 0,
            flying: 0,
            paused_until: 0,
            queue: VecDeque::new(),
            held: None,
            blocked: BTreeSet::new(),
            aside: BTreeSet::new(),
            alarms: BTreeSet::new(),
        }
    }

    /// Mints the token of the next `nanoseconds`, if one is due. `front` is the cost of the claim at the front.
    fn mint(&mut self, nanoseconds: u64, front: Option<u64>) {
        let Rule { amount, period, burst, .. } = self.rule;
        self.at += nanoseconds;
        let bound = front.map_or(burst, |cost| burst.max(cost));
        let credit = amount * nanoseconds + self.rem;
        let (minted, rem) = (credit / period, credit % period);
        let space = bound.saturating_sub(self.level);
        // The bucket was full before this nanosecond: the time is lost.
        let burned = minted > space || (minted == space && rem >= amount);
        self.level += minted.min(space);
        self.rem = if burned { 0 } else { rem };
    }

    fn fits(&self, cost: u64) -> bool {
        self.level >= cost && self.flies(cost) && self.at >= self.paused_until
    }

    fn flies(&self, cost: u64) -> bool {
        self.rule.cap.is_none_or(|cap| self.flying + cost <= cap)
    }

    /// When a claim of `cost` would be granted if it were at the front now.
    fn due(&self, cost: u64) -> Option<u64> {
        let Rule { amount, period, .. } = self.rule;
        let wait = match cost.saturating_sub(self.level) {
            0 => 0,
            need => (need * period - self.rem).div_ceil(amount),
        };
        self.flies(cost).then_some((self.at + wait).max(self.paused_until))
    }

    fn time_to_mint(&self, cost: u64) -> u64 {
        (cost * self.rule.period).div_ceil(self.rule.amount)
    }

    fn take(&mut self, cost: u64) {
        self.level -= cost;
        self.flying += cost;
    }

    fn give_back(&mut self, cost: u64) {
        self.level = self.level.max((self.level + cost).min(self.rule.burst));
        self.flying -= cost;
    }

    /// The front was cancelled without a grant.
    fn cut(&mut self) {
        if self.level > self.rule.burst {
            (self.level, self.rem) = (self.rule.burst, 0);
        }
    }

    /// Removes a claim that is not held from wherever it is.
    fn forget(&mut self, number: usize) {
        self.queue.retain(|(other, _)| *other != number);
        self.blocked.remove(&number);
        self.aside.remove(&number);
        self.alarms.retain(|(_, other)| *other != number);
    }

    fn is_held(&self, number: usize) -> bool {
        self.held.is_some_and(|held| held.number == number)
    }

    fn has(&self, number: usize) -> bool {
        self.is_held(number) || self.queue.iter().any(|(other, _)| *other == number) || self.is_aside(number)
    }

    fn is_aside(&self, number: usize) -> bool {
        self.blocked.contains(&number)
            || self.aside.contains(&number)
            || self.alarms.iter().any(|(_, other)| *other == number)
    }

    pub(crate) fn waiting(&self) -> usize {
        let aside = self.blocked.len() + self.aside.len() + self.alarms.len();
        self.queue.len() + aside + usize::from(self.held.is_some())
    }

    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    pub(crate) fn available(&self) -> u64 {
        let most = self.rule.cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.flying));
        if self.is_free() && self.at >= self.paused_until { self.level.min(most) } else { 0 }
    }

    /// No claim waits in the queue.
    fn is_free(&self) -> bool {
        self.queue.is_empty() && self.held.is_none()
    }
}

impl Claim {
    fn joint_due(&self) -> Option<u64> {
        self.dues.iter().copied().reduce(latest).flatten()
    }

    fn others(&self, queue: usize) -> Option<u64> {
        let others = self.dues.iter().enumerate().filter(|(index, _)| *index != queue).map(|(_, due)| *due);
        others.reduce(latest).flatten()
    }

    fn is_committed(&self) -> bool {
        self.ready.iter().all(|ready| *ready)
    }
}

/// The later one; `None` means never.
fn latest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.max(other?))
}

impl Oracle {
    pub(crate) fn new(rules: [Rule; QUEUES]) -> Self {
        let buckets = rules.map(Bucket::new);
        Self { now: 0, buckets, claims: HashMap::new(), updates: VecDeque::new(), unserved: Vec::new() }
    }

    /// Advances by a nanosecond, and serves each queue.
    pub(crate) fn pass(&mut self) {
        self.now += 1;
        for queue in 0..QUEUES {
            self.serve(queue);
            self.run();
        }
    }

    /// The cost of the claim at the front.
    pub(crate) fn front_cost(&self, queue: usize) -> Option<u64> {
        let bucket = &self.buckets[queue];
        match bucket.held {
            Some(held) => Some(self.claims[&held.number].costs[queue]),
            None => bucket.queue.front()?.1,
        }
    }

    pub(crate) fn is_held_ready(&self, queue: usize) -> bool {
        self.buckets[queue].held.is_some() && self.front_cost(queue) <= Some(self.buckets[queue].level)
    }

    /// Whether the claim is possible at all.
    pub(crate) fn claim(
        &mut self,
        number: usize,
        costs: [u64; QUEUES],
        order: [usize; QUEUES],
        is_joint: bool,
    ) -> bool {
        if self.buckets.iter().zip(costs).any(|(bucket, cost)| bucket.rule.cap.is_some_and(|cap| cost > cap)) {
            return false;
        }
        if self.try_claim(number, costs, order) {
            return true;
        }
        let idle = costs.map(|cost| cost == 0);
        let dues = [Some(0); QUEUES];
        let claim = Claim {
            costs,
            granted_at: None,
            committed_at: None,
            order,
            arrived: idle,
            ready: idle,
            dues,
            is_dead: false,
        };
        self.claims.insert(number, claim);
        for (bucket, cost) in self.buckets.iter_mut().zip(costs).filter(|(_, cost)| *cost > 0) {
            bucket.queue.push_back((number, (!is_joint).then_some(cost)));
        }
        // The locks are released in this order.
        (0..QUEUES).rev().for_each(|queue| self.serve(queue));
        self.run();
        true
    }

    /// Grants all now, or nothing.
    pub(crate) fn try_claim(&mut self, number: usize, costs: [u64; QUEUES], order: [usize; QUEUES]) -> bool {
        let free = |(bucket, cost): (&Bucket, u64)| cost == 0 || bucket.is_free() && bucket.fits(cost);
        let granted = self.buckets.iter().zip(costs).all(free);
        if granted {
            self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.take(cost));
            let all = [true; QUEUES];
            let claim = Claim {
                costs,
                granted_at: Some(self.now),
                committed_at: Some(self.now),
                order,
                arrived: all,
                ready: all,
                dues: [None; QUEUES],
                is_dead: false,
            };
            self.claims.insert(number, claim);
        }
        granted
    }

    /// Delivers the events to the queues until none is left.
    fn run(&mut self) {
        loop {
            if let Some((number, at)) = self.updates.pop_front() {
                let Some(order) = self.claims.get(&number).map(|claim| claim.order) else { continue };
                for queue in order {
                    self.receive_update(queue, number, at);
                    if !self.unserved.contains(&queue) {
                        self.unserved.push(queue);
                    }
                }
            } else if !self.unserved.is_empty() {
                let queue = self.unserved.remove(0);
                self.serve(queue);
            } else {
                return;
            }
        }
    }

    fn push_update(&mut self, queue: usize, number: usize) {
        let at = self.buckets[queue].at;
        match self.updates.back_mut() {
            Some((last, last_at)) if *last == number => *last_at = at.max(*last_at),
            _ => self.updates.push_back((number, at)),
        }
    }

    fn receive_update(&mut self, queue: usize, number: usize, at: u64) {
        if !self.buckets[queue].has(number) {
            return;
        }
        if self.claims[&number].is_dead && !self.buckets[queue].is_held(number) {
            self.buckets[queue].forget(number);
            return self.push_update(queue, number);
        }
        self.serve_up_to(queue, at);
        if self.buckets[queue].is_held(number) {
            self.review_held(queue);
        } else if self.buckets[queue].is_aside(number) {
            self.review_aside(queue, number);
        }
    }

    fn serve(&mut self, queue: usize) {
        self.serve_up_to(queue, self.now);
    }

    fn serve_up_to(&mut self, queue: usize, at: u64) {
        loop {
            self.serve_instant(queue);
            if self.buckets[queue].at >= at {
                return;
            }
            let front = self.front_cost(queue);
            self.buckets[queue].mint(1, front);
        }
    }

    /// Serves a queue up to the current instant.
    fn serve_instant(&mut self, queue: usize) {
        loop {
            let bucket = &mut self.buckets[queue];
            if bucket.held.is_none()
                && let Some(number) = bucket.blocked.first().copied()
            {
                self.review_aside(queue, number);
                continue;
            }
            // A pause has ended early.
            if let Some((0, number)) = bucket.alarms.first().copied() {
                self.review_aside(queue, number);
                continue;
            }
            if bucket.held.is_none()
                && let Some((number, None)) = bucket.queue.front().copied()
            {
                bucket.queue.pop_front();
                self.stand_aside(queue, number);
                continue;
            }
            let alarm = bucket.alarms.first().copied().filter(|(at, _)| *at <= bucket.at);
            if let Some(held) = bucket.held {
                let (number, cost) = (held.number, self.claims[&held.number].costs[queue]);
                let claim = self.claims.get_mut(&number).expect("held");
                if !claim.is_committed() && !claim.is_dead {
                    claim.ready[queue] = bucket.fits(cost);
                }
                if claim.is_committed() && claim.committed_at.is_none() {
                    claim.committed_at = Some(bucket.at);
                }
                if claim.committed_at.is_some_and(|at| at <= bucket.at) || claim.is_dead {
                    bucket.mint(0, Some(cost));
                    bucket.held = None;
                    if claim.is_dead {
                        bucket.cut();
                    } else {
                        bucket.take(cost);
                        claim.granted_at = Some(bucket.at);
                    }
                    self.push_update(queue, number);
                    continue;
                }
            } else if let Some((number, Some(cost))) = bucket.queue.front().copied()
                && bucket.fits(cost)
            {
                bucket.mint(0, Some(cost));
                bucket.take(cost);
                bucket.queue.pop_front();
                self.claims.get_mut(&number).expect("waits").granted_at = Some(bucket.at);
                continue;
            }
            if let Some((_, number)) = alarm {
                self.review_aside(queue, number);
                continue;
            }
            let front = self.front_cost(queue);
            self.buckets[queue].mint(0, front);
            return self.report_held(queue);
        }
    }

    fn stand_aside(&mut self, queue: usize, number: usize) {
        if self.claims[&number].is_dead {
            return self.push_update(queue, number);
        }
        let cost = self.claims[&number].costs[queue];
        let due = self.buckets[queue].due(cost);
        let claim = self.claims.get_mut(&number).expect("waits");
        claim.dues[queue] = due;
        claim.arrived[queue] = true;
        if claim.arrived.iter().all(|arrived| *arrived) {
            self.push_update(queue, number);
        }
        self.buckets[queue].aside.insert(number);
        self.review_aside(queue, number);
    }

    fn review_aside(&mut self, queue: usize, number: usize) {
        let claim = &self.claims[&number];
        let bucket = &mut self.buckets[queue];
        bucket.forget(number);
        if claim.is_dead {
            return self.push_update(queue, number);
        }
        let (cost, others) = (claim.costs[queue], claim.others(queue));
        let has_arrived = claim.arrived.iter().all(|arrived| *arrived);
        if let Some(held) = bucket.held.filter(|held| held.number < number) {
            let joint_due = self.claims[&held.number].joint_due();
            let due = joint_due.map(|at| at.max(bucket.at) + bucket.time_to_mint(cost));
            bucket.blocked.insert(number);
            return self.announce_due(queue, number, due);
        }
        let due = bucket.due(cost);
        match (due, others) {
            _ if !has_arrived => {
                bucket.aside.insert(number);
                return;
            }
            (None, _) => return self.hold(queue, number),
            (Some(_), None) => drop(bucket.aside.insert(number)),
            (Some(due), Some(others)) => {
                let start = due.max(others).saturating_sub(bucket.time_to_mint(cost));
                if start <= bucket.at {
                    return self.hold(queue, number);
                }
                bucket.alarms.insert((start, number));
            }
        }
        self.announce_due(queue, number, due);
    }

    fn review_held(&mut self, queue: usize) {
        self.report_held(queue);
        let Some(held) = self.buckets[queue].held.filter(|held| !held.stays) else { return };
        let Some(due) = held.announced else { return };
        let claim = &self.claims[&held.number];
        if claim.is_committed() {
            return;
        }
        let (cost, bucket) = (claim.costs[queue], &mut self.buckets[queue]);
        let start = claim.others(queue).map(|others| due.max(others).saturating_sub(bucket.time_to_mint(cost)));
        if start.is_some_and(|start| start <= bucket.at) {
            return;
        }
        match start {
            Some(start) => drop(bucket.alarms.insert((start, held.number))),
            None => drop(bucket.aside.insert(held.number)),
        }
        bucket.mint(0, Some(cost));
        bucket.held = None;
        bucket.cut();
        self.claims.get_mut(&held.number).expect("waits").ready[queue] = false;
    }

    fn report_held(&mut self, queue: usize) {
        let bucket = &mut self.buckets[queue];
        let Some(held) = &mut bucket.held else { return };
        let (cost, at) = (self.claims[&held.number].costs[queue], bucket.at);
        let due = {
            let Held { number, stays, announced } = *held;
            bucket.held = None;
            let due = bucket.due(cost);
            bucket.held = Some(Held { number, stays, announced });
            due
        };
        let held = bucket.held.as_mut().expect("put back");
        let is_past = |due: Option<u64>| due.is_some_and(|due| due <= at);
        if due == held.announced || is_past(due) && is_past(held.announced) {
            return;
        }
        held.announced = due;
        held.stays |= due.is_none();
        let number = held.number;
        self.announce_due(queue, number, due);
    }

    fn hold(&mut self, queue: usize, number: usize) {
        let younger = self.buckets[queue].held;
        if let Some(held) = younger {
            if self.claims[&held.number].is_committed() || self.claims[&held.number].is_dead {
                self.buckets[queue].blocked.insert(number);
                return;
            }
            self.claims.get_mut(&held.number).expect("waits").ready[queue] = false;
            self.buckets[queue].blocked.insert(held.number);
            self.buckets[queue].cut();
        }
        let bucket = &mut self.buckets[queue];
        let due = bucket.due(self.claims[&number].costs[queue]);
        bucket.held = Some(Held { number, stays: due.is_none(), announced: due });
        self.announce_due(queue, number, due);
        if let Some(held) = younger {
            let bucket = &self.buckets[queue];
            let wait = bucket.time_to_mint(self.claims[&held.number].costs[queue]);
            let due = self.claims[&number].joint_due().map(|at| at.max(bucket.at) + wait);
            self.announce_due(queue, held.number, due);
        }
    }

    fn announce_due(&mut self, queue: usize, number: usize, due: Option<u64>) {
        let claim = self.claims.get_mut(&number).expect("waits");
        let before = (claim.dues[queue], claim.joint_due());
        claim.dues[queue] = due;
        if before.0.is_none() != due.is_none() || before.1 != claim.joint_due() {
            self.push_update(queue, number);
        }
    }

    /// The caller dropped the claim and never saw a grant. Granted tokens are refunded to one queue after the other.
    pub(crate) fn cancel(&mut self, number: usize) {
        let claim = self.claims.get_mut(&number).expect("the claim exists");
        let (order, costs) = (claim.order, claim.costs);
        if claim.granted_at.is_none() {
            claim.is_dead = true;
        }
        for queue in order.into_iter().filter(|queue| costs[*queue] > 0) {
            self.serve(queue);
            if self.claims[&number].granted_at.is_some() {
                self.buckets[queue].give_back(costs[queue]);
            } else {
                let is_plain =
                    self.buckets[queue].queue.front().is_some_and(|(first, cost)| *first == number && cost.is_some());
                let is_front = is_plain && self.buckets[queue].held.is_none();
                self.buckets[queue].forget(number);
                if is_front {
                    self.buckets[queue].cut();
                }
            }
            self.serve(queue);
            self.run();
        }
        self.claims.remove(&number);
    }

    /// A grant that was received is dropped.
    pub(crate) fn release(&mut self, number: usize) {
        let claim = self.claims.remove(&number).expect("the claim was granted");
        for queue in claim.order.into_iter().filter(|queue| claim.costs[*queue] > 0) {
            self.buckets[queue].flying -= claim.costs[queue];
            self.serve(queue);
            self.run();
        }
    }

    pub(crate) fn pause(&mut self, queue: usize, nanoseconds: u64) {
        let bucket = &mut self.buckets[queue];
        bucket.paused_until = bucket.paused_until.max(self.now + nanoseconds);
        self.serve(queue);
        self.run();
    }

    /// The parts that wait aside for an instant, which may have been set by the end of the pause, are looked at before
    /// anything else.
    pub(crate) fn resume(&mut self, queue: usize) {
        let bucket = &mut self.buckets[queue];
        if bucket.at < bucket.paused_until {
            bucket.paused_until = bucket.at;
            bucket.alarms = bucket.alarms.iter().map(|(_, number)| (0, *number)).collect();
        }
        self.serve(queue);
        self.run();
    }

    pub(crate) fn set_cap(&mut self, queue: usize, cap: u64) {
        self.buckets[queue].rule.cap = Some(cap);
        self.serve(queue);
        self.run();
    }
}
