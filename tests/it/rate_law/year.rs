//! A year of traffic compared with the closed form, to the token.

use super::Random;
use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_test::task::{Spawn, spawn};
use tollgate::{Consume, Limiter, ManualClock, Quota};

const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
const YEAR: u64 = 365 * 24 * HOUR;

/// One continuous quota in closed form, while there always is a waiter. Then tokens are lost only by cancellations,
/// which are recorded. All in `1 / period` of a token.
struct Account {
    amount: i128,
    period: i128,
    burst: i128,
    minted: i128,
    granted: i128,
    burned: i128,
}

impl Account {
    fn new(quota: Quota) -> Self {
        let period = quota.period().as_nanos() as i128;
        let burst = i128::from(quota.capacity()) * period;
        Self { amount: quota.amount().into(), period, burst, minted: 0, granted: 0, burned: 0 }
    }

    fn level(&self) -> i128 {
        self.burst + self.minted - self.granted - self.burned
    }

    fn tokens(&self, parts: i128) -> i128 {
        parts.div_euclid(self.period)
    }

    fn grant(&mut self, tokens: u64) {
        self.granted += i128::from(tokens) * self.period;
    }

    /// Granted to a cancelled claim: the tokens come back, up to the burst.
    fn refund(&mut self, tokens: u64, front: u64) {
        let tokens = i128::from(tokens) * self.period;
        let space = self.burst - self.tokens(self.level()) * self.period;
        self.granted -= tokens;
        self.burned += (tokens - space.max(0)).max(0);
        self.burn_fraction(front);
    }

    /// The front claim was cancelled: the tokens saved for it above the burst are lost.
    fn cut(&mut self, front: u64) {
        if self.tokens(self.level() - self.burst) > 0 {
            self.burned += self.level() - self.burst;
        }
        self.burn_fraction(front);
    }

    /// A bucket that is full, and need not save for the front claim, keeps no fraction of a token, except from the last
    /// nanosecond.
    fn burn_fraction(&mut self, front: u64) {
        let fraction = self.level().rem_euclid(self.period);
        let front = i128::from(front) * self.period;
        if self.level() - fraction >= self.burst.max(front) && fraction >= self.amount {
            self.burned += fraction;
        }
    }
}

/// Callers that arrive in bursts, wait in the queue, and sometimes cancel.
struct Traffic<'a> {
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    random: Random,
    account: Account,
    waiters: VecDeque<(u64, Spawn<Consume<'a>>)>,
    /// The sum of the waiting costs.
    wanted: u64,
    requests: u64,
    given_up: u64,
}

impl<'a> Traffic<'a> {
    fn new(limiter: &'a Limiter, clock: &'a ManualClock, quota: Quota) -> Self {
        let (random, account) = (Random(7), Account::new(quota));
        Self { limiter, clock, random, account, waiters: VecDeque::new(), wanted: 0, requests: 0, given_up: 0 }
    }

    /// Mostly small, sometimes the whole burst, and rarely far more.
    fn cost(&mut self) -> u64 {
        let burst = (self.account.burst / self.account.period) as u64;
        match self.random.below(1_000) {
            0..2 => burst + self.random.below(4 * burst),
            2..20 => burst - self.random.below(burst / 2),
            _ => 1 + self.random.below(6),
        }
    }

    fn request(&mut self) {
        let cost = self.cost();
        let mut claim = spawn(self.limiter.consume(cost));
        self.requests += 1;
        match claim.poll() {
            Poll::Ready(grant) => self.account.grant(grant.unwrap().cost()),
            Poll::Pending => {
                self.waiters.push_back((cost, claim));
                self.wanted += cost;
            }
        }
    }

