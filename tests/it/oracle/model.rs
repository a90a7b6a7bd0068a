//! Executes a history on the oracle, and returns the result of each op.

use super::law::Given;
use super::ops::{Op, Place, Setup};
use super::{Answer, Id, Int, Oracle};

/// Histories end here, in the year 292: half of the range of a `u64` of nanoseconds.
pub(crate) const END: Int = 1 << 63;

/// The result of an op for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The op had no subject, or it has no result.
    Nothing,
    Answered(Answer),
    Refused,
    Estimate(Option<Int>),
    Heeded {
        first: Answer,
        early: Option<Answer>,
        then: Option<Answer>,
    },
}

/// Everything visible between two ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) available: Int,
    pub(crate) deficiency: Int,
    pub(crate) levels: Vec<Int>,
    pub(crate) waiting: (u64, Int),
    pub(crate) in_flight: Option<Int>,
    /// Tokens granted, tokens refunded.
    pub(crate) turnover: (Int, Int),
    pub(crate) refused_calls: u64,
    pub(crate) paused_for: Option<Int>,
    pub(crate) closed: bool,
}

/// A future that has not ended.
#[derive(Clone, Copy, Debug)]
struct Future {
    id: Id,
    cost: Int,
    /// For `within`: how long it may wait.
    allowed: Option<Int>,
    /// What the clock showed at its first poll.
    since: Option<Int>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) oracle: Oracle,
    clock: Int,
    futures: Vec<Future>,
    /// Each grant, and its latest cost.
    grants: Vec<(Id, Int)>,
    forgotten: Int,
    refused: u64,
    next: Id,
    /// How much of the oracle's log `woken` has returned.
    reported: usize,
    /// Waiters that were granted or refused and have not been polled since.
    woken: Vec<Id>,
    /// Refunded tokens, for the law.
    pub(crate) given: Vec<Given>,
}

impl Model {
    pub(crate) fn new(setup: &Setup) -> Model {
        Model {
            oracle: Oracle::new(&setup.rules, setup.max_in_flight, setup.max_waiting),
            clock: 0,
            futures: Vec::new(),
            grants: Vec::new(),
            forgotten: 0,
            refused: 0,
            next: 0,
            reported: 0,
            woken: Vec::new(),
            given: Vec::new(),
        }
    }

    pub(crate) fn apply(&mut self, op: Op) -> Seen {
        let now = self.clock;
        match op {
            Op::Try(cost) => return Seen::Answered(self.try_acquire(cost)),
            Op::Consume(cost) => return self.create(cost, None, true),
            Op::Create(cost) => return self.create(cost, None, false),
            Op::Within(cost, allowed) => return self.create(cost, Some(allowed), true),
            Op::Poll(place) => return self.pick_future(place).map_or(Seen::Nothing, |place| self.poll(place)),
            Op::Cancel(place) => self.cancel(place),
            Op::Settle(place, actual) => self.settle(place, actual),
            Op::Drop(place) => self.drop_grant(place),
            Op::Forget(place) => self.forget(place),
            Op::Release(tokens) => return self.release(tokens),
            Op::Replenish(tokens) => self.replenish(tokens),
            Op::Tick => self.oracle.advance(now),
            Op::Pass(span) => self.pass(span),
            Op::Back(span) => self.back(span),
            Op::SetQuota(index, rule) => self.oracle.set_quota(now, index, rule),
            Op::SetMax(most) => return self.set_max_in_flight(most),
            Op::Pause(span) => self.oracle.pause_for(now, span),
            Op::Resume => self.oracle.resume(now),
            Op::Close => self.close(),
            Op::Estimate(cost) => return Seen::Estimate(self.oracle.estimate(now, cost)),
            Op::Heed(cost) => return self.heed(cost),
        }
        Seen::Nothing
    }
}

impl Model {
    /// One of two pauses ends; the other ends at `gate`.
    #[cfg(feature = "keyed")]
    pub(crate) fn resume_until(&mut self, gate: Int) {
        self.oracle.resume_until(self.clock, gate);
    }

    fn pass(&mut self, span: Int) {
        self.clock = (self.clock + span).min(END);
    }

    /// The clock is read just before, so that both sides know the time it had reached.
    fn back(&mut self, span: Int) {
        self.oracle.advance(self.clock);
        self.clock = (self.clock - span).max(0);
    }

    fn try_acquire(&mut self, cost: Int) -> Answer {
        let id = self.number();
        let answer = self.oracle.try_acquire(self.clock, id, cost);
        if answer == Answer::Granted {
            self.grants.push((id, cost));
        }
        answer
    }

    fn count(&mut self, answer: Answer) {
        self.refused += u64::from(!matches!(answer, Answer::Granted | Answer::Waits));
    }

    fn create(&mut self, cost: Int, allowed: Option<Int>, poll: bool) -> Seen {
        let id = self.number();
        self.futures.push(Future { id, cost, allowed, since: None });
        if poll { self.poll(self.futures.len() - 1) } else { Seen::Nothing }
    }

    fn poll(&mut self, place: Place) -> Seen {
        let Future { id, cost, allowed, since } = self.futures[place];
        let mut answer = match (since, allowed) {
            (Some(_), _) => self.outcome(id),
            (None, None) => self.oracle.consume(self.clock, id, cost),
            (None, Some(allowed)) => self.oracle.consume_within(self.clock, id, cost, allowed),
        };
        let waited = self.clock - *self.futures[place].since.get_or_insert(self.clock);
        if answer == Answer::Waits && allowed.is_some_and(|allowed| waited >= allowed) {
            self.oracle.cancel(self.clock, id);
            answer = Answer::TimedOut { waited };
        }
        if answer == Answer::Granted {
            self.grants.push((id, cost));
        }
        if answer != Answer::Waits {
            self.futures.remove(place);
            self.unreport(id);
            // A claim that entered the queue and had to leave it does not count as refused.
            if since.is_none() && !matches!(answer, Answer::TimedOut { .. }) {
                self.count(answer);
            }
        }
        Seen::Answered(answer)
    }

