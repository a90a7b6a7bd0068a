//! A process with an [`Adaptive`] limiter, as a client of the simulated server.

use super::world::Client;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tollgate::adaptive::{AdaptiveConsume, AdaptiveGrant};
use tollgate::{Adaptive, Limiter, ManualClock, Quota};

/// The rate is between 1 and 100,000 per second, and nothing else is known.
pub const SLOWEST: Quota = Quota::per_second(1);
pub const FASTEST: Quota = Quota::per_second(100_000);

pub struct Ours {
    adaptive: Adaptive,
    /// In the order of the queue.
    waiting: VecDeque<Waiter>,
    /// The task that enters the queue next.
    next: usize,
    tasks: usize,
    /// Chooses the place in the queue at which each cancelled waiter leaves. `None` if no waiters are cancelled.
    cancels: Option<fastrand::Rng>,
}

struct Waiter {
    task: usize,
    claim: Pin<Box<AdaptiveConsume>>,
    /// The place in the queue at which the caller cancels.
    gives_up_at: Option<usize>,
}

impl Ours {
    /// `number`: the number of the process. `cancels`: the seed of the choice where waiters cancel, if half of them do.
    pub fn new(clock: &ManualClock, number: u64, tasks: usize, cancels: Option<u64>) -> Self {
        let limiter = Limiter::builder().quota(SLOWEST.burst(1)).clock(clock.clone()).build().expect("a valid quota");
        let adaptive = Adaptive::between(SLOWEST, FASTEST).seed(number).drive(&limiter).expect("valid bounds");
        let cancels = cancels.map(fastrand::Rng::with_seed);
        Self { adaptive, waiting: VecDeque::new(), next: 0, tasks, cancels }
    }

    /// Enough callers wait that the limiter is the bottleneck, even with those that cancel.
    fn enough(&self) -> usize {
        8 + self.tasks + (self.adaptive.tokens_per_second() / 250.0) as usize
    }

    /// A task enters the queue, or is granted at once.
    fn enter(&mut self, task: usize, gives_up_at: Option<usize>) -> Option<AdaptiveGrant> {
        let mut claim = Box::pin(self.adaptive.consume(1));
        match poll(&mut claim) {
            Poll::Ready(grant) => Some(grant),
            Poll::Pending => {
                self.waiting.push_back(Waiter { task, claim, gives_up_at });
                None
            }
        }
    }

    fn give_up(&mut self) {
        if self.cancels.is_some() {
            let mut place = 0;
            self.waiting.retain(|waiter| {
                let stays = waiter.gives_up_at.is_none_or(|at| at < place);
                place += usize::from(stays);
                stays
            });
        }
    }
}

fn poll(claim: &mut Pin<Box<AdaptiveConsume>>) -> Poll<AdaptiveGrant> {
    claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(|grant| grant.expect("the limiter is open"))
}

impl Client for Ours {
    type Request = AdaptiveGrant;

    fn send(&mut self, _: u64, send: &mut dyn FnMut(usize, AdaptiveGrant)) {
        self.adaptive.limiter().tick();
        self.give_up();
        while let Some(first) = self.waiting.front_mut() {
            let Poll::Ready(grant) = poll(&mut first.claim) else { break };
            send(first.task, grant);
            self.waiting.pop_front();
        }
        while self.waiting.len() < self.enough() {
            self.next = (self.next + 1) % self.tasks;
            let place = self.waiting.len();
            let stays = self.enter(self.next, None);
            // Each task also has a waiter that cancels somewhere on its way to the front.
            let leaves = self.cancels.as_mut().map(|random| random.usize(0..=place));
            let leaves = leaves.and_then(|at| self.enter(self.next, Some(at)));
            stays.into_iter().chain(leaves).for_each(|grant| send(self.next, grant));
        }
    }

    fn answer(&mut self, _: u64, _: usize, grant: AdaptiveGrant, accepted: bool) {
        if accepted { grant.succeeded() } else { grant.throttled(None) }
    }

    fn rate(&self) -> Option<f64> {
        Some(self.adaptive.tokens_per_second())
    }
}
