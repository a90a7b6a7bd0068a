//! Histories in which wakers call the limiter: the limiter and the oracle must still agree on every answer.
//!
//! A waker is called when the lock is released and the queue is served. So its call counts as made right after the op
//! that woke it, in the order of the wakes; and the calls of wakers that it wakes come before those of the next one.
//! That holds as long as all wakes of one op fit into one batch: histories of this kind have short queues.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tollgate::{ConsumeOwned, Limiter, ManualClock};

use crate::oracle::checks::{ending, passes_by};
use crate::oracle::conversions::{self, not_acquired, not_consumed, signed, unsigned};
use crate::oracle::executor::{Executor, RecordingWaker, WakeAction, Woken};
use crate::oracle::model::{Model, Seen};
use crate::oracle::ops::{History, Op, Place};
use crate::oracle::{Answer, Id, Int};

/// The longest queue: a batch of wakers holds 32.
pub(crate) const MAX_WAITING: u64 = 24;

/// The action of a waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    Tick,
    /// `try_acquire`, and drops the grant.
    Try(Int),
    Replenish(Int),
    Estimate(Int),
    /// Polls one of the bystanders.
    PollAnother(Place),
    /// Drops one of the bystanders.
    DropAnother(Place),
    Close,
}

/// The actions of wakers: that of claim `id` is at index `id`, modulo their number. Also whether the waker then panics.
#[derive(Clone, Debug)]
pub(crate) struct Acts(pub(crate) Vec<(Act, bool)>);

impl Acts {
    fn of(&self, id: Id) -> (Act, bool) {
        id.checked_rem(self.0.len()).map_or((Act::Nothing, false), |place| self.0[place])
    }
}

/// A waiter that any caller may poll or drop, also from within a waker.
struct Bystander {
    id: Id,
    future: Pin<Box<ConsumeOwned>>,
    waker: Option<Arc<RecordingWaker>>,
}

/// The actions on the limiter.
struct Echo {
    limiter: Limiter,
    acts: Acts,
    woken: Woken,
    numbered: Arc<AtomicUsize>,
    bystanders: Mutex<Vec<Bystander>>,
    heard: Mutex<Vec<(Id, Seen)>>,
    weak: Weak<Echo>,
}

impl WakeAction for Echo {
    fn on_wake(&self, id: Id) {
        let (act, panics) = self.acts.of(id);
        if act != Act::Nothing {
            self.act(id, act);
        }
        if panics {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            resume_unwind(Box::new("a broken waker"));
        }
    }
}

impl Echo {
    fn new(limiter: &Limiter, acts: &Acts, executor: &Executor<'_>) -> Arc<Echo> {
        Arc::new_cyclic(|weak| Echo {
            limiter: limiter.clone(),
            acts: acts.clone(),
            woken: executor.woken.clone(),
            numbered: executor.numbered.clone(),
            bystanders: Mutex::default(),
            heard: Mutex::default(),
            weak: weak.clone(),
        })
    }

    fn act(&self, id: Id, act: Act) {
        // Wakes caused by this action are handled after it.
        let place = self.hear(id, Seen::Nothing);
        let seen = match act {
            Act::Nothing => Seen::Nothing,
            Act::Tick => {
                self.limiter.tick();
                Seen::Nothing
            }
            Act::Try(cost) => return self.try_acquire(place, cost),
            Act::Replenish(tokens) => {
                self.limiter.replenish(unsigned(tokens));
                Seen::Nothing
            }
            Act::Estimate(cost) => Seen::Estimate(self.limiter.estimate(unsigned(cost)).map(signed)),
            Act::PollAnother(which) => return self.poll_another(place, which),
            Act::DropAnother(which) => {
                drop(self.take(which));
                Seen::Nothing
            }
            Act::Close => {
                self.limiter.close();
                Seen::Nothing
            }
        };
        self.correct(place, seen);
    }

    fn try_acquire(&self, place: Place, cost: Int) {
        self.numbered.fetch_add(1, Ordering::Relaxed);
        let result = self.limiter.try_acquire(unsigned(cost));
        let answer = result.as_ref().map_or_else(|error| not_acquired(*error, cost), |_| Answer::Granted);
        self.correct(place, Seen::Answered(answer));
        // The grant is dropped here, and may wake other claims.
        drop(result);
    }