    /// The current state of a waiter.
    fn outcome(&mut self, id: Id) -> Answer {
        self.oracle.advance(self.clock);
        match self.oracle.log().iter().any(|granted| granted.id == id) {
            true => Answer::Granted,
            false if self.oracle.is_closed() => Answer::Closed,
            false => Answer::Waits,
        }
    }

    fn cancel(&mut self, place: Place) {
        let Some(place) = self.pick_future(place) else { return };
        let Future { id, cost, since, .. } = self.futures.remove(place);
        if since.is_some() {
            if self.outcome(id) == Answer::Granted {
                self.give(cost);
            }
            self.oracle.cancel(self.clock, id);
            self.unreport(id);
        }
    }

    fn replenish(&mut self, tokens: Int) {
        self.oracle.replenish(self.clock, tokens);
        self.give(tokens);
    }

    fn give(&mut self, tokens: Int) {
        self.given.push(Given { at: self.oracle.now(), tokens });
    }

    fn settle(&mut self, place: Place, actual: Int) {
        let Some(place) = self.pick_grant(place) else { return };
        let (id, cost) = self.grants[place];
        self.oracle.settle(self.clock, id, cost, actual);
        if actual < cost {
            self.give(cost - actual);
        }
        self.grants[place].1 = actual;
    }

    fn drop_grant(&mut self, place: Place) {
        let Some(place) = self.pick_grant(place) else { return };
        let (_, cost) = self.grants.remove(place);
        // Without a ceiling, dropping a grant does nothing, and does not even read the clock.
        if self.oracle.in_flight().is_some() {
            self.oracle.release(self.clock, cost);
        }
    }

    fn forget(&mut self, place: Place) {
        let Some(place) = self.pick_grant(place) else { return };
        self.forgotten += self.grants.remove(place).1;
    }

    fn release(&mut self, tokens: Int) -> Seen {
        if self.oracle.in_flight().is_none() || tokens > self.forgotten {
            return Seen::Refused;
        }
        self.forgotten -= tokens;
        self.oracle.release(self.clock, tokens);
        Seen::Nothing
    }

    fn set_max_in_flight(&mut self, most: Int) -> Seen {
        if self.oracle.in_flight().is_none() {
            return Seen::Refused;
        }
        self.oracle.set_max_in_flight(self.clock, most);
        Seen::Nothing
    }

    fn close(&mut self) {
        self.oracle.advance(self.clock);
        self.report();
        let turned_away = self.oracle.close(self.clock);
        self.woken.extend(turned_away);
    }

    fn heed(&mut self, cost: Int) -> Seen {
        let first = self.try_acquire(cost);
        let (mut early, mut then) = (None, None);
        if let Answer::Denied { retry_after: Some(wait), .. } = first
            && self.clock + wait < END
        {
            if wait > 0 {
                self.pass(wait - 1);
                early = Some(self.try_acquire(cost));
                self.pass(1);
            }
            then = Some(self.try_acquire(cost));
        }
        Seen::Heeded { first, early, then }
    }

    /// The time that the clock shows.
    #[allow(dead_code, reason = "for histories over several models")]
    pub(crate) fn now(&self) -> Int {
        self.clock
    }

    /// Waiters that were granted or refused since the last call, in order, and not polled since.
    pub(crate) fn woken(&mut self) -> Vec<Id> {
        self.report();
        std::mem::take(&mut self.woken)
    }

    fn report(&mut self) {
        for granted in &self.oracle.log()[self.reported..] {
            if self.futures.iter().any(|future| future.id == granted.id) {
                self.woken.push(granted.id);
            }
        }
        self.reported = self.oracle.log().len();
    }

    fn unreport(&mut self, id: Id) {
        self.report();
        self.woken.retain(|&woken| woken != id);
    }

    pub(crate) fn view(&mut self) -> View {
        let oracle = &mut self.oracle;
        oracle.advance(self.clock);
        View {
            available: oracle.available(),
            deficiency: oracle.deficiency(),
            levels: oracle.levels(),
            waiting: (oracle.waiting(), oracle.waiting_tokens()),
            in_flight: oracle.in_flight(),
            turnover: oracle.turnover(),
            refused_calls: self.refused,
            paused_for: oracle.paused_for(self.clock),
            closed: oracle.is_closed(),
        }
    }

    /// The future at `place`.
    pub(crate) fn id_at(&self, place: Place) -> Option<Id> {
        self.futures.get(place).map(|future| future.id)
    }

    /// The place of the future `id`, if it has not ended.
    pub(crate) fn place_of(&self, id: Id) -> Option<Place> {
        self.futures.iter().position(|future| future.id == id)
    }

    /// The latest grant, if it is still held.
    pub(crate) fn latest_grant(&self) -> Option<Place> {
        self.grants.len().checked_sub(1)
    }

    /// The number of the latest caller.
    pub(crate) fn latest_caller(&self) -> Id {
        self.next
    }

    fn number(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    fn pick_future(&self, place: Place) -> Option<Place> {
        place.checked_rem(self.futures.len())
    }

    fn pick_grant(&self, place: Place) -> Option<Place> {
        place.checked_rem(self.grants.len())
    }
}
