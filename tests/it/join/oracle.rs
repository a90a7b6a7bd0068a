//! Three queues and the joint claims over some of them, simulated nanosecond by nanosecond: the rule of `core/joint.rs` for
//! one set, without positions, virtual time, locks and threads.

use crate::oracle::ops::continuous;
use crate::oracle::{self, Int};
use std::collections::{HashMap, VecDeque};

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

#[derive(Debug)]
pub(crate) struct Bucket {
    rule: Rule,
    supply: oracle::Bucket,
    in_flight: u64,
    paused_until: u64,
    plain: VecDeque<(usize, u64)>,
    /// Whether it holds the front joint claim, and whether until the grant.
    held: bool,
    stays: bool,
    /// When it could grant the front, as of the last look, and when it begins to hold it.
    due: Option<u64>,
    start: Option<u64>,
}

/// A claim: its cost in each queue, and when it was granted.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    costs: [u64; QUEUES],
    pub(crate) granted_at: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    now: u64,
    pub(crate) buckets: [Bucket; QUEUES],
    pub(crate) claims: HashMap<usize, Claim>,
    /// The joint claims that wait, the front first.
    joint: VecDeque<usize>,
    /// Whether the front had its turn everywhere when it was last reviewed, and its joint instant.
    has_turn: bool,
    joint_due: Option<u64>,
    /// How many queues have been served at this instant. All have been after a review.
    served: usize,
}

impl Bucket {
    fn new(rule: Rule) -> Self {
        let [amount, period, burst, initial] = [rule.amount, rule.period, rule.burst, rule.initial].map(Int::from);
        let supply = oracle::Bucket::new(continuous(amount, period, burst, initial), 0);
        let (plain, [held, stays], [due, start]) = Default::default();
        Self { rule, supply, in_flight: 0, paused_until: 0, plain, held, stays, due, start }
    }

    /// Mints what so many nanoseconds bring. `front` is the cost of the claim at the front.
    fn mint(&mut self, nanoseconds: Int, front: Option<u64>) {
        self.supply.mint(0, nanoseconds, front.map(Int::from));
    }

    /// The fraction of a token is lost while the bucket is full for another reason than minting.
    fn burn(&mut self, front: Option<u64>) {
        self.mint(0, front);
    }

    /// When a claim of `cost` would be granted if it were at the front from `now` on.
    fn due(&self, now: u64, cost: u64) -> Option<u64> {
        let minted = self.supply.when(now.into(), cost.into())? as u64;
        let has_space = self.rule.cap.is_none_or(|cap| self.in_flight + cost <= cap);
        has_space.then_some(minted.max(self.paused_until))
    }

    fn time_to_mint(&self, cost: u64) -> u64 {
        (cost * self.rule.period).div_ceil(self.rule.amount)
    }

    fn take(&mut self, cost: u64) {
        self.supply.level -= Int::from(cost);
        self.in_flight += cost;
    }

    fn give_back(&mut self, cost: u64) {
        self.supply.add(cost.into(), self.rule.burst.into());
        self.in_flight -= cost;
    }

    /// Burns what was saved above the burst, and above the cost of the claim at the front.
    fn cut(&mut self, front: u64) {
        self.supply.cut(self.rule.burst.max(front).into());
    }

    /// Holds the front joint claim of this cost, if there is one.
    fn hold(&mut self, front: Option<u64>) {
        if self.held || front.is_some() {
            self.cut(front.unwrap_or(0));
        }
        self.held = front.is_some();
    }

    pub(crate) fn level(&self) -> u64 {
        self.supply.level as u64
    }

    pub(crate) fn available(&self, now: u64) -> u64 {
        let most = self.rule.cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.in_flight));
        if self.plain.is_empty() && !self.held && now >= self.paused_until { self.level().min(most) } else { 0 }
    }
}

