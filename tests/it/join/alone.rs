//! A joint claim whose other limiter always has its tokens is granted exactly as a plain claim: random histories with some
//! of the claims made by `join`, compared with the same histories of plain claims.
//!
//! A debt is charged only while no claim waits. Behind a plain claim, a debt takes no tokens that are there already.

use super::{MS, limiter};
use crate::fixture::*;
use crate::shares::seeds::seeds;

type Claim<'a> = Spawn<Pin<Box<dyn Future<Output = Grant<'a>> + 'a>>>;

struct World<'a> {
    limiter: &'a Limiter,
    full: &'a Limiter,
    waiting: Vec<(usize, Claim<'a>)>,
    granted: Vec<Grant<'a>>,
    /// What callers see, in order.
    seen: Vec<(&'static str, u64)>,
}

impl<'a> World<'a> {
    fn claim(&mut self, number: usize, cost: u64, is_joint: bool) {
        let (limiter, full) = (self.limiter, self.full);
        let claim: Pin<Box<dyn Future<Output = Grant<'a>> + 'a>> = if is_joint {
            Box::pin(async move { join([(limiter, cost), (full, 1)]).await.unwrap().into_iter().next().unwrap() })
        } else {
            Box::pin(async move { limiter.consume(cost).await.unwrap() })
        };
        self.waiting.push((number, spawn(claim)));
        self.poll(self.waiting.len() - 1);
    }

    fn poll(&mut self, index: usize) -> bool {
        let std::task::Poll::Ready(grant) = self.waiting[index].1.poll() else { return false };
        self.granted.push(grant);
        self.seen.push(("grant", self.waiting.remove(index).0 as u64));
        true
    }

    fn look(&mut self) {
        while {
            (0..2).for_each(|_| [self.full, self.limiter].iter().for_each(|limiter| limiter.tick()));
            let woken = self.waiting.iter().position(|(_, claim)| claim.is_woken());
            woken.is_some_and(|index| self.poll(index))
        } {}
        self.seen.push(("available", self.limiter.available()));
    }
}

fn history(seed: u64, with_joint: bool) -> Vec<(&'static str, u64)> {
    let mut random = Rng::with_seed(seed);
    let clock = ManualClock::new();
    let quota = |rate: u64, burst: u64| match seed % 2 {
        0 => Quota::per_second(rate * 250).burst(burst),
        _ => Quota::new(burst, MS * (burst * 4 / rate) as u32).sliding(),
    };
    let mut random_quota = || quota(random.u64(1..4), random.u64(4..9));
    let builder = Limiter::builder().quota(random_quota()).quota(random_quota()).clock(clock.clone());
    let (limiter, full) = (builder.build().unwrap(), limiter(&clock, Quota::per_second(1_000_000)));
    let (limiter, full) = (&limiter, &full);
    let mut world = World { limiter, full, waiting: Vec::new(), granted: Vec::new(), seen: Vec::new() };
    for number in 0..random.usize(5..40) {
        let (action, some, tokens, span) = (random.u8(0..15), random.usize(0..99), random.u64(1..5), random.u32(1..15));
        let (is_joint, more) = (random.bool() && with_joint, random.u64(0..25));
        match action {
            0..=2 => world.claim(number, tokens, is_joint),
            3 => world.seen.push(("at once", u64::from(limiter.try_acquire(tokens).is_ok()))),
            4..=6 if !world.granted.is_empty() => {
                let (index, is_idle) = (some % world.granted.len(), world.waiting.is_empty());
                let grant = &mut world.granted[index];
                let actual =
                    if is_idle && grant.cost() < 9 { grant.cost() + more } else { grant.cost().saturating_sub(more) };
                grant.settle(actual);
            }
            7 => limiter.replenish(tokens),
            8 | 9 => limiter.pause_for(span * MS),
            10 => limiter.resume(),
            11 if !world.waiting.is_empty() => drop(world.waiting.remove(some % world.waiting.len())),
            12 => limiter.set_quota(0, quota(tokens, more.max(4))).unwrap(),
            _ => (0..span).for_each(|_| {
                clock.advance(MS);
                world.look();
            }),
        }
        world.look();
    }
    world.seen
}

#[test]
fn a_joint_claim_is_granted_as_a_plain_one_if_its_other_limiter_has_the_tokens() {
    for seed in seeds(500) {
        assert_eq!(history(seed, true), history(seed, false), "seed {seed}");
    }
}
