//! All limiters that a task can wait for, behind one method.

use serde::{Deserialize, Serialize};
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tollgate::{Limiter, Quota};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    Tollgate,
    FineTimer,
    Semaphore,
    Governor,
    Leaky,
    RateNet,
    SpeedLimit,
    BetterBucket,
}

impl Peer {
    pub const ALL: [Self; 8] = [
        Self::Tollgate,
        Self::FineTimer,
        Self::Semaphore,
        Self::Governor,
        Self::Leaky,
        Self::RateNet,
        Self::SpeedLimit,
        Self::BetterBucket,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::FineTimer => "tollgate, fine timer",
            Self::Semaphore => "tokio Semaphore",
            Self::Governor => "governor",
            Self::Leaky => "leaky-bucket",
            Self::RateNet => "rate-net",
            Self::SpeedLimit => "async-speed-limit",
            Self::BetterBucket => "better-bucket",
        }
    }
}

/// The operation of a limiter in these cases: hand out `n` tokens, after some time.
pub trait Waits: Clone + Send + Sync + 'static {
    fn acquire(&self, n: u32) -> impl Future<Output = ()> + Send;
}

/// A scenario that runs with any of them.
pub trait Scenario {
    type Outcome;
    fn run<W: Waits>(self, limiter: W) -> Self::Outcome;
}

/// Starts `scenario` with an empty bucket. It runs within a runtime, on which some peers spawn tasks.
pub fn present<S: Scenario>(peer: Peer, rate: u32, burst: u32, scenario: S) -> S::Outcome {
    let some = |n| NonZeroU32::new(n).expect("not zero");
    let millis_per_refill = 1_000_u32.div_ceil(rate);
    match peer {
        Peer::Tollgate | Peer::FineTimer => {
            let builder = Limiter::builder().quota(Quota::per_second(rate.into()).burst(burst.into()).initial(0));
            let builder = if peer == Peer::FineTimer { builder.fine_timer() } else { builder };
            scenario.run(builder.build().expect("valid"))
        }
        Peer::Semaphore => scenario.run(refilled_each_millisecond(rate)),
        Peer::Governor => {
            let quota = governor::Quota::per_second(some(rate)).allow_burst(some(burst));
            let limiter = governor::RateLimiter::direct(quota);
            while limiter.check().is_ok() {}
            scenario.run(Arc::new(limiter))
        }
        Peer::Leaky => {
            let limiter = leaky_bucket::RateLimiter::builder()
                .max(burst as usize)
                .initial(0)
                .refill((rate * millis_per_refill / 1_000) as usize)
                .interval(Duration::from_millis(millis_per_refill.into()))
                .build();
            scenario.run(Arc::new(limiter))
        }
        Peer::RateNet => {
            let limiter = rate_net::DirectLimiter::with_quota(rate_net::Quota::per_second(rate).with_burst(burst));
            while limiter.check().is_allow() {}
            scenario.run(Arc::new(limiter))
        }
        Peer::SpeedLimit => {
            let refill = Duration::from_secs_f64(f64::from(burst) / f64::from(rate));
            let limiter =
                async_speed_limit::Limiter::builder(rate.into()).refill(refill).min_wait(Duration::ZERO).build();
            limiter.consume_duration(burst as usize);
            scenario.run(limiter)
        }
        Peer::BetterBucket => {
            let bucket = better_bucket::Bucket::builder()
                .capacity(burst)
                .refill(rate, Duration::from_secs(1))
                .initial(0)
                .build()
                .expect("valid");
            scenario.run(Arc::new(bucket))
        }
    }
}

/// A common hand-written limiter, with correct counting: by the time since the start, not by ticks.
fn refilled_each_millisecond(rate: u32) -> Arc<Semaphore> {
    let semaphore = Arc::new(Semaphore::new(0));
    let refilled = Arc::downgrade(&semaphore);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let (start, mut added) = (Instant::now(), 0);
        loop {
            ticks.tick().await;
            let Some(semaphore) = refilled.upgrade() else { return };
            let due = start.elapsed().as_micros() as u64 * u64::from(rate) / 1_000_000;
            semaphore.add_permits((due - added) as usize);
            added = due;
        }
    });
    semaphore
}

impl Waits for Limiter {
    async fn acquire(&self, n: u32) {
        let _grant = self.consume(n.into()).await.expect("open");
    }
}

impl Waits for Arc<Semaphore> {
    async fn acquire(&self, n: u32) {
        self.acquire_many(n).await.expect("open").forget();
    }
}

impl Waits for Arc<governor::DefaultDirectRateLimiter> {
    async fn acquire(&self, n: u32) {
        match n {
            1 => self.until_ready().await,
            _ => self.until_n_ready(NonZeroU32::new(n).expect("not zero")).await.expect("it fits"),
        }
    }
}

impl Waits for Arc<leaky_bucket::RateLimiter> {
    async fn acquire(&self, n: u32) {
        leaky_bucket::RateLimiter::acquire(self, n as usize).await;
    }
}

impl Waits for Arc<rate_net::DirectLimiter> {
    async fn acquire(&self, n: u32) {
        self.try_until_ready_n(n).await.expect("it fits");
    }
}

impl Waits for async_speed_limit::Limiter {
    async fn acquire(&self, n: u32) {
        self.consume(n as usize).await;
    }
}

impl Waits for Arc<better_bucket::Bucket> {
    async fn acquire(&self, n: u32) {
        let wait = self.reserve(n, Duration::MAX).expect("it fits");
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}
