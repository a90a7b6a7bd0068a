use crate::core::classes::ROOT;
use crate::core::rovers::Rovers;
use crate::core::state::State;
use crate::core::steps;
use crate::{Consume, Grant, Limiter, ManualClock, Quota};
use fastrand::Rng;
use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};

const NANO: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(86_400);

/// The estimate of [`State::predict`], computed by serving the whole queue, waiter by waiter.
fn by_hand(state: &State, rovers: &Rovers, cost: u64) -> Option<u64> {
    let (mut ahead, mut base) = (state.supply.clone(), state.base(rovers));
    for waiter in state.queue.iter() {
        let ticket = base.wrapping_add(waiter.cost);
        ahead.mint(ahead.scheduled(ticket)?, Some(ticket));
        ahead.pass(waiter.cost, waiter.debt_after);
        base = ticket.wrapping_add(waiter.debt_after);
    }
    assert_eq!(base, rovers.tail());
    ahead.scheduled(base.wrapping_add(cost))
}

fn quota(random: &mut Rng) -> Quota {
    let burst = random.u64(1..24);
    let quota = match random.u8(0..8) {
        0 => Quota::new(random.u64(1..=burst), random.u32(2..60) * NANO).stepped(),
        1 => Quota::new(random.u64(20..90), random.u32(1..20) * NANO),
        // Less than a nanosecond between tokens.
        2..4 => Quota::new(2, random.u32(7..9) * NANO),
        _ => Quota::new(random.u64(1..9), random.u32(9..60) * NANO),
    };
    quota.burst(burst).initial(random.u64(0..=burst))
}

struct World<'a> {
    limiter: &'a Limiter,
    clock: ManualClock,
    queue: VecDeque<Spawn<Consume<'a>>>,
    grants: Vec<Grant<'a>>,
    random: Rng,
    most: u64,
}

impl World<'_> {
    fn step(&mut self) {
        let random = &mut self.random;
        match random.u8(0..24) {
            0..8 => {
                let mut waiting = spawn(self.limiter.consume(random.u64(1..=self.most)));
                if waiting.poll().is_pending() {
                    self.queue.push_back(waiting);
                }
            }
            8..11 if !self.queue.is_empty() => {
                let index = random.usize(0..self.queue.len());
                drop(self.queue.remove(index));
            }
            11 => drop(self.queue.pop_back()),
            12..17 => self.clock.advance(random.u32(0..50) * NANO),
            17..19 => {
                self.limiter.tick();
                while let Some(at) = self.queue.iter().position(|waiting| waiting.is_woken()) {
                    let mut granted = self.queue.remove(at).expect("found");
                    if let Poll::Ready(Ok(grant)) = granted.poll() {
                        self.grants.push(grant);
                    }
                }
            }
            19 if !self.grants.is_empty() => {
                let mut grant = self.grants.swap_remove(random.usize(0..self.grants.len()));
                grant.settle(random.u64(0..grant.cost() + 3));
            }
            20 => self.limiter.replenish(random.u64(0..4)),
            21 if random.bool() => self.limiter.pause_for(random.u32(0..90) * NANO),
            22 if random.bool() => self.limiter.set_quota(0, quota(random)).expect("valid"),
            _ => drop(self.limiter.try_acquire(1)),
        }
    }
}

#[test]
fn a_forecast_equals_serving_the_whole_queue() {
    let (mut by_position, mut by_forecast) = (0, 0);
    for seed in 0..1_000 {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let count = random.usize(1..4);
        let builder = (0..count).fold(Limiter::builder(), |builder, _| builder.quota(quota(&mut random)));
        let builder = if random.u8(0..4) == 0 { builder.max_in_flight(random.u64(9..40)) } else { builder };
        let limiter = builder.clock(clock.clone()).build().expect("valid");
        let most = random.u64(1..9);
        let mut world = World { limiter: &limiter, clock, queue: VecDeque::new(), grants: Vec::new(), random, most };
        for step in 0..80 {
            world.step();
            if world.random.bool() {
                continue;
            }
            let cost = world.random.u64(1..9);
            limiter.core().with(|state, rovers, _| {
                steps::take();
                let estimated = state.predict(rovers, ROOT, cost);
                assert_eq!(estimated, by_hand(state, rovers, cost), "seed {seed}, step {step}: {state:?}");
                if state.queue.len() > 1 && !state.supply.is_straight() {
                    let counter = if steps::take() == 0 { &mut by_position } else { &mut by_forecast };
                    *counter += 1;
                }
            });
        }
    }
    assert!(by_position > 1_000 && by_forecast > 500, "{by_position} {by_forecast}");
}

