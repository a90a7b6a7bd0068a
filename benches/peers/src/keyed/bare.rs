//! The lower bound for many keys with waiters: for each key a number, an instant and its wakers on one cache line,
//! found by its hash. No lock, no atomic, no cancellation, no bound, and a single quota. On one thread.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

#[derive(Default)]
#[repr(align(64))]
struct Key {
    claimed: u64,
    granted: u64,
    wakers: [Option<Waker>; 2],
}

pub struct Bare {
    period: Duration,
    keys: RefCell<HashMap<usize, Rc<RefCell<Key>>>>,
    /// Keys with waiters, each with the instant of its next token. They are in this order, since all have one quota.
    due: RefCell<VecDeque<(Instant, Rc<RefCell<Key>>)>>,
}

impl Bare {
    pub fn new(period: Duration) -> Rc<Self> {
        Rc::new(Self { period, keys: RefCell::default(), due: RefCell::default() })
    }

    /// Grants the due claims in the schedule's order, and sleeps.
    async fn drive(self: Rc<Self>) {
        loop {
            let now = Instant::now();
            let next = {
                let mut due = self.due.borrow_mut();
                while let Some((at, _)) = due.front()
                    && *at <= now
                {
                    let Some((at, key)) = due.pop_front() else { break };
                    let mut own = key.borrow_mut();
                    own.granted += 1;
                    let slot = own.granted as usize % 2;
                    let waker = own.wakers[slot].take();
                    drop(own);
                    due.push_back((at + self.period, key));
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                due.front().map_or(now + Duration::from_millis(1), |(at, _)| *at)
            };
            // Up to the tick, as the limiters do.
            sleep_until((next - Duration::from_nanos(999_999)).max(now + Duration::from_nanos(1))).await;
        }
    }

    /// For at most two waiters.
    pub async fn wait(self: Rc<Self>, key: usize) {
        let mut ticket = None;
        poll_fn(|cx| {
            if ticket.is_none() {
                let mut keys = self.keys.borrow_mut();
                if keys.is_empty() {
                    spawn_local(self.clone().drive());
                }
                let own = keys.entry(key).or_insert_with(|| {
                    let own = Rc::new(RefCell::new(Key::default()));
                    self.due.borrow_mut().push_back((Instant::now() + self.period, own.clone()));
                    own
                });
                let mut place = own.borrow_mut();
                place.claimed += 1;
                let slot = place.claimed as usize % 2;
                place.wakers[slot] = Some(cx.waker().clone());
                ticket = Some((place.claimed, own.clone()));
                return Poll::Pending;
            }
            let is_granted = ticket.as_ref().is_some_and(|(ticket, own)| own.borrow().granted >= *ticket);
            if is_granted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
