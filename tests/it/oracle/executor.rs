//! Executes a history on a limiter or on a key, with a manual clock and without a runtime, and returns the result of
//! each op.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::{ConsumeError, Grant, Limiter, ManualClock, TryAcquireError};

use crate::oracle::conversions::{
    nanoseconds, not_acquired, not_consumed, quota, seen_result, signed, signed_tokens, unsigned,
};
use crate::oracle::law::Given;
use crate::oracle::model::{END, Seen, View};
use crate::oracle::ops::{Op, Place, Setup};
use crate::oracle::{Answer, Granted, Id, Int};

/// The claims woken since the last call, in order.
pub(crate) type Woken = Arc<Mutex<Vec<Id>>>;

/// The action of a waker, beside recording that it was called.
pub(crate) trait WakeAction: Send + Sync {
    fn on_wake(&self, id: Id);
}

/// A waker that records which claims were woken, in order.
pub(crate) struct RecordingWaker {
    id: Id,
    /// A later poll brought another waker: this one must not be used any more.
    stale: AtomicBool,
    woken: Woken,
    action: Option<Weak<dyn WakeAction>>,
}

impl RecordingWaker {
    pub(crate) fn new(id: Id, woken: &Woken, action: Option<Weak<dyn WakeAction>>) -> Arc<RecordingWaker> {
        Arc::new(RecordingWaker { id, stale: AtomicBool::new(false), woken: woken.clone(), action })
    }

    /// Marks it as replaced: it must not be used any more.
    pub(crate) fn retire(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        let id = if self.stale.load(Ordering::Relaxed) { Id::MAX } else { self.id };
        self.woken.lock().unwrap().push(id);
        if let Some(action) = self.action.as_ref().and_then(Weak::upgrade) {
            action.on_wake(id);
        }
    }
}

/// A claim whose caller still has its future.
pub(crate) type Claim<'a, G> = Pin<Box<dyn Future<Output = Result<G, ConsumeError>> + 'a>>;

/// What a history is executed on.
pub(crate) trait Target<'a>: Copy {
    type Grant: Held;

    fn try_acquire(self, cost: u64) -> Result<Self::Grant, TryAcquireError>;

    fn consume(self, cost: u64, within: Option<Duration>) -> Claim<'a, Self::Grant>;

    /// Makes the call of an op that is neither about claims and grants nor about the clock.
    fn call(self, op: Op) -> Seen;
}

/// A grant.
pub(crate) trait Held {
    fn cost(&self) -> u64;
    fn settle(&mut self, actual: u64);
    fn forget(self);
}

impl<'a> Target<'a> for &'a Limiter {
    type Grant = Grant<'a>;

    fn try_acquire(self, cost: u64) -> Result<Grant<'a>, TryAcquireError> {
        self.try_acquire(cost)
    }

    fn consume(self, cost: u64, within: Option<Duration>) -> Claim<'a, Grant<'a>> {
        let consume = self.consume(cost);
        match within {
            None => Box::pin(consume),
            Some(allowed) => Box::pin(consume.within(allowed)),
        }
    }

    fn call(self, op: Op) -> Seen {
        match op {
            Op::Release(tokens) => return seen_result(self.release(unsigned(tokens))),
            Op::SetQuota(index, rule) => return seen_result(self.set_quota(index, quota(rule))),
            Op::SetMax(most) => return seen_result(self.set_max_in_flight(unsigned(most))),
            Op::Estimate(cost) => return Seen::Estimate(self.estimate(unsigned(cost)).map(signed)),
            Op::Replenish(tokens) => self.replenish(unsigned(tokens)),
            Op::Tick => self.tick(),
            Op::Pause(span) => self.pause_for(nanoseconds(span)),
            Op::Resume => self.resume(),
            Op::Close => self.close(),
            other => unreachable!("{other:?}"),
        }
        Seen::Nothing
    }
}

impl Held for Grant<'_> {
    fn cost(&self) -> u64 {
        self.cost()
    }

    fn settle(&mut self, actual: u64) {
        self.settle(actual);
    }

    fn forget(self) {
        self.forget();
    }
}

struct Live<'a, G> {
    id: Id,
    cost: Int,
    future: Claim<'a, G>,
    /// The waker of the latest poll.
    waker: Option<Arc<RecordingWaker>>,
}

pub(crate) struct Executor<'a, T: Target<'a> = &'a Limiter> {
    target: T,
    clock: ManualClock,
    /// What the clock shows, from the birth of the limiter.
    now: Int,
    /// The latest time that it ever showed.
    latest: Int,
    /// Whether woken claims are polled at once, and checked against the pause and the cap.
    prompt: bool,
    /// No claim passes before this instant, and no more than this many tokens are in flight.
    gate: Int,
    max_in_flight: Option<Int>,
    /// Tokens of forgotten grants that were not released.
    forgotten: Int,
    /// The latest grant that violates the pause or the cap, as text.
    pub(crate) broken: Option<String>,
    futures: Vec<Live<'a, T::Grant>>,
    grants: Vec<T::Grant>,
    /// The number of callers so far.
    pub(crate) numbered: Arc<AtomicUsize>,
    pub(crate) woken: Woken,
    /// The actions of all wakers.
    pub(crate) action: Option<Weak<dyn WakeAction>>,
    /// The last seen values of tail and published: they only grow.
    rovers: (u64, u64),
    /// Grants in the order in which they were noticed, each with that instant.
    pub(crate) log: Vec<Granted>,
    /// Tokens that may have been refunded, at most.
    pub(crate) given: Vec<Given>,
}

