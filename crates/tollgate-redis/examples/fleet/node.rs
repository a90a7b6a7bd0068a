//! A node: many tasks that claim from one limiter, and one task that reports what the limiter grants.

use crate::clock::StepClock;
use crate::law::Batch;
use crate::leases::RecordedStore;
use crate::report::{Report, Sample, now, say};
use crate::{Failure, Options};
use std::io::{BufRead, stdin};
use std::time::Duration;
use tokio::time::{interval, sleep};
use tollgate::distributed::Store;
use tollgate::{Limiter, Quota};
use tollgate_redis::RedisStore;

const REPORT_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(options: &Options, url: &str) -> Result<(), Failure> {
    // One thread, which the clock relies on.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = StepClock::default();
    let store = RecordedStore::new(runtime.block_on(RedisStore::connect(url, "fleet"))?, options.rate, clock.clone());
    say(Report::Ready)?;
    wait_for_go()?;
    runtime.block_on(work(options, &store, &clock))
}

/// Waits for the parent's start line, and ends this process when the parent has ended.
fn wait_for_go() -> Result<(), Failure> {
    if stdin().lock().read_line(&mut String::new())? == 0 {
        return Err("the parent ended before it started this node".into());
    }
    std::thread::spawn(|| {
        _ = stdin().lock().read_line(&mut String::new());
        std::process::exit(2);
    });
    Ok(())
}

async fn work(options: &Options, store: &RecordedStore, clock: &StepClock) -> Result<(), Failure> {
    say(Report::Began { at: now() })?;
    let quota = Quota::per_second(options.rate).burst(options.burst());
    let limiter = Limiter::builder().quota(quota).distributed(store.clone()).clock(clock.clone()).build()?;
    clock.follow(&limiter);
    for _ in 0..options.tasks() {
        let limiter = limiter.clone();
        tokio::spawn(async move { while limiter.wait(1).await.is_ok() {} });
    }
    tokio::select! {
        failed = watch(&limiter, store, clock) => failed?,
        () = sleep(Duration::from_secs_f64(options.seconds)) => {}
    }
    say(Report::Ended { at: now() })?;
    report(&limiter, store, clock)?;
    clock.end();
    Ok(())
}

/// Reports until the parent does not read any more.
async fn watch(limiter: &Limiter, store: &RecordedStore, clock: &StepClock) -> Result<(), Failure> {
    let mut ticks = interval(REPORT_EVERY);
    loop {
        ticks.tick().await;
        report(limiter, store, clock)?;
    }
}

/// Reports the grants since the last report, and a sample.
fn report(limiter: &Limiter, store: &RecordedStore, clock: &StepClock) -> Result<(), Failure> {
    for Batch { first, last, tokens } in clock.take_batches() {
        say(Report::Grants { first, last, tokens })?;
    }
    say(Report::Sample(sample(limiter, store, clock.late())))
}

fn sample(limiter: &Limiter, store: &RecordedStore, late: u64) -> Sample {
    let (limiter, line) = (limiter.snapshot(), store.tally().snapshot());
    Sample {
        waiting: limiter.waiting_tasks as u64,
        round_trips: line.round_trips,
        lease: line.lease,
        hold: line.allowance,
        late,
    }
}
