//! Claims that wait: futures that are polled by hand on a manual clock, without tasks and timers.

use crate::Contender;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{AsLimiter, Class, ConsumeOwned, Limiter, ManualClock, Quota, Share};

const TASKS: usize = 10_000;

/// A token each millisecond.
fn limiter(classes: bool) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::new(1, Duration::from_millis(1)).burst(1).initial(0);
    let builder = Limiter::builder().quota(quota).clock(clock.clone());
    let builder = if classes { builder.classes() } else { builder };
    (builder.build().expect("valid"), clock)
}

fn classes(limiter: &Limiter, count: usize) -> Vec<Class> {
    let share = |index: usize| Share::weight(1 + index as u64 % 3);
    (0..count).map(|index| limiter.class(format!("{index}"), share(index)).expect("a valid share")).collect()
}

/// Claims that wait, as many in each of the queues.
fn waiting<L: AsLimiter>(queues: &[L], length: usize) -> VecDeque<Pin<Box<ConsumeOwned<L>>>> {
    let mut waiting: VecDeque<_> =
        (0..length).map(|number| Box::pin(queues[number % queues.len()].clone().consume_owned(1))).collect();
    for claim in &mut waiting {
        assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    waiting
}

/// All claims enter, fall due together, are served by one tick, and are polled again.
fn served<L: AsLimiter>(
    name: String,
    (limiter, clock): (Limiter, ManualClock),
    queues: Vec<L>,
    length: usize,
) -> Contender {
    Contender::new("waits", name, length, move || {
        let mut waiting = waiting(&queues, length);
        clock.advance(Duration::from_millis(length as u64));
        limiter.tick();
        for claim in &mut waiting {
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    })
}

/// The claim at the front is served, and one enters at the end.
fn one_by_one(length: usize) -> Contender {
    let (limiter, clock) = limiter(false);
    let mut waiting = waiting(std::slice::from_ref(&limiter), length);
    Contender::new("waits", format!("{length} waiters, one by one"), 1, move || {
        let mut cx = Context::from_waker(Waker::noop());
        clock.advance(Duration::from_millis(1));
        limiter.tick();
        let mut front = waiting.pop_front().expect("a claim waits");
        assert!(front.as_mut().poll(&mut cx).is_ready());
        front.set(limiter.clone().consume_owned(1));
        // With one waiter, the place behind it is the front.
        assert!(front.as_mut().poll(&mut cx).is_pending());
        waiting.push_back(front);
    })
}

/// All claims enter, and are cancelled in random order.
fn cancelled(length: usize) -> Contender {
    let (limiter, _) = limiter(false);
    Contender::new("waits", format!("{length} waiters, cancelled"), length, move || {
        let mut waiting = Vec::from(waiting(std::slice::from_ref(&limiter), length));
        fastrand::Rng::with_seed(7).shuffle(&mut waiting);
        drop(waiting);
    })
}

pub fn contenders() -> Vec<Contender> {
    let one_queue = |length| {
        let made = limiter(false);
        let queues = vec![made.0.clone()];
        served(format!("{length} waiters"), made, queues, length)
    };
    let in_classes = |count| {
        let made = limiter(true);
        let queues = classes(&made.0, count);
        served(format!("{TASKS} waiters in {count} classes"), made, queues, TASKS)
    };
    let mut all: Vec<_> = [TASKS, 1, 100, 100_000].map(one_queue).into();
    all.extend([2, 100, TASKS].map(in_classes));
    all.extend([1, TASKS].map(one_by_one));
    all.extend([100, TASKS].map(cancelled));
    all
}
