//! Hot loops without waiting.

use crate::table::Contender;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use tollgate::{Limiter, QuantaClock, Quota};

/// So much per second that nobody is ever refused.
const PLENTY: u32 = 1_000_000_000;

fn ample() -> Quota {
    Quota::per_second(PLENTY.into()).burst(1_000_000)
}

/// Load and compare-and-swap, no clock: what a strict grant costs at least.
fn floor() -> impl Fn(u64) + Sync {
    let (tail, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    move |n| {
        for _ in 0..n {
            let limit = limit.load(Acquire);
            let mut at = tail.load(Relaxed);
            while limit - at > 1 {
                match tail.compare_exchange_weak(at, at + 1, Relaxed, Relaxed) {
                    Ok(_) => break,
                    Err(now) => at = now,
                }
            }
            black_box(at);
        }
    }
}

fn floor_with_clock() -> impl Fn(u64) + Sync {
    let floor = floor();
    move |n| {
        for _ in 0..n {
            black_box(Instant::now());
            floor(1);
        }
    }
}

fn tollgate(limiter: Limiter) -> impl Fn(u64) + Sync {
    move |n| {
        for _ in 0..n {
            let _ = black_box(limiter.try_acquire(1).is_ok());
        }
    }
}

pub fn granted() -> Vec<Contender> {
    let burst = NonZeroU32::new(1_000_000).expect("not zero");
    let governor_quota = governor::Quota::per_second(NonZeroU32::new(PLENTY).expect("not zero")).allow_burst(burst);
    let governor = governor::RateLimiter::direct(governor_quota);
    let capped = Limiter::builder().quota(ample()).max_in_flight(1_000_000).build().expect("valid");
    let exact = Limiter::builder().quota(ample()).stride(0).build().expect("valid");
    let semaphore = tokio::sync::Semaphore::new(tokio::sync::Semaphore::MAX_PERMITS);
    let leaky = leaky_bucket::RateLimiter::builder().max(usize::MAX / 4).initial(usize::MAX / 4).build();
    let ratelimit = ratelimit::Ratelimiter::builder(PLENTY.into())
        .max_tokens(1_000_000)
        .initial_available(1_000_000)
        .build()
        .expect("valid");
    let better = better_bucket::Bucket::per_second(PLENTY);
    vec![
        Contender::new("floor: load + compare_exchange", floor()),
        Contender::new("tollgate", tollgate(Limiter::new(ample()).expect("valid"))),
        Contender::new("tollgate, exact on every call", tollgate(exact)),
        Contender::new("tollgate, capped, released on drop", tollgate(capped)),
        Contender::new("floor with Instant::now()", floor_with_clock()),
        Contender::new("governor", move |n| (0..n).for_each(|_| drop(black_box(governor.check())))),
        Contender::new("ratelimit", move |n| {
            (0..n).for_each(|_| {
                let _ = black_box(ratelimit.try_wait());
            })
        }),
        Contender::new("better-bucket", move |n| {
            (0..n).for_each(|_| {
                black_box(better.try_acquire(1));
            })
        }),
        Contender::new("leaky-bucket", move |n| {
            (0..n).for_each(|_| {
                black_box(leaky.try_acquire(1));
            })
        }),
        Contender::new("tokio Semaphore (no refill)", move |n| {
            (0..n).for_each(|_| semaphore.try_acquire().expect("plenty").forget())
        }),
    ]
}

pub fn denied() -> Vec<Contender> {
    let scarce = || Quota::per_day(1).initial(0);
    let quanta = Limiter::builder().quota(scarce()).clock(QuantaClock::new()).build().expect("valid");
    let governor =
        governor::RateLimiter::direct(governor::Quota::with_period(Duration::from_secs(86_400)).expect("not zero"));
    while governor.check().is_ok() {}
    let better = better_bucket::Bucket::per_duration(1, Duration::from_secs(86_400));
    while better.try_acquire(1) {}
    let read = AtomicU64::new(0);
    vec![
        Contender::new("floor: Instant::now() + loads", move |n| {
            for _ in 0..n {
                black_box((Instant::now(), read.load(Acquire), read.load(Acquire)));
            }
        }),
        Contender::new("tollgate", tollgate(Limiter::new(scarce()).expect("valid"))),
        Contender::new("tollgate, quanta clock", tollgate(quanta)),
        Contender::new("governor (quanta clock)", move |n| (0..n).for_each(|_| drop(black_box(governor.check())))),
        Contender::new("better-bucket", move |n| {
            (0..n).for_each(|_| {
                black_box(better.try_acquire(1));
            })
        }),
    ]
}
