//! The entries of a bounded map, over random calls of every kind: a key that is refused would also be refused if a
//! sweep of the whole map had just run.

use crate::fixture::*;
use tollgate::{KeyedConsume, KeyedGrant};

const KEYS: u64 = 5;

static ALL: [u64; KEYS as usize] = [0, 1, 2, 3, 4];

/// Quotas with packed levels that can be read for years, others for two seconds, some that have none, and some with
/// steps.
fn quota(dice: &mut Rng) -> Quota {
    match dice.u8(..5) {
        0 => Quota::per_second(1).burst(dice.u64(2..6)),
        1 => Quota::per_second(999_999_937).burst(5),
        2 => Quota::per_day(1_000_003),
        3 => Quota::new(3, Duration::from_millis(700)).burst(5).stepped(),
        _ => Quota::new(7, Duration::from_secs(3)).burst(3),
    }
}

/// Mostly one quota, often two, sometimes more.
fn quotas(dice: &mut Rng) -> Quotas {
    (0..[1, 1, 2, 2, 3][dice.usize(..5)]).map(|_| quota(dice)).collect()
}

struct World<'a> {
    keyed: &'a KeyedLimiter<u64>,
    grants: Vec<(u64, KeyedGrant<'a, u64>)>,
    waiting: Vec<Pin<Box<KeyedConsume<'a, 'a, u64>>>>,
    turned_away: u64,
}

impl World<'_> {
    fn acquire(&mut self, key: u64, cost: u64, when: &str) {
        let key = &ALL[key as usize];
        match self.keyed.try_acquire(key, cost) {
            Ok(grant) => self.grants.push((*key, grant)),
            Err(TryAcquireError::TooManyKeys { .. }) => {
                self.turned_away += 1;
                self.keyed.tick();
                let again = self.keyed.try_acquire(key, cost).map(drop);
                assert!(matches!(again, Err(TryAcquireError::TooManyKeys { .. })), "{again:?}, {when}");
            }
            Err(_) => {}
        }
    }

    fn act(&mut self, dice: &mut Rng, clock: &ManualClock, when: &str) {
        let key = &ALL[dice.usize(..ALL.len())];
        let cost = dice.u64(..3);
        match dice.u8(..10) {
            0..4 => self.acquire(*key, cost, when),
            4 => clock.advance(Duration::from_millis(dice.u64(..3_000))),
            5 if !self.grants.is_empty() => {
                let index = dice.usize(..self.grants.len());
                let (key, grant) = &mut self.grants[index];
                grant.settle(key, cost);
            }
            6 if !self.grants.is_empty() => drop(self.grants.swap_remove(dice.usize(..self.grants.len()))),
            7 if !self.grants.is_empty() => self.grants.swap_remove(dice.usize(..self.grants.len())).1.forget(),
            8 if self.waiting.is_empty() => {
                let mut claim = Box::pin(self.keyed.consume(key, cost + 1));
                if claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    self.waiting.push(claim);
                }
            }
            8 => drop(self.waiting.swap_remove(dice.usize(..self.waiting.len()))),
            _ => match dice.u8(..8) {
                0..3 => _ = self.keyed.set_quota_for(key, quotas(dice)),
                3..6 => self.keyed.reset_quota_for(key),
                6 => self.keyed.set_quota(quotas(dice)).unwrap(),
                _ => match dice.u8(..8) {
                    0 => self.keyed.pause_for(key, Duration::from_millis(dice.u64(..2_000))),
                    1 => self.keyed.pause_all_for(Duration::from_millis(dice.u64(..2_000))),
                    2 => self.keyed.resume(key),
                    3 => self.keyed.resume_all(),
                    4 => self.keyed.renew_quotas(),
                    _ => _ = self.keyed.release(key, cost),
                },
            },
        }
    }
}

#[test]
fn a_refused_key_would_also_be_refused_after_a_full_sweep() {
    let mut turned_away = 0;
    for seed in 0..6_000 {
        let mut dice = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let mut builder = KeyedLimiter::builder().max_keys(dice.u64(1..3)).clock(clock.clone());
        let (common, by_key) = (quotas(&mut dice), dice.u8(..3) == 0);
        builder = if by_key {
            let quotas: Vec<Quotas> = ALL.iter().map(|_| quotas(&mut dice)).collect();
            builder.quota_by(move |key: &u64| quotas[*key as usize].clone())
        } else {
            builder.quotas(common)
        };
        if dice.bool() {
            builder = builder.max_in_flight(dice.u64(3..12));
        }
        let keyed = builder.shards(dice.usize(1..4)).build().unwrap();
        let mut world = World { keyed: &keyed, grants: Vec::new(), waiting: Vec::new(), turned_away: 0 };
        for step in 0..30 {
            world.act(&mut dice, &clock, &format!("seed {seed}, step {step}"));
        }
        turned_away += world.turned_away;
    }
    assert!(turned_away > 5_000, "too few refusals: {turned_away}");
}