impl Oracle {
    pub(crate) fn new(rules: [Rule; QUEUES]) -> Self {
        let (buckets, claims) = (rules.map(Bucket::new), HashMap::new());
        Self { now: 0, buckets, claims, joint: VecDeque::new(), has_turn: false, joint_due: None, served: QUEUES }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn waiting(&self, queue: usize) -> u64 {
        let joint = self.joint.iter().filter(|number| self.claims[number].costs[queue] > 0).count();
        (self.buckets[queue].plain.len() + joint) as u64
    }

    fn members(&self) -> Vec<(usize, u64)> {
        let Some(front) = self.joint.front() else { return Vec::new() };
        self.claims[front].costs.into_iter().enumerate().filter(|(_, cost)| *cost > 0).collect()
    }

    fn has_turn_in(&self, queue: usize) -> bool {
        self.joint.front().is_some_and(|front| self.buckets[queue].plain.front().is_none_or(|(first, _)| first > front))
    }

    /// Advances by a nanosecond, and serves each queue.
    pub(crate) fn pass(&mut self) {
        self.now += 1;
        for queue in 0..QUEUES {
            let front = self.front_cost(queue);
            self.buckets[queue].mint(1, front);
        }
        self.served = 0;
        for queue in 0..QUEUES {
            self.served = self.served.max(queue);
            self.serve(queue);
        }
        self.served = QUEUES;
    }

    /// Whether the claim is possible at all.
    pub(crate) fn claim(&mut self, number: usize, costs: [u64; QUEUES], is_joint: bool) -> bool {
        if self.buckets.iter().zip(costs).any(|(bucket, cost)| bucket.rule.cap.is_some_and(|cap| cost > cap)) {
            return false;
        }
        if self.try_claim(number, costs, is_joint) {
            return true;
        }
        self.claims.insert(number, Claim { costs, granted_at: None });
        if is_joint {
            self.joint.push_back(number);
            if self.joint.len() == 1 {
                self.review();
            }
        } else {
            let plain = self.buckets.iter_mut().zip(costs).filter(|(_, cost)| *cost > 0);
            plain.for_each(|(bucket, cost)| bucket.plain.push_back((number, cost)));
        }
        (0..QUEUES).for_each(|queue| self.serve(queue));
        true
    }

    /// Grants all now, or nothing.
    pub(crate) fn try_claim(&mut self, number: usize, costs: [u64; QUEUES], is_joint: bool) -> bool {
        let free = |(bucket, cost): (&Bucket, u64)| cost <= bucket.available(self.now) || cost == 0;
        let is_behind = is_joint && costs != [0; QUEUES] && !self.joint.is_empty();
        let granted = !is_behind && self.buckets.iter().zip(costs).all(free);
        if granted {
            self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.take(cost));
            self.claims.insert(number, Claim { costs, granted_at: Some(self.now) });
        }
        granted
    }

    /// Serves a queue at the present.
    fn serve(&mut self, queue: usize) {
        self.serve_claims(queue);
        let front = self.front_cost(queue);
        self.buckets[queue].burn(front);
    }

    /// The cost of the claim at the front of a queue.
    fn front_cost(&self, queue: usize) -> Option<u64> {
        let bucket = &self.buckets[queue];
        let joint = self.members().into_iter().find(|(member, _)| bucket.held && *member == queue);
        joint.or(bucket.plain.front().copied()).map(|(_, cost)| cost)
    }

