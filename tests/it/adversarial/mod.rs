//! Hostile numbers, clocks and callers: nothing panics, no token is granted that was not minted, and no claim is stuck.
//!
//! Every scenario runs with the rovers started at 0 and around each point where they wrap. Its results must be the same
//! everywhere.

mod changes;
mod giants;
mod numbers;
mod times;

use crate::fixture::*;

/// The largest cost of a claim.
const GIANT: u64 = 1 << 48;
/// The largest burst and the largest cap.
const MOST: u64 = 1 << 61;
/// How far claims may run ahead of the tokens: sixteen thousand giants.
const SPAN: u64 = 1 << 62;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Around the ends of `u64` and `i64`: as near as one token and as far as the largest burst.
fn starts() -> Vec<u64> {
    let near = [0, 3, GIANT, MOST];
    let ends = [u64::MAX, i64::MAX as u64];
    ends.iter()
        .flat_map(|end| near.iter().flat_map(|near| [end.wrapping_sub(*near), end.wrapping_add(*near)]))
        .collect()
}

/// Runs `scenario` with the rovers started at many positions. Its results must not depend on the position.
fn everywhere<T: PartialEq + Debug>(scenario: impl Fn(Builder, &ManualClock) -> T) {
    let play = |start| {
        let clock = ManualClock::new();
        scenario(Limiter::builder().clock(clock.clone()).rovers_at(start), &clock)
    };
    let expected = play(0);
    for start in starts() {
        assert!(play(start) == expected, "with the rovers started at {start} the results differ from those at 0");
    }
}

/// Runs `scenario` with the rovers started at a few of these positions, because it takes long.
fn everywhere_near(scenario: impl Fn(Builder, &ManualClock)) {
    for start in [0, u64::MAX - 1, i64::MAX as u64 - GIANT] {
        let clock = ManualClock::new();
        scenario(Limiter::builder().clock(clock.clone()).rovers_at(start), &clock);
    }
}

/// Claims in the queue, in their order.
struct Queue<'a> {
    limiter: &'a Limiter,
    waiting: VecDeque<Spawn<Consume<'a>>>,
}

impl<'a> Queue<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        Self { limiter, waiting: VecDeque::new() }
    }

    /// Polls a new claim once. It must wait.
    fn enter(&mut self, cost: u64) {
        assert_eq!(self.try_enter(cost), Ok(true), "a claim of {cost} waits");
    }

    /// Polls a new claim once. Returns whether it has to wait.
    fn try_enter(&mut self, cost: u64) -> Result<bool, ConsumeError> {
        let mut claim = spawn(self.limiter.consume(cost));
        match claim.poll() {
            Poll::Pending => self.waiting.push_back(claim),
            Poll::Ready(answer) => return answer.map(|_| false),
        }
        Ok(true)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn cancel(&mut self, index: usize) {
        drop(self.waiting.remove(index).expect("a claim waits at the index"));
    }

    /// Removes the granted claims: the first in the queue, all of them woken, and no others.
    fn granted(&mut self) -> Vec<Grant<'a>> {
        let mut grants = Vec::new();
        while let Some(first) = self.waiting.front_mut().filter(|first| first.is_woken()) {
            match first.poll() {
                Poll::Ready(answer) => grants.push(answer.expect("the limiter is open")),
                Poll::Pending => panic!("woken without a grant"),
            }
            self.waiting.pop_front();
        }
        assert!(self.waiting.iter().all(|waiting| !waiting.is_woken()), "a claim was served out of order");
        grants
    }

    /// Serves the queue and returns how many tokens were granted to waiters. With a cap, they are released at once.
    fn serve(&mut self) -> u64 {
        self.limiter.tick();
        self.granted().iter().map(Grant::cost).sum()
    }

    /// Advances the clock until no claim waits, at most `rounds` times.
    fn outlast(&mut self, clock: &ManualClock, round: Duration, rounds: usize) -> u64 {
        let mut tokens = self.serve();
        for _ in 0..rounds {
            if self.waiting.is_empty() {
                return tokens;
            }
            clock.advance(round);
            tokens += self.serve();
        }
        panic!("{} claims are stuck: {:?}", self.len(), self.limiter.snapshot());
    }
}

/// Tokens in the bucket of the first quota; negative during a debt.
fn level(limiter: &Limiter) -> i64 {
    limiter.snapshot().quotas[0].level
}