/// Two equal quotas, each with space for only one claim: each in turn is full while the queue waits for the other,
/// and loses the half nanosecond by which it was ahead.
#[test]
fn quotas_of_one_pace_that_fill_up_in_turn_are_not_decided_by_position() {
    let quota = Quota::new(2, 7 * NANO).burst(1);
    let limiter = limiter(&[quota.initial(1), quota.initial(0)]);
    let mut queue = [1, 1].map(|cost| spawn(limiter.consume(cost)));
    queue.iter_mut().for_each(|waiting| assert!(waiting.poll().is_pending()));
    assert_eq!(limiter.estimate(1), Some(12 * NANO));
}

/// The number of waiters served ahead of time for arrivals with a deadline behind a long queue.
fn steps_of_arrivals(limiter: &Limiter, cancel: bool) -> u64 {
    while limiter.try_acquire(1).is_ok() {}
    let mut queue: Vec<_> = (0..1_000).map(|_| spawn(limiter.consume(1))).collect();
    queue.iter_mut().for_each(|waiting| assert!(waiting.poll().is_pending()));
    let mut arrived: Vec<_> = (0..500).map(|_| spawn(limiter.consume(1).within(DAY))).collect();
    steps::take();
    for waiting in &mut arrived {
        assert!(waiting.poll().is_pending());
        if cancel {
            drop(queue.swap_remove(queue.len() / 2));
        }
    }
    steps::take()
}

fn limiter(quotas: &[Quota]) -> Limiter {
    let builder = quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota));
    builder.clock(ManualClock::new()).build().expect("valid")
}

#[test]
fn an_arrival_with_a_deadline_takes_the_same_steps_behind_any_queue() {
    let (fast, slow) = (Quota::per_second(100).burst(20), Quota::per_minute(1_000));
    let stepped = Quota::per_second(9).stepped();
    let uneven = Quota::new(3_000_000_000, Duration::from_secs(1)).burst(4).initial(0);
    for quotas in [&[uneven][..], &[fast, stepped], &[fast, slow, stepped]] {
        let limiter = limiter(quotas);
        let steps = steps_of_arrivals(&limiter, false);
        assert!((1_900..=2_000).contains(&steps), "each waiter once, and each arrival once on the way to it");
    }
    assert_eq!(steps_of_arrivals(&limiter(&[fast, slow]), false), 0);
    assert_eq!(steps_of_arrivals(&limiter(&[fast, slow, Quota::per_second(7).burst(1)]), false), 0);
    assert_eq!(steps_of_arrivals(&limiter(&[stepped]), false), 0);
    let paused = limiter(&[fast]);
    paused.pause_for(DAY / 2);
    assert_eq!(steps_of_arrivals(&paused, false), 0);
}

#[test]
fn cancellations_do_not_add_steps_to_arrivals_where_the_number_decides() {
    let limiters = [
        limiter(&[Quota::per_second(100).burst(20), Quota::per_minute(1_000)]),
        limiter(&[Quota::per_second(9).stepped()]),
    ];
    limiters.iter().for_each(|limiter| assert_eq!(steps_of_arrivals(limiter, true), 0));
}

#[test]
fn an_arrival_that_the_cap_alone_holds_back_takes_no_steps() {
    let quota = Quota::per_second(100).burst(20);
    let enforced = Limiter::builder().quota(quota).quota(quota).dry_run_quota(0);
    for builder in [Limiter::builder(), Limiter::builder().quota(quota).dry_run(), enforced] {
        let limiter = builder.max_in_flight(1).clock(ManualClock::new()).build().expect("valid");
        let _held = limiter.try_acquire(1).expect("the cap is free");
        assert_eq!(steps_of_arrivals(&limiter, true), 0);
    }
}