impl<'a, T: Target<'a>> Executor<'a, T> {
    pub(crate) fn new(target: T, clock: &ManualClock) -> Self {
        Executor {
            target,
            clock: clock.clone(),
            now: 0,
            latest: 0,
            prompt: false,
            gate: 0,
            max_in_flight: None,
            forgotten: 0,
            broken: None,
            futures: Vec::new(),
            grants: Vec::new(),
            numbered: Arc::default(),
            woken: Arc::default(),
            action: None,
            rovers: (0, 0),
            log: Vec::new(),
            given: Vec::new(),
        }
    }

    /// For use without an oracle: woken claims are polled at once.
    pub(crate) fn prompt(target: T, clock: &ManualClock, setup: &Setup) -> Self {
        let mut executor = Executor::new(target, clock);
        executor.prompt = true;
        executor.max_in_flight = setup.max_in_flight;
        executor
    }

    pub(crate) fn apply(&mut self, op: Op) -> Seen {
        if self.prompt && matches!(op, Op::Pause(_) | Op::SetMax(_) | Op::Settle(..)) {
            // A claim that was granted before the change was granted correctly.
            self.target.call(Op::Tick);
            self.poll_the_woken();
        }
        let seen = self.act(op);
        if self.prompt {
            self.poll_the_woken();
        }
        seen
    }

    fn act(&mut self, op: Op) -> Seen {
        match op {
            Op::Try(cost) => return Seen::Answered(self.try_acquire(cost)),
            Op::Consume(cost) => return self.create(cost, None, true),
            Op::Create(cost) => return self.create(cost, None, false),
            Op::Within(cost, allowed) => return self.create(cost, Some(allowed), true),
            Op::Poll(place) => return self.pick_future(place).map_or(Seen::Nothing, |place| self.poll(place)),
            Op::Cancel(place) => self.cancel(place),
            Op::Settle(place, actual) => self.settle(place, actual),
            Op::Drop(place) => drop(self.take_grant(place)),
            Op::Forget(place) => self.forget(place),
            Op::Pass(span) => self.pass(span),
            Op::Back(span) => self.back(span),
            Op::Heed(cost) => return self.heed(cost),
            op => return self.call(op),
        }
        Seen::Nothing
    }

    fn try_acquire(&mut self, cost: Int) -> Answer {
        let id = self.number();
        match self.target.try_acquire(unsigned(cost)) {
            Ok(grant) => self.keep(id, cost, grant),
            Err(error) => not_acquired(error, cost),
        }
    }

    fn create(&mut self, cost: Int, allowed: Option<Int>, poll: bool) -> Seen {
        let id = self.number();
        let future = self.target.consume(unsigned(cost), allowed.map(nanoseconds));
        self.futures.push(Live { id, cost, future, waker: None });
        if poll { self.poll(self.futures.len() - 1) } else { Seen::Nothing }
    }

    fn poll(&mut self, place: Place) -> Seen {
        let Live { id, cost, waker, .. } = &self.futures[place];
        let (id, cost, waits) = (*id, *cost, waker.is_some());
        let mut polled = self.poll_once(place);
        if waits && polled.is_pending() {
            // Waiters are served by other calls: their own polls need not read the clock.
            self.target.call(Op::Tick);
            polled = self.poll_once(place);
        }
        let Poll::Ready(result) = polled else { return Seen::Answered(Answer::Waits) };
        self.futures.remove(place);
        self.unring(id);
        Seen::Answered(match result {
            Ok(grant) => self.keep(id, cost, grant),
            Err(error) => not_consumed(error),
        })
    }

    fn poll_once(&mut self, place: Place) -> Poll<Result<T::Grant, ConsumeError>> {
        let Live { id, future, waker, .. } = &mut self.futures[place];
        let next = RecordingWaker::new(*id, &self.woken, self.action.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(next.clone())));
        if let Some(before) = waker.replace(next) {
            before.retire();
        }
        polled
    }

    fn keep(&mut self, id: Id, cost: Int, grant: T::Grant) -> Answer {
        assert_eq!(grant.cost(), unsigned(cost));
        if self.prompt {
            // They were granted before.
            self.poll_the_woken();
            self.look_for_closed_gates(cost);
        }
        self.grants.push(grant);
        self.log.push(Granted { id, at: self.latest, cost });
        Answer::Granted
    }

    fn cancel(&mut self, place: Place) {
        let Some(place) = self.pick_future(place) else { return };
        let Live { id, cost, future, .. } = self.futures.remove(place);
        drop(future);
        self.unring(id);
        self.give(cost);
    }

    fn settle(&mut self, place: Place, actual: Int) {
        let Some(place) = place.checked_rem(self.grants.len()) else { return };
        let grant = &mut self.grants[place];
        let before = signed_tokens(grant.cost());
        grant.settle(unsigned(actual));
        assert_eq!(grant.cost(), unsigned(actual));
        self.give((before - actual).max(0));
    }

    fn look_for_closed_gates(&mut self, cost: Int) {
        let held = self.grants.iter().map(|grant| signed_tokens(grant.cost())).sum::<Int>() + self.forgotten;
        if cost > 0 && self.max_in_flight.is_some_and(|most| held + cost > most) {
            self.broken = Some(format!("{cost} granted while {held} are in flight of {:?}", self.max_in_flight));
        }
        if cost > 0 && self.latest < self.gate {
            self.broken = Some(format!("{cost} granted at {}, paused until {}", self.latest, self.gate));
        }
    }

    fn call(&mut self, op: Op) -> Seen {
        let seen = self.target.call(op);
        match op {
            Op::Pause(span) => self.gate = self.gate.max(self.latest + span),
            Op::Resume => self.gate = self.gate.min(self.latest),
            Op::SetMax(most) => self.max_in_flight = self.max_in_flight.map(|_| most),
            Op::Release(tokens) if seen == Seen::Nothing => self.forgotten -= tokens,
            Op::Replenish(tokens) => self.give(tokens),
            _ => {}
        }
        seen
    }

    fn forget(&mut self, place: Place) {
        let Some(grant) = self.take_grant(place) else { return };
        self.forgotten += signed_tokens(grant.cost());
        grant.forget();
    }

    fn give(&mut self, tokens: Int) {
        self.given.push(Given { at: self.latest, tokens });
    }

    fn take_grant(&mut self, place: Place) -> Option<T::Grant> {
        place.checked_rem(self.grants.len()).map(|place| self.grants.remove(place))
    }

    pub(crate) fn pass(&mut self, span: Int) {
        let span = span.min(END - self.now);
        self.clock.advance(nanoseconds(span));
        self.note(span);
    }

    /// The clock, which others have too, was moved on.
    pub(crate) fn note(&mut self, span: Int) {
        self.now += span;
        self.latest = self.latest.max(self.now);
    }

    fn back(&mut self, span: Int) {
        let span = span.min(self.now);
        self.target.call(Op::Tick);
        self.clock.step_back(nanoseconds(span));
        self.now -= span;
    }

    fn heed(&mut self, cost: Int) -> Seen {
        let first = self.try_acquire(cost);
        let (mut early, mut then) = (None, None);
        if let Answer::Denied { retry_after: Some(wait), .. } = first
            && self.now + wait < END
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

    /// Futures woken since the last call, in order, that have not ended since.
    pub(crate) fn woken(&mut self) -> Vec<Id> {
        std::mem::take(&mut *self.woken.lock().unwrap())
    }

    fn unring(&mut self, id: Id) {
        self.woken.lock().unwrap().retain(|&woken| woken != id);
    }

    /// Polls the woken futures in order, as their tasks would.
    pub(crate) fn poll_the_woken(&mut self) {
        for id in self.woken() {
            if let Some(place) = self.futures.iter().position(|live| live.id == id) {
                self.poll(place);
            }
        }
    }

    /// The limiter's own time, as far as it can know it.
    pub(crate) fn latest(&self) -> Int {
        self.latest
    }

    /// The number of futures that wait, or were granted and not polled since.
    pub(crate) fn futures(&self) -> usize {
        self.futures.len()
    }

    /// How many of them were polled.
    pub(crate) fn polled(&self) -> usize {
        self.futures.iter().filter(|live| live.waker.is_some()).count()
    }

    /// The future at `place`.
    pub(crate) fn id_at(&self, place: Place) -> Option<Id> {
        self.pick_future(place).map(|place| self.futures[place].id)
    }

    /// The number of grants held.
    pub(crate) fn grants(&self) -> usize {
        self.grants.len()
    }

    fn number(&mut self) -> Id {
        1 + self.numbered.fetch_add(1, Ordering::Relaxed)
    }

    fn pick_future(&self, place: Place) -> Option<Place> {
        place.checked_rem(self.futures.len())
    }
}

impl Executor<'_> {
    pub(crate) fn view(&mut self) -> View {
        let snapshot = self.target.snapshot();
        let rovers = (snapshot.tail, snapshot.published);
        assert!(rovers.0 >= self.rovers.0 && rovers.1 >= self.rovers.1, "{rovers:?} are behind {:?}", self.rovers);
        self.rovers = rovers;
        View {
            available: self.target.available().into(),
            deficiency: self.target.deficiency().into(),
            levels: snapshot.quotas.iter().map(|quota| quota.level.into()).collect(),
            waiting: (snapshot.waiting_tasks, snapshot.waiting_tokens.into()),
            in_flight: snapshot.in_flight.map(signed_tokens),
            turnover: (snapshot.granted.into(), snapshot.refunded.into()),
            refused_calls: snapshot.refused,
            paused_for: snapshot.paused_for.map(signed),
            closed: snapshot.closed && self.target.is_closed(),
        }
    }
}
