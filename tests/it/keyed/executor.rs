//! Executes a history on a keyed limiter, with a manual clock and without a runtime, and returns the result of each op.

use crate::fixture::*;
use crate::oracle::conversions::{nanoseconds, not_acquired, not_consumed, quota, seen_result, signed, unsigned};
use crate::oracle::executor::{RecordingWaker, Woken};
use crate::oracle::model::{END, Seen};
use crate::oracle::ops::{Op, Place, Setup};
use crate::oracle::{Answer, Id, Int};
use tollgate::KeyedGrant;

pub(crate) type Key = u8;
type Keyed = KeyedLimiter<Key>;
type Grant<'a> = KeyedGrant<'a, Key, std::hash::RandomState>;
type Answered<'a> = Result<Grant<'a>, ConsumeError>;

/// All keys, for grants to borrow.
static KEYS: [Key; 256] = {
    let mut keys = [0; 256];
    let mut key = 0;
    while key < 256 {
        keys[key] = key as Key;
        key += 1;
    }
    keys
};

struct Live<'a> {
    id: Id,
    future: Pin<Box<dyn Future<Output = Answered<'a>> + 'a>>,
    polled: bool,
}

/// The futures and grants of one key.
#[derive(Default)]
struct KeyState<'a> {
    futures: Vec<Live<'a>>,
    grants: Vec<Grant<'a>>,
    woken: Woken,
    next: Id,
}

pub(crate) struct Executor<'a> {
    keyed: &'a Keyed,
    clock: ManualClock,
    now: Int,
    keys: Vec<KeyState<'a>>,
}

/// A keyed limiter as `setup` says, with `shards` shards.
pub(crate) fn build(setup: &Setup, shards: usize, clock: &ManualClock) -> Keyed {
    let builder = KeyedLimiter::builder().max_waiting(setup.max_waiting);
    let builder = setup.rules.iter().fold(builder, |builder, rule| builder.quota(quota(*rule)));
    let builder = builder.clock(clock.clone()).shards(shards);
    let builder = if let Some(most) = setup.max_in_flight { builder.max_in_flight(unsigned(most)) } else { builder };
    builder.build().expect("the setup of a history is valid")
}

impl<'a> Executor<'a> {
    pub(crate) fn new(keyed: &'a Keyed, clock: &ManualClock, keys: usize) -> Self {
        let keys = (0..keys).map(|_| KeyState::default()).collect();
        Self { keyed, clock: clock.clone(), now: 0, keys }
    }

    pub(crate) fn pass(&mut self, span: Int) {
        let span = span.min(END - self.now);
        self.clock.advance(nanoseconds(span));
        self.now += span;
    }

    pub(crate) fn apply(&mut self, key: Key, op: Op) -> Seen {
        match op {
            Op::Try(cost) => return Seen::Answered(self.try_acquire(key, cost)),
            Op::Consume(cost) => return self.create(key, cost, None, true),
            Op::Create(cost) => return self.create(key, cost, None, false),
            Op::Within(cost, allowed) => return self.create(key, cost, Some(allowed), true),
            Op::Poll(place) => {
                return self.pick_future(key, place).map_or(Seen::Nothing, |place| self.poll(key, place));
            }
            Op::Cancel(place) => self.cancel(key, place),
            Op::Settle(place, actual) => self.settle(key, place, actual),
            Op::Drop(place) => drop(self.take_grant(key, place)),
            Op::Forget(place) => drop(self.take_grant(key, place).map(Grant::forget)),
            Op::Release(tokens) => return seen_result(self.keyed.release(&key, unsigned(tokens))),
            Op::Estimate(cost) => return Seen::Estimate(self.keyed.estimate(&key, unsigned(cost)).map(signed)),
            Op::Heed(cost) => return self.heed(key, cost),
            Op::Replenish(tokens) => self.keyed.replenish(&key, unsigned(tokens)),
            Op::Pause(span) => self.keyed.pause_for(&key, nanoseconds(span)),
            Op::Resume => self.keyed.resume(&key),
            other => panic!("{other:?} is not about one key"),
        }
        Seen::Nothing
    }

    fn try_acquire(&mut self, key: Key, cost: Int) -> Answer {
        match self.keyed.try_acquire(&KEYS[usize::from(key)], unsigned(cost)) {
            Ok(grant) => {
                self.number(key);
                self.keep(key, cost, grant)
            }
            Err(error) => {
                self.number(key);
                not_acquired(error, cost)
            }
        }
    }