    /// Adds enough claims that the next `nanos` cannot serve them all, even if some are cancelled.
    fn saturate(&mut self, nanos: u64) {
        let coming = self.account.tokens(i128::from(nanos) * self.account.amount) as u64;
        while self.wanted < coming + coming / 8 + 500 {
            self.request();
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
        self.account.minted += i128::from(nanos) * self.account.amount;
        self.limiter.tick();
        self.look();
        assert!(!self.waiters.is_empty(), "the closed form requires that there always is a waiter");
    }

    /// Woken claims are polled, or dropped without a poll.
    fn look(&mut self) {
        while let Some((cost, mut claim)) = self.waiters.pop_front_if(|(_, claim)| claim.is_woken()) {
            self.wanted -= cost;
            self.account.grant(cost);
            let is_last = self.waiters.front().is_none_or(|(_, next)| !next.is_woken());
            if is_last && self.random.below(4) == 0 {
                self.given_up += 1;
                drop(claim);
                self.account.refund(cost, self.waiters[0].0);
            } else {
                assert!(claim.poll().is_ready());
            }
        }
    }

    /// Cancels a claim, every other time the front.
    fn give_up(&mut self) {
        let place = (self.random.below(2) * self.random.below(self.waiters.len() as u64)) as usize;
        if let Some((cost, claim)) = self.waiters.remove(place) {
            self.wanted -= cost;
            self.given_up += 1;
            drop(claim);
        }
        if place == 0 {
            self.account.cut(self.waiters[0].0);
            self.look();
        }
    }

    fn check(&self) {
        let level = self.account.tokens(self.account.level());
        assert_eq!(i128::from(self.limiter.snapshot().quotas[0].level), level, "after {} requests", self.requests);
    }
}

/// Busy and quiet times, but always with a waiter: no nanosecond of the year is lost or counted twice.
#[test]
fn a_year_with_waiters_grants_the_burst_and_the_rate_to_the_token() {
    const AMOUNT: u64 = 4_000_037;
    // All amounts are in fractions of a token, whatever the step.
    let quota = Quota::new(AMOUNT, Duration::from_nanos(YEAR + 11)).burst(40);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let mut traffic = Traffic::new(&limiter, &clock, quota);
    let mut left = YEAR;
    while left > 0 {
        let longest = [MINUTE, 5 * MINUTE, 2 * HOUR][traffic.random.below(3) as usize];
        let step = (1 + traffic.random.below(longest)).min(left);
        left -= step;
        traffic.saturate(step);
        traffic.pass(step);
        if step.is_multiple_of(4) {
            traffic.give_up();
        }
        if step.is_multiple_of(64) {
            traffic.check();
        }
    }
    traffic.check();
    let Traffic { account, requests, given_up, .. } = &traffic;
    let snapshot = limiter.snapshot();
    let passed = snapshot.granted - snapshot.refunded;
    assert_eq!(i128::from(passed), account.granted / account.period);
    let closed_form = 40 + i128::from(YEAR) * i128::from(AMOUNT) / i128::from(YEAR + 11);
    let there = i128::from(snapshot.quotas[0].level);
    assert_eq!(account.tokens(i128::from(passed) * account.period + account.burned) + there, closed_form);
    assert!(*requests > 500_000 && *given_up > 1_000, "{requests} requests, {given_up} cancelled");
}

/// Each busy time begins with a full bucket and ends when the remaining claims are cancelled: it is granted the burst
/// and the rate since its first nanosecond.
#[test]
fn a_year_of_busy_and_quiet_times_grants_a_burst_and_the_rate_in_each() {
    const AMOUNT: u64 = 700;
    let quota = Quota::new(AMOUNT, Duration::from_nanos(HOUR)).burst(25);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let mut random = Random(11);
    let (mut now, mut passed, mut allowed) = (0, 0, 0);
    while now < YEAR {
        // 25 tokens take 129 seconds.
        let calm = 130_000_000_000 + random.below(3 * HOUR);
        let rush = random.below(HOUR / 4);
        clock.advance(Duration::from_nanos(calm));
        // Every other time, no call has been made since the bucket became full.
        assert!(calm.is_multiple_of(2) || limiter.available() == 25);
        let mut waiters: VecDeque<_> = (0..200).map(|_| spawn(limiter.consume(1 + random.below(5)))).collect();
        passed += (0..25).filter(|_| limiter.try_acquire(1).is_ok()).count() as u64;
        waiters.iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
        for step in [rush / 3, rush - rush / 3] {
            clock.advance(Duration::from_nanos(step));
            limiter.tick();
            while let Some(mut claim) = waiters.pop_front_if(|claim| claim.is_woken()) {
                assert!(matches!(claim.poll(), Poll::Ready(Ok(grant)) if { passed += grant.cost(); true }));
            }
        }
        drop(waiters);
        passed += (0..25).filter(|_| limiter.try_acquire(1).is_ok()).count() as u64;
        allowed += 25 + rush * AMOUNT / HOUR;
        now += calm + rush;
        assert_eq!(passed, allowed, "in the busy time that ended at {now}");
    }
}

/// The same on tokio's paused clock, with real tasks and the replenisher: timers are late by a millisecond, and that
/// costs nothing.
#[tokio::test(start_paused = true)]
async fn a_year_of_waiting_tasks_grants_the_burst_and_the_rate_to_the_token() {
    // Never a whole number of milliseconds.
    let quota = Quota::new(20_011, Duration::from_nanos(YEAR + 13)).burst(9);
    let limiter = Limiter::new(quota).unwrap();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for cost in [1, 2, 3, 5, 9, 14] {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            loop {
                drop(limiter.clone().consume_owned(cost).await.unwrap());
            }
        });
    }
    for week in 1..=52 {
        let at = Duration::from_nanos(YEAR / 52 * week);
        sleep_until(start + at).await;
        limiter.tick();
        let snapshot = limiter.snapshot();
        let passed = i128::from(snapshot.granted) + i128::from(snapshot.quotas[0].level);
        assert_eq!(passed, 9 + start.elapsed().as_nanos() as i128 * 20_011 / i128::from(YEAR + 13), "in week {week}");
        assert!(snapshot.lateness < Duration::from_millis(2), "{:?}", snapshot.lateness);
    }
}
