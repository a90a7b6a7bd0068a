//! Adaptive rates: the rules of the module's documentation, random feedback, and the simulated server.

mod classes;
mod grants;
mod keys;
mod meter;
mod properties;
mod rules;
mod settings;
mod simulated;

use crate::fixture::*;
use tollgate::adaptive::{AdaptiveBuilder, AdaptiveConsume, AdaptiveGrant};

/// An adaptive limiter with a manual clock.
struct Fixture {
    adaptive: Adaptive,
    clock: ManualClock,
}

impl Fixture {
    fn new(settings: AdaptiveBuilder) -> Self {
        let (limiter, clock) = built(Limiter::builder().quota(Quota::per_second(1).burst(1)));
        Self { adaptive: settings.drive(&limiter).unwrap(), clock }
    }

    fn starting_at(rate: u64) -> Self {
        Self::new(Adaptive::between("1/s", "100000/s").start(Quota::per_second(rate)))
    }

    fn rate(&self) -> f64 {
        self.adaptive.tokens_per_second()
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.adaptive.limiter().tick();
    }

    fn enter(&self) -> Spawn<AdaptiveConsume> {
        pending(self.adaptive.consume(1))
    }

    /// `count` grants that all had to wait.
    fn waited(&self, count: usize) -> Vec<AdaptiveGrant> {
        drop_tokens(self.adaptive.limiter());
        let mut claims: Vec<_> = (0..count).map(|_| self.enter()).collect();
        self.pass(Duration::from_secs(1_000));
        claims.iter_mut().map(granted).collect()
    }
}

fn drop_tokens(limiter: &Limiter) {
    while limiter.try_acquire(1).is_ok() {}
}

fn granted(claim: &mut Spawn<AdaptiveConsume>) -> AdaptiveGrant {
    match claim.poll() {
        Poll::Ready(grant) => grant.unwrap(),
        Poll::Pending => panic!("the claim should be granted by now"),
    }
}
