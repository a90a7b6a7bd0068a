//! Everything but time that changes the queue or the levels: refunds, and the calls of the operator.

use super::{Bucket, Entry, Id, Int, Oracle, Refill, Rule};

impl Oracle {
    /// A future is dropped while it waits, or after it was granted and before it was polled again.
    pub(crate) fn cancel(&mut self, now: Int, id: Id) {
        self.advance(now);
        let place = self.queue.iter().position(|entry| matches!(entry, Entry::Waiter { id: it, .. } if *it == id));
        if let Some(place) = place {
            self.queue.remove(place);
            if place == 0 {
                self.front_left();
            }
        } else if !self.closed_under(id) {
            let index = self.index_granted(id).expect("neither waiting nor granted");
            let cost = self.log[index].cost;
            self.refund(id, cost);
            self.in_flight -= cost;
        }
        self.advance(now);
    }

    /// The tokens that were saved for a giant above the burst are lost with it.
    fn front_left(&mut self) {
        self.pay_debts_at_the_front();
        self.buckets.iter_mut().for_each(Bucket::cut_to_burst);
    }

    /// The latest cost of the grant counts; `cost` is the one before.
    pub(crate) fn settle(&mut self, now: Int, id: Id, cost: Int, actual: Int) {
        self.advance(now);
        if actual < cost {
            self.refund(id, cost - actual);
        } else if actual > cost {
            self.queue.push_back(Entry::Debt(actual - cost));
            self.charged += actual - cost;
        }
        self.in_flight += actual - cost;
        self.advance(now);
    }

    /// A grant of (latest) cost `tokens` is dropped, or that many forgotten tokens are released.
    pub(crate) fn release(&mut self, now: Int, tokens: Int) {
        self.advance(now);
        self.in_flight -= tokens;
        self.advance(now);
    }

    fn refund(&mut self, id: Id, tokens: Int) {
        self.refunded += tokens;
        // In a dry run the claim may still wait.
        let granted = self.log.iter().rev().find(|granted| granted.id == id && !self.uncounted.contains(&id));
        // A grant keeps an instant of the first 36 years.
        let granted_at = granted.map(|granted| granted.at.min((1 << 60) - 1));
        let in_window = granted_at.filter(|_| !self.in_dry_run);
        let waits = |entry: &Entry| if let Entry::Debt(tokens) = entry { *tokens } else { 0 };
        let debts: Int = self.queue.iter().map(waits).sum();
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.takes_back(granted_at, self.last)) {
            bucket.refund(tokens, debts, in_window);
        }
    }

    fn index_granted(&self, id: Id) -> Option<usize> {
        self.log.iter().rposition(|granted| granted.id == id)
    }

    /// Whether `id` was waiting when the limiter closed.
    fn closed_under(&self, id: Id) -> bool {
        self.closed && self.log.iter().all(|granted| granted.id != id)
    }

    /// Replenishes the manual quotas if there are any, otherwise all quotas.
    pub(crate) fn replenish(&mut self, now: Int, tokens: Int) {
        self.advance(now);
        let front = self.front();
        let any_manual = self.buckets.iter().any(|bucket| bucket.rule.refill == Refill::Manual);
        for bucket in &mut self.buckets {
            if !any_manual || bucket.rule.refill == Refill::Manual {
                bucket.add(tokens, bucket.bound(front));
            }
        }
        self.advance(now);
    }

    pub(crate) fn set_quota(&mut self, now: Int, index: usize, rule: Rule) {
        self.advance(now);
        let front = self.front();
        self.buckets[index].change(rule, self.last, front);
        self.advance(now);
    }

    pub(crate) fn set_max_in_flight(&mut self, now: Int, most: Int) {
        self.advance(now);
        self.max_in_flight = Some(most);
        self.advance(now);
    }

    /// The latest end of all pauses counts. If the clock has stepped back, a pause is counted from the latest reading:
    /// counted from the present one, it could be over already.
    pub(crate) fn pause_for(&mut self, now: Int, span: Int) {
        self.advance(now);
        self.gate = self.gate.max(self.last + span);
    }

    /// A pause ends at the latest reading of the clock.
    pub(crate) fn resume(&mut self, now: Int) {
        self.resume_until(now, 0);
    }

    /// One of two pauses ends at the latest reading of the clock; the other ends at `gate`.
    pub(crate) fn resume_until(&mut self, now: Int, gate: Int) {
        self.advance(now);
        self.gate = self.gate.min(self.last.max(gate));
        self.advance(now);
    }

    /// All claims leave the queue, from the front.
    pub(crate) fn close(&mut self, now: Int) -> Vec<Id> {
        self.advance(now);
        let mut turned_away = Vec::new();
        while let Some(Entry::Waiter { id, .. }) = self.queue.pop_front() {
            turned_away.push(id);
            self.front_left();
            // The next one is turned away by a look of its own: what a full bucket has in addition burns before it.
            let front = self.front();
            self.buckets.iter_mut().for_each(|bucket| bucket.mint(now, now, front));
        }
        self.closed = true;
        turned_away
    }
}
