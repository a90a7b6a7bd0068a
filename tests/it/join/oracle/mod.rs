//! Three queues with joint claims, simulated nanosecond by nanosecond: the rule of `core/state/joint.rs`, without
//! positions, virtual time, atomics and threads.

mod bucket;
mod claim;
mod parts;

pub(crate) use bucket::{Bucket, Rule};
pub(crate) use claim::Claim;

use std::collections::{HashMap, VecDeque};

pub(crate) const QUEUES: usize = 3;

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) buckets: [Bucket; QUEUES],
    pub(crate) claims: HashMap<usize, Claim>,
    updates: VecDeque<(usize, u64)>,
    unserved: Vec<usize>,
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
        let due_instants = [Some(0); QUEUES];
        let claim = Claim {
            costs,
            granted_at: None,
            committed_at: None,
            order,
            arrived: idle,
            ready: idle,
            due_instants,
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
                due_instants: [None; QUEUES],
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
            self.buckets[queue].in_flight -= claim.costs[queue];
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