    fn create(&mut self, key: Key, cost: Int, allowed: Option<Int>, poll: bool) -> Seen {
        let id = self.number(key);
        let consume = self.keyed.consume(&KEYS[usize::from(key)], unsigned(cost));
        let future: Pin<Box<dyn Future<Output = _>>> = match allowed {
            None => Box::pin(consume),
            Some(allowed) => Box::pin(consume.within(nanoseconds(allowed))),
        };
        let futures = &mut self.keys[usize::from(key)].futures;
        futures.push(Live { id, future, polled: false });
        let last = futures.len() - 1;
        if poll { self.poll(key, last) } else { Seen::Nothing }
    }

    fn poll(&mut self, key: Key, place: Place) -> Seen {
        let waits = self.keys[usize::from(key)].futures[place].polled;
        let mut polled = self.poll_once(key, place);
        if waits && polled.is_pending() {
            // Waiters are served by other calls: their own polls need not read the clock.
            self.keyed.available(&key);
            polled = self.poll_once(key, place);
        }
        let Poll::Ready(result) = polled else { return Seen::Answered(Answer::Waits) };
        let state = &mut self.keys[usize::from(key)];
        let Live { id, .. } = state.futures.remove(place);
        state.woken.lock().unwrap().retain(|&woken| woken != id);
        Seen::Answered(match result {
            Ok(grant) => {
                let cost = grant.cost().into();
                self.keep(key, cost, grant)
            }
            Err(error) => not_consumed(error),
        })
    }

    fn poll_once(&mut self, key: Key, place: Place) -> Poll<Answered<'a>> {
        let KeyState { futures, woken, .. } = &mut self.keys[usize::from(key)];
        let live = &mut futures[place];
        live.polled = true;
        let waker = RecordingWaker::new(live.id, woken, None);
        live.future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)))
    }

    fn keep(&mut self, key: Key, cost: Int, grant: Grant<'a>) -> Answer {
        assert_eq!(grant.cost(), unsigned(cost));
        self.keys[usize::from(key)].grants.push(grant);
        Answer::Granted
    }

    fn cancel(&mut self, key: Key, place: Place) {
        let Some(place) = self.pick_future(key, place) else { return };
        let state = &mut self.keys[usize::from(key)];
        let Live { id, future, .. } = state.futures.remove(place);
        drop(future);
        state.woken.lock().unwrap().retain(|&woken| woken != id);
    }

    fn settle(&mut self, key: Key, place: Place, actual: Int) {
        let grants = &mut self.keys[usize::from(key)].grants;
        let Some(place) = place.checked_rem(grants.len()) else { return };
        grants[place].settle(&key, unsigned(actual));
        assert_eq!(grants[place].cost(), unsigned(actual));
    }

    fn take_grant(&mut self, key: Key, place: Place) -> Option<Grant<'a>> {
        let grants = &mut self.keys[usize::from(key)].grants;
        place.checked_rem(grants.len()).map(|place| grants.remove(place))
    }

    fn heed(&mut self, key: Key, cost: Int) -> Seen {
        let first = self.try_acquire(key, cost);
        let (mut early, mut then) = (None, None);
        if let Answer::Denied { retry_after: Some(wait), .. } = first
            && self.now + wait < END
        {
            if wait > 0 {
                self.pass(wait - 1);
                early = Some(self.try_acquire(key, cost));
                self.pass(1);
            }
            then = Some(self.try_acquire(key, cost));
        }
        Seen::Heeded { first, early, then }
    }

    /// The claims woken since the last call.
    pub(crate) fn woken(&mut self, key: Key) -> Vec<Id> {
        std::mem::take(&mut *self.keys[usize::from(key)].woken.lock().unwrap())
    }

    pub(crate) fn futures(&self, key: Key) -> usize {
        self.keys[usize::from(key)].futures.len()
    }

    /// The number of claims that were polled and have not ended.
    pub(crate) fn waiting(&self, key: Key) -> u64 {
        self.keys[usize::from(key)].futures.iter().filter(|live| live.polled).count() as u64
    }

    pub(crate) fn grants(&self, key: Key) -> usize {
        self.keys[usize::from(key)].grants.len()
    }

    fn number(&mut self, key: Key) -> Id {
        let next = &mut self.keys[usize::from(key)].next;
        *next += 1;
        *next
    }

    fn pick_future(&self, key: Key, place: Place) -> Option<Place> {
        place.checked_rem(self.futures(key))
    }
}