    fn poll_another(&self, place: Place, which: Place) {
        let Some(bystander) = self.take(which) else { return };
        self.poll(place, bystander);
    }

    fn poll(&self, place: Place, mut bystander: Bystander) {
        let next = RecordingWaker::new(bystander.id, &self.woken, Some(self.weak.clone()));
        let polled = bystander.future.as_mut().poll(&mut Context::from_waker(&Waker::from(next.clone())));
        let before = bystander.waker.replace(next);
        match polled {
            Poll::Pending => {
                // Not the waker of the poll that granted it: that one may still be called.
                before.inspect(|before| before.retire());
                self.correct(place, Seen::Answered(Answer::Waits));
                self.bystanders.lock().unwrap().push(bystander);
            }
            Poll::Ready(result) => {
                drop(bystander);
                let answer = result.as_ref().map_or_else(|error| not_consumed(*error), |_| Answer::Granted);
                self.correct(place, Seen::Answered(answer));
                drop(result);
            }
        }
    }

    /// Adds a bystander.
    fn bring(&self, cost: Int) {
        let id = 1 + self.numbered.fetch_add(1, Ordering::Relaxed);
        let future = Box::pin(self.limiter.clone().consume_owned(unsigned(cost)));
        let place = self.hear(id, Seen::Nothing);
        self.poll(place, Bystander { id, future, waker: None });
    }

    fn take(&self, which: Place) -> Option<Bystander> {
        let mut bystanders = self.bystanders.lock().unwrap();
        which.checked_rem(bystanders.len()).map(|place| bystanders.remove(place))
    }

    fn hear(&self, id: Id, seen: Seen) -> Place {
        let mut heard = self.heard.lock().unwrap();
        heard.push((id, seen));
        heard.len() - 1
    }

    fn correct(&self, place: Place, seen: Seen) {
        self.heard.lock().unwrap()[place].1 = seen;
    }
}

/// The actions on the oracle: the same, in the same order.
struct Expected {
    model: Model,
    acts: Acts,
    bystanders: Vec<Id>,
    heard: Vec<(Id, Seen)>,
    woken: Vec<Id>,
}

impl Expected {
    /// Executes the actions of the woken claims, and of the claims that these wake.
    fn echo(&mut self) {
        let mut woken: VecDeque<Id> = self.model.woken().into();
        while let Some(id) = woken.pop_front() {
            self.woken.push(id);
            self.act(id, self.acts.of(id).0);
        }
    }

    fn act(&mut self, id: Id, act: Act) {
        let op = match act {
            Act::Nothing => return,
            Act::Tick => Some(Op::Tick),
            Act::Try(cost) => Some(Op::Try(cost)),
            Act::Replenish(tokens) => Some(Op::Replenish(tokens)),
            Act::Estimate(cost) => Some(Op::Estimate(cost)),
            Act::PollAnother(which) => self.take(which).map(|another| self.poll_of(another)),
            Act::DropAnother(which) => self.take(which).map(|another| Op::Cancel(self.place_of(another))),
            Act::Close => Some(Op::Close),
        };
        match op {
            None => self.heard.push((id, Seen::Nothing)),
            Some(op) => self.done_by(id, op),
        }
    }

    /// Executes one op; what is granted is dropped.
    fn done_by(&mut self, id: Id, op: Op) {
        let polled = if let Op::Poll(place) = op { self.model.id_at(place) } else { None };
        let seen = self.model.apply(op);
        if seen == Seen::Answered(Answer::Waits) {
            self.bystanders.extend(polled);
        }
        let granted = seen == Seen::Answered(Answer::Granted);
        self.heard.push((id, seen));
        self.echo();
        if granted && let Some(place) = self.model.latest_grant() {
            self.model.apply(Op::Drop(place));
            self.echo();
        }
    }

    fn bring(&mut self, cost: Int) {
        self.model.apply(Op::Create(cost));
        let id = self.model.latest_caller();
        self.done_by(id, self.poll_of(id));
    }

