//! A client of a server that allows 60 requests in each minute, and does not say when its minutes begin.
//!
//! Jobs of up to 60 requests arrive together, now and then. A request that cannot be sent within five seconds is given up.
//! A sliding window of 60 sends most of them, and the server refuses none, wherever its minutes begin. Buckets that are as
//! safe have a burst of one, or half of the amount. They send less of such work.
//!
//! ```text
//! cargo run --release --example fixed_windows
//! ```

use std::collections::HashMap;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::spawn;
use tollgate::{ConfigError, Limiter, ManualClock, Quota};

const MINUTE: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

/// When the requests of 20 jobs are sent, in milliseconds, and how many there are in all. `seed` decides about the jobs.
fn requests_sent(quota: Quota, seed: u64) -> Result<(Vec<u64>, usize), ConfigError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build()?;
    let (mut now, mut sent, mut all) = (0, Vec::new(), 0);
    for _ in 0..20 {
        let requests = random.usize(1..=60);
        all += requests;
        let mut waiting: Vec<_> = (0..requests).map(|_| spawn(limiter.consume(1).within(PATIENCE))).collect();
        for _ in 0..=PATIENCE.as_millis() / STEP.as_millis() {
            limiter.tick();
            waiting.retain_mut(|request| {
                let answer = request.poll();
                sent.extend(matches!(answer, Poll::Ready(Ok(_))).then_some(now));
                answer.is_pending()
            });
            clock.advance(STEP);
            now += STEP.as_millis() as u64;
        }
        // Some time passes until the next job.
        let pause = STEP * random.u32(0..24_000);
        clock.advance(pause);
        now += pause.as_millis() as u64;
    }
    Ok((sent, all))
}

/// How many requests a server refuses whose minutes begin at `phase`.
fn refused(sent: &[u64], phase: u64) -> u64 {
    let mut windows = HashMap::new();
    sent.iter().for_each(|at| *windows.entry((at + phase) / MINUTE).or_insert(0_u64) += 1);
    windows.values().map(|requests| requests.saturating_sub(60)).sum()
}

fn main() -> Result<(), ConfigError> {
    println!("{:24} {:>12} {:>24}", "quota", "requests sent", "refused in 10,000 phases");
    for quota in
        [Quota::per_minute(60).sliding(), Quota::per_minute(59).burst(1), Quota::per_minute(30), Quota::per_minute(60)]
    {
        let (mut sent, mut all, mut refusals) = (0, 0, 0);
        for seed in 0..20 {
            let (instants, requests) = requests_sent(quota, seed)?;
            (sent, all) = (sent + instants.len(), all + requests);
            let mut random = fastrand::Rng::with_seed(seed);
            refusals += (0..500).map(|_| refused(&instants, random.u64(0..MINUTE))).sum::<u64>();
        }
        println!("{:24} {:>10} % {refusals:>24}", quota.to_string(), 100 * sent / all);
        assert!(refusals == 0 || quota == Quota::per_minute(60), "{quota} is safe");
    }
    Ok(())
}

#[test]
fn the_server_refuses_nothing() {
    main().unwrap();
}