    fn serve_claims(&mut self, queue: usize) {
        loop {
            let bucket = &mut self.buckets[queue];
            if !bucket.held
                && let Some((number, cost)) = bucket.plain.front().copied()
                && bucket.due(self.now, cost) == Some(self.now)
            {
                let had_turn = self.has_turn_in(queue);
                let bucket = &mut self.buckets[queue];
                bucket.burn(Some(cost));
                bucket.take(cost);
                bucket.plain.pop_front();
                self.claims.get_mut(&number).expect("waits").granted_at = Some(self.now);
                if !had_turn && self.has_turn_in(queue) && self.is_member(queue) {
                    // The claims that are due in the others at this instant come before it, if those are served later.
                    let mut others = self.others(queue);
                    others.retain(|other| *other > self.served);
                    others.into_iter().for_each(|other| self.serve(other));
                    self.review();
                }
                continue;
            }
            if !self.is_member(queue) || !self.has_turn {
                return;
            }
            if self.buckets[queue].held && self.is_changed(queue) {
                self.review_and_serve(queue);
                continue;
            }
            let bucket = &mut self.buckets[queue];
            if !bucket.held && bucket.start.is_some_and(|start| start <= self.now) && self.joint_due > Some(self.now) {
                let cost = self.members().into_iter().find(|(member, _)| *member == queue).map_or(0, |(_, cost)| cost);
                let bucket = &mut self.buckets[queue];
                bucket.hold(Some(cost));
                let due = bucket.due(self.now, cost);
                if due.is_some_and(|due| Some(due) <= self.joint_due) {
                    bucket.due = due;
                } else {
                    self.review_and_serve(queue);
                }
                continue;
            }
            if self.joint_due.is_some_and(|due| due <= self.now) {
                self.others(queue).into_iter().for_each(|other| self.serve_plain(other));
                self.served = QUEUES;
                self.review();
                self.serve_turns();
                continue;
            }
            return;
        }
    }

    /// The other members, if the queue is one.
    fn others(&self, queue: usize) -> Vec<usize> {
        self.members().into_iter().map(|(member, _)| member).filter(|member| *member != queue).collect()
    }

    fn review_and_serve(&mut self, queue: usize) {
        self.review();
        self.served = QUEUES;
        self.serve_turns();
        self.others(queue).into_iter().for_each(|other| self.serve(other));
    }

    /// Serves the queues in which the front waits for its turn. They come first: the front may then hold the others before
    /// younger claims pass, and before they are full.
    fn serve_turns(&mut self) {
        let waits = |oracle: &Self, queue: &usize| oracle.is_member(*queue) && !oracle.has_turn_in(*queue);
        let queues: Vec<usize> = (0..QUEUES).filter(|queue| waits(self, queue)).collect();
        queues.into_iter().for_each(|queue| self.serve_claims(queue));
    }

    /// Serves a queue that has changed, then the others: a joint claim that is granted lets their claims go.
    fn serve_first(&mut self, queue: usize) {
        self.serve(queue);
        (0..QUEUES).for_each(|queue| self.serve(queue));
    }

    /// Grants the plain claims that are due.
    fn serve_plain(&mut self, queue: usize) {
        let due = self.joint_due.take();
        self.serve(queue);
        self.joint_due = self.joint_due.or(due);
    }

    fn is_member(&self, queue: usize) -> bool {
        self.members().iter().any(|(member, _)| *member == queue)
    }

    /// Whether the instant of a queue that holds the front is another one, and that changes the joint instant.
    fn is_changed(&mut self, queue: usize) -> bool {
        let Some((_, cost)) = self.members().into_iter().find(|(member, _)| *member == queue) else { return false };
        let (now, joint_due, bucket) = (self.now, self.joint_due, &mut self.buckets[queue]);
        let (old, due) = (bucket.due, bucket.due(now, cost));
        let is_past = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if due == old || is_past(due) && is_past(old) {
            return false;
        }
        bucket.due = due;
        match (old, due) {
            (Some(old), Some(due)) => joint_due.is_some_and(|joint_due| due > joint_due || old >= joint_due),
            _ => true,
        }
    }