    fn poll_of(&self, id: Id) -> Op {
        Op::Poll(self.place_of(id))
    }

    fn place_of(&self, id: Id) -> Place {
        self.model.place_of(id).expect("a bystander has not ended")
    }

    fn take(&mut self, which: Place) -> Option<Id> {
        which.checked_rem(self.bystanders.len()).map(|place| self.bystanders.remove(place))
    }
}

/// Both sides.
struct Both<'a> {
    executor: Executor<'a>,
    echo: Arc<Echo>,
    expected: Expected,
    watched: bool,
}

/// As [`agree`](crate::oracle::checks::agree), with wakers that do what `acts` says.
pub(crate) fn agree_with_echoes(History { setup, ops }: &History, acts: &Acts) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = conversions::limiter(setup, 0, &clock);
    let mut executor = Executor::new(&limiter, &clock);
    let echo = Echo::new(&limiter, acts, &executor);
    let weak = Arc::downgrade(&echo);
    executor.action = Some(weak);
    let (model, acts) = (Model::new(setup), acts.clone());
    let expected = Expected { model, acts, bystanders: Vec::new(), heard: Vec::new(), woken: Vec::new() };
    let mut both = Both { executor, echo, expected, watched: setup.watched };
    for (place, &op) in ops.iter().enumerate() {
        both.do_in_steps(place, op)?;
        if place % 4 == 1
            && let Op::Consume(cost) = op
        {
            both.bring(place, cost)?;
        }
    }
    for op in ending(&both.executor) {
        both.do_in_steps(ops.len(), op)?;
    }
    Ok(())
}

impl Both<'_> {
    /// Before an op that calls the limiter more than once, the queue is served, so that no waker acts in the middle of
    /// it. The same before an op that may leave the queue unserved.
    fn do_in_steps(&mut self, place: usize, op: Op) -> Result<(), TestCaseError> {
        let op = if let Op::Heed(cost) = op { Op::Try(cost) } else { op };
        if (passes_by(op) || matches!(op, Op::Within(..))) && !matches!(op, Op::Pass(_) | Op::Create(_)) {
            self.step(place, Op::Tick)?;
        }
        self.step(place, op)?;
        if self.watched || op == Op::Tick {
            self.step(place, Op::Tick)?;
            let (seen, expected) = (self.executor.view(), self.expected.model.view());
            prop_assert_eq!(seen, expected, "seen at limiter (left), oracle (right) after op {}: {:?}", place, op);
        }
        Ok(())
    }

    fn step(&mut self, place: usize, op: Op) -> Result<(), TestCaseError> {
        // The bystanders are among the oracle's futures.
        let same = match op {
            Op::Poll(which) => self.executor.id_at(which).map(|id| self.expected.poll_of(id)),
            Op::Cancel(which) => self.executor.id_at(which).map(|id| Op::Cancel(self.expected.place_of(id))),
            op => Some(op),
        };
        let Some(same) = same else { return Ok(()) };
        let (seen, expected) = (self.executor.apply(op), self.expected.model.apply(same));
        prop_assert_eq!(seen, expected, "result of limiter (left), oracle (right) in op {}: {:?}", place, op);
        self.expected.echo();
        self.compare(place, op)
    }

    fn bring(&mut self, place: usize, cost: Int) -> Result<(), TestCaseError> {
        self.step(place, Op::Tick)?;
        self.echo.bring(cost);
        self.expected.bring(cost);
        self.compare(place, Op::Consume(cost))
    }

    fn compare(&mut self, place: usize, op: Op) -> Result<(), TestCaseError> {
        let heard = std::mem::take(&mut *self.echo.heard.lock().unwrap());
        let expected = std::mem::take(&mut self.expected.heard);
        prop_assert_eq!(
            heard,
            expected,
            "results of wakers of limiter (left), oracle (right) in op {}: {:?}",
            place,
            op
        );
        let (woken, expected) = (self.executor.woken(), std::mem::take(&mut self.expected.woken));
        prop_assert_eq!(woken, expected, "woken by limiter (left), oracle (right) by op {}: {:?}", place, op);
        Ok(())
    }
}
