//! The law of sliding windows by brute force, without a model: at each grant, and for each quota, the grants of the last
//! period, less their refunds, are added up.

use crate::fixture::built;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{Consume, Grant, Limiter, ManualClock, Quota};

fn nanos(quota: Quota) -> u64 {
    quota.period().as_nanos() as u64
}

fn random_quota(random: &mut fastrand::Rng) -> Quota {
    let most = if random.bool() { 12 } else { 90 };
    Quota::new(random.u64(1..=most), Duration::from_nanos(random.u64(1..200))).sliding()
}

struct Seen<'a> {
    at: u64,
    /// The cost, less what was refunded.
    net: u64,
    grant: Grant<'a>,
}

struct History<'a> {
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    /// The latest reading of the clock, and how far it was set back since.
    now: u64,
    behind: u64,
    waiters: Vec<Spawn<Consume<'a>>>,
    seen: Vec<Seen<'a>>,
    /// Each quota, and the first instant of which it has not forgotten the grants: its period was shorter once.
    quotas: Vec<(Quota, u64)>,
    used: u64,
}

impl<'a> History<'a> {
    fn see(&mut self, grant: Grant<'a>) {
        let (at, cost) = (self.now, grant.cost());
        self.used += cost;
        self.seen.push(Seen { at, net: cost, grant });
        for (quota, known_from) in &self.quotas {
            let counts = |seen: &&Seen<'_>| seen.at + nanos(*quota) > at && seen.at >= *known_from;
            let net: u64 = self.seen.iter().filter(counts).map(|seen| seen.net).sum();
            // A claim that waited when the amount became less than its cost is granted alone.
            assert!(
                net <= quota.amount() || net == cost || cost == 0,
                "{net} tokens in one period at {at}, by {quota}"
            );
        }
    }

    fn look(&mut self) {
        let mut granted = Vec::new();
        self.waiters.retain_mut(|claim| match claim.poll() {
            Poll::Ready(answer) => {
                granted.extend(answer);
                false
            }
            Poll::Pending => true,
        });
        granted.into_iter().for_each(|grant| self.see(grant));
    }

    fn pass_nanosecond(&mut self) {
        self.clock.advance(Duration::from_nanos(1));
        self.now += u64::from(self.behind == 0);
        self.behind = self.behind.saturating_sub(1);
        self.limiter.tick();
    }

    /// Time goes on by nanoseconds, so that each grant is seen at its instant.
    fn pass(&mut self, span: u64) {
        for _ in 0..span {
            self.pass_nanosecond();
            self.look();
        }
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let most = self.quotas[0].0.amount() + 2;
        match random.u8(0..24) {
            0..4 => {
                if let Ok(grant) = self.limiter.try_acquire(random.u64(0..=most)) {
                    self.see(grant);
                }
            }
            4..10 => self.waiters.push(spawn(self.limiter.consume(random.u64(1..=most)))),
            // It waits, or is granted already.
            10 if !self.waiters.is_empty() => {
                self.pass_nanosecond();
                drop(self.waiters.remove(random.usize(0..self.waiters.len())));
            }
            11..15 if !self.seen.is_empty() => {
                let latest = self.seen.len().min(6);
                let place = self.seen.len() - 1 - random.usize(0..latest);
                let seen = &mut self.seen[place];
                // More is a debt, which no window counts.
                seen.grant.settle(if random.bool() { 0 } else { random.u64(0..seen.grant.cost() + 3) });
                seen.net = seen.net.min(seen.grant.cost());
            }
            15 => {
                let index = random.usize(0..self.quotas.len());
                let (old, known_from) = &mut self.quotas[index];
                let quota = random_quota(random);
                *known_from = (*known_from).max((self.now + 1).saturating_sub(nanos(*old)));
                *old = quota;
                self.limiter.set_quota(index, quota).unwrap();
            }
            16 if random.bool() => self.limiter.pause_for(Duration::from_nanos(random.u64(0..100))),
            16 => self.limiter.resume(),
            17 => {
                let back = random.u64(0..50).min(self.now - self.behind);
                self.clock.step_back(Duration::from_nanos(back));
                self.behind += back;
            }
            _ => self.pass(random.u64(0..self.quotas.iter().map(|(quota, _)| nanos(*quota)).max().unwrap() / 2 + 2)),
        }
        self.look();
    }
}

#[test]
fn no_window_holds_more_than_its_amount_in_any_history() {
    let (mut used, mut histories) = (0, 0);
    for seed in 0..10_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let quotas: Vec<Quota> = (0..random.usize(1..4)).map(|_| random_quota(&mut random)).collect();
        let builder = quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota));
        let builder = if random.u8(0..4) == 0 { builder.max_in_flight(random.u64(20..60)) } else { builder };
        let (limiter, clock) = built(builder);
        let quotas = quotas.into_iter().map(|quota| (quota, 0)).collect();
        let (waiters, seen) = Default::default();
        let mut history =
            History { limiter: &limiter, clock: &clock, now: 0, behind: 0, waiters, seen, quotas, used: 0 };
        (0..30).for_each(|_| history.step(&mut random));
        used += history.used;
        histories += u64::from(history.used > 0);
    }
    assert!(histories > 9_000 && used > 200_000, "{histories} histories, {used} tokens");
}

/// A saturated limiter grants at least 31 of 32 parts of its amount in each period.
#[test]
fn a_saturated_window_grants_nearly_its_whole_amount() {
    for (amount, period) in
        [(1, 1_000), (33, 1_000), (34, 1_000), (60, 60_000_000_007), (1_000_003, 86_400_000_000_000)]
    {
        let quota = Quota::new(amount, Duration::from_nanos(period)).sliding();
        for cost in [1, amount.div_ceil(7), amount] {
            let (limiter, clock) = built(Limiter::builder().quota(quota));
            let step = period / 977 + 1;
            let mut granted = 0;
            for _ in 0..(50 * period).div_ceil(step) {
                let available = limiter.available() / cost * cost;
                granted += available;
                if available > 0 {
                    drop(limiter.try_acquire(available).unwrap());
                }
                clock.advance(Duration::from_nanos(step));
            }
            let least = u128::from(amount / cost * cost) * 50 * 31 / 32;
            assert!(u128::from(granted) >= least, "{granted} of {least} by {quota} in claims of {cost}");
        }
    }
}