    /// Decides about the front, and about the next one if it is granted.
    fn review(&mut self) {
        loop {
            let members = self.members();
            self.has_turn = !members.is_empty() && members.iter().all(|(queue, _)| self.has_turn_in(*queue));
            if !self.has_turn {
                return;
            }
            let now = self.now;
            let dues: Vec<_> = members.iter().map(|(queue, cost)| self.buckets[*queue].due(now, *cost)).collect();
            let joint_due = dues.iter().try_fold(now, |latest, due| Some(latest.max((*due)?)));
            if joint_due != Some(now) {
                self.joint_due = joint_due;
                for ((queue, cost), due) in members.into_iter().zip(dues) {
                    let bucket = &mut self.buckets[queue];
                    bucket.stays |= due.is_none();
                    bucket.start = joint_due.map(|at| at.saturating_sub(bucket.time_to_mint(cost)));
                    bucket.due = due;
                    let is_slowest = joint_due.is_some() && due == joint_due;
                    let holds = bucket.stays || is_slowest || bucket.start.is_some_and(|start| start <= now);
                    bucket.hold(holds.then_some(cost));
                }
                return;
            }
            for (queue, cost) in members {
                self.buckets[queue].hold(Some(cost));
                self.buckets[queue].burn(Some(cost));
                self.buckets[queue].take(cost);
            }
            let front = self.joint.pop_front().expect("it was reviewed");
            self.claims.get_mut(&front).expect("waits").granted_at = Some(now);
            self.forget_front();
        }
    }

    /// Another claim is the front now.
    fn forget_front(&mut self) {
        self.joint_due = None;
        self.has_turn = false;
        for bucket in &mut self.buckets {
            (bucket.stays, bucket.due, bucket.start) = (false, None, None);
            bucket.hold(None);
        }
    }

    /// The caller dropped the claim and never saw a grant. Granted tokens are refunded to one queue after the other.
    pub(crate) fn cancel(&mut self, number: usize, order: [usize; QUEUES]) {
        let claim = self.claims.remove(&number).expect("the claim exists");
        let is_front = self.joint.front() == Some(&number);
        if claim.granted_at.is_some() {
            for queue in order.into_iter().filter(|queue| claim.costs[*queue] > 0) {
                self.buckets[queue].give_back(claim.costs[queue]);
                self.serve_first(queue);
            }
            return;
        }
        if is_front {
            self.joint.pop_front();
            self.forget_front();
            self.review();
        }
        self.joint.retain(|other| *other != number);
        for queue in 0..QUEUES {
            let had_turn = self.has_turn_in(queue);
            let bucket = &mut self.buckets[queue];
            let was_first = bucket.plain.front().is_some_and(|(first, _)| *first == number) && !bucket.held;
            bucket.plain.retain(|(other, _)| *other != number);
            if was_first {
                bucket.cut(0);
            }
            if !had_turn && self.has_turn_in(queue) && self.is_member(queue) {
                self.review();
            }
        }
        self.serve_turns();
        (0..QUEUES).for_each(|queue| self.serve(queue));
    }

    /// A grant that was received is dropped.
    pub(crate) fn release(&mut self, number: usize, order: [usize; QUEUES]) {
        let claim = self.claims.remove(&number).expect("the claim was granted");
        for queue in order.into_iter().filter(|queue| claim.costs[*queue] > 0) {
            self.buckets[queue].in_flight -= claim.costs[queue];
            self.serve_first(queue);
        }
    }

    pub(crate) fn pause(&mut self, queue: usize, nanoseconds: u64) {
        let bucket = &mut self.buckets[queue];
        bucket.paused_until = bucket.paused_until.max(self.now + nanoseconds);
        self.change(queue);
    }

    pub(crate) fn resume(&mut self, queue: usize) {
        let bucket = &mut self.buckets[queue];
        bucket.paused_until = bucket.paused_until.min(self.now);
        self.change(queue);
    }

    pub(crate) fn set_cap(&mut self, queue: usize, cap: u64) {
        self.buckets[queue].rule.cap = Some(cap);
        self.change(queue);
    }

    /// The instants of a queue are others now.
    fn change(&mut self, queue: usize) {
        if self.is_member(queue) {
            self.review_and_serve(queue);
        }
        self.serve_first(queue);
    }
}
