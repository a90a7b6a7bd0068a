//! Hot loops without waiting: granted, refused, granted and released.

use crate::rounds::{Contender, Extent, measure};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tollgate::clock::QuantaClock;
use tollgate::{Builder, Limiter, Quota};

/// So many per second that no call is refused.
const PLENTY: u32 = 1_000_000_000;
const BURST: u32 = 1_000_000;
const DAY: Duration = Duration::from_secs(86_400);

pub fn run_granted(threads: usize, extent: Extent) {
    measure(&format!("hot, {threads} threads"), &granted(), threads, extent);
}

pub fn run_denied(threads: usize, extent: Extent) {
    measure(&format!("denied, {threads} threads"), &denied(), threads, extent);
}

pub fn run_capped(threads: usize, extent: Extent) {
    measure(&format!("capped, {threads} threads"), &capped(), threads, extent);
}

fn again<T>(n: u64, mut act: impl FnMut() -> T) {
    for _ in 0..n {
        black_box(act());
    }
}

/// A load and a compare-and-swap, without a clock: the least that a strict grant costs.
#[inline(always)]
fn claim(tail: &AtomicU64, limit: &AtomicU64) {
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

fn ample() -> Builder {
    Limiter::builder().quota(Quota::per_second(PLENTY.into()).burst(BURST.into()))
}

fn tollgate(name: &'static str, builder: Builder) -> Contender {
    let limiter = builder.build().expect("valid");
    Contender::new(name, move |n| again(n, || limiter.try_acquire(1).is_ok()))
}

fn granted() -> Vec<Contender> {
    let rate = |n| NonZeroU32::new(n).expect("not zero");
    let quota = governor::Quota::per_second(rate(PLENTY)).allow_burst(rate(BURST));
    let governor = governor::RateLimiter::direct(quota);
    let governor_instant = governor::RateLimiter::direct_with_clock(quota, governor::clock::MonotonicClock);
    let (tail, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let (timed_tail, timed_limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let counter = AtomicU64::new(0);
    let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    let most = usize::MAX / 4;
    let leaky = leaky_bucket::RateLimiter::builder().max(most).initial(most).build();
    let ratelimit = ratelimit::Ratelimiter::builder(PLENTY.into())
        .max_tokens(BURST.into())
        .initial_available(BURST.into())
        .build()
        .expect("valid");
    let better = better_bucket::Bucket::per_second(PLENTY);
    let rate_net = rate_net::DirectLimiter::per_second(PLENTY);
    let speed = <async_speed_limit::Limiter>::new(PLENTY.into());
    vec![
        Contender::new("floor: load + compare_exchange", move |n| again(n, || claim(&tail, &limit))),
        Contender::new("floor: fetch_add", move |n| again(n, || counter.fetch_add(1, Relaxed))),
        tollgate("tollgate", ample()),
        Contender::new("floor: Instant::now + load + compare_exchange", move |n| {
            again(n, || {
                black_box(Instant::now());
                claim(&timed_tail, &timed_limit);
            })
        }),
        tollgate("tollgate, exact on every call", ample().stride(0)),
        tollgate("tollgate, exact, quanta clock", ample().stride(0).clock(QuantaClock::new())),
        Contender::new("governor", move |n| again(n, || governor.check().is_ok())),
        Contender::new("governor, Instant", move |n| again(n, || governor_instant.check().is_ok())),
        Contender::new("ratelimit", move |n| again(n, || ratelimit.try_wait().is_ok())),
        Contender::new("better-bucket", move |n| again(n, || better.try_acquire(1))),
        Contender::new("rate-net", move |n| again(n, || rate_net.check().is_allow())),
        Contender::new("leaky-bucket", move |n| again(n, || leaky.try_acquire(1))),
        Contender::new("async-speed-limit", move |n| again(n, || speed.consume_duration(1))),
        Contender::new("tokio Semaphore", move |n| again(n, || semaphore.try_acquire().expect("plenty").forget())),
    ]
}

fn denied() -> Vec<Contender> {
    let scarce = || Limiter::builder().quota(Quota::per_day(1).initial(0));
    let quota = governor::Quota::with_period(DAY).expect("not zero");
    let governor = governor::RateLimiter::direct(quota);
    let governor_instant = governor::RateLimiter::direct_with_clock(quota, governor::clock::MonotonicClock);
    while governor.check().is_ok() || governor_instant.check().is_ok() {}
    let better = better_bucket::Bucket::per_duration(1, DAY);
    while better.try_acquire(1) {}
    let rate_net = rate_net::DirectLimiter::with_quota(rate_net::Quota::rate(1, DAY).expect("valid"));
    while rate_net.check().is_allow() {}
    let ratelimit = ratelimit::Ratelimiter::builder(1).period(DAY).build().expect("valid");
    while ratelimit.try_wait().is_ok() {}
    let semaphore = Semaphore::new(0);
    let read = AtomicU64::new(0);
    vec![
        Contender::new("floor: Instant::now + loads", move |n| {
            again(n, || (Instant::now(), read.load(Acquire), read.load(Acquire)))
        }),
        tollgate("tollgate", scarce()),
        tollgate("tollgate, quanta clock", scarce().clock(QuantaClock::new())),
        Contender::new("governor", move |n| again(n, || governor.check().is_ok())),
        Contender::new("governor, Instant", move |n| again(n, || governor_instant.check().is_ok())),
        Contender::new("ratelimit", move |n| again(n, || ratelimit.try_wait().is_ok())),
        Contender::new("better-bucket", move |n| again(n, || better.try_acquire(1))),
        Contender::new("rate-net", move |n| again(n, || rate_net.check().is_allow())),
        Contender::new("tokio Semaphore", move |n| again(n, || semaphore.try_acquire().is_ok())),
    ]
}

fn capped() -> Vec<Contender> {
    let limiter = ample().max_in_flight(BURST.into()).build().expect("valid");
    let semaphore = Semaphore::new(BURST as usize);
    let (tail, limit, released) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
    vec![
        Contender::new("floor: load + compare_exchange, fetch_add", move |n| {
            again(n, || {
                claim(&tail, &limit);
                released.fetch_add(1, Release)
            })
        }),
        Contender::new("tollgate", move |n| again(n, || limiter.try_acquire(1).expect("plenty"))),
        Contender::new("tokio Semaphore", move |n| again(n, || semaphore.try_acquire().expect("plenty"))),
    ]
}
