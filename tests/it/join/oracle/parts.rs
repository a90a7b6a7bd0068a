//! The parts of joint claims in one queue: when they are aside, when they are held, and what their queues announce.

use super::Oracle;
use super::bucket::Held;

impl Oracle {
    /// Serves a queue up to the current instant.
    pub(super) fn serve_instant(&mut self, queue: usize) {
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
                self.arrive_part(queue, number);
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
            return self.announce_held_due(queue);
        }
    }

    fn arrive_part(&mut self, queue: usize, number: usize) {
        if self.claims[&number].is_dead {
            return self.push_update(queue, number);
        }
        let cost = self.claims[&number].costs[queue];
        let due = self.buckets[queue].due(cost);
        let claim = self.claims.get_mut(&number).expect("waits");
        claim.due_instants[queue] = due;
        claim.arrived[queue] = true;
        if claim.arrived.iter().all(|arrived| *arrived) {
            self.push_update(queue, number);
        }
        self.buckets[queue].aside.insert(number);
        self.review_aside(queue, number);
    }

    pub(super) fn review_aside(&mut self, queue: usize, number: usize) {
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

    pub(super) fn review_held(&mut self, queue: usize) {
        self.announce_held_due(queue);
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

    fn announce_held_due(&mut self, queue: usize) {
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
        let before = (claim.due_instants[queue], claim.joint_due());
        claim.due_instants[queue] = due;
        if before.0.is_none() != due.is_none() || before.1 != claim.joint_due() {
            self.push_update(queue, number);
        }
    }
}
