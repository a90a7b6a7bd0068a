//! A node: many tasks that claim from one limiter, and one task that reports what the limiter grants.

use crate::Failure;
use crate::clock::StepClock;
use crate::law::Batch;
use crate::leases::RecordedStore;
use crate::report::{Report, Sample, now, say};
use crate::work::Work;
use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{interval, sleep};
use tollgate::distributed::Store;
use tollgate::{Limiter, Quota};
use tollgate_redis::RedisStore;

const REPORT_EVERY: Duration = Duration::from_millis(10);

/// A store, and how many connections were made for it so far.
pub(crate) struct Connected {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) connections: Box<dyn Fn() -> u64>,
}

pub(crate) fn connections(store: &RedisStore) -> u64 {
    store.servers().first().map_or(0, |server| server.connections)
}

pub(crate) fn run(work: &Work, connect: impl Future<Output = Result<Connected, Failure>>) -> Result<(), Failure> {
    // One thread, which the clock relies on.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = StepClock::default();
    let Connected { store, connections } = runtime.block_on(connect)?;
    let store = RecordedStore::new(store, work.rate, clock.clone());
    say(Report::Ready)?;
    let stop = wait_for_go()?;
    runtime.block_on(serve(work, &Reporter { store, clock, connections }, stop))
}

/// Waits for the parent's start line. The result is sent the parent's stop line. Ends this process when the parent has
/// ended.
fn wait_for_go() -> Result<oneshot::Receiver<()>, Failure> {
    if stdin().lock().read_line(&mut String::new())? == 0 {
        return Err("the parent ended before it started this node".into());
    }
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        if !matches!(stdin().lock().read_line(&mut String::new()), Ok(1..)) {
            std::process::exit(2);
        }
        // The node may have stopped by itself.
        _ = stop.send(());
    });
    Ok(stopped)
}

async fn serve(work: &Work, reporter: &Reporter, stop: oneshot::Receiver<()>) -> Result<(), Failure> {
    say(Report::Began { at: now() })?;
    let quota = Quota::per_second(work.rate).burst(work.burst());
    let (store, clock) = (&reporter.store, &reporter.clock);
    let limiter = Limiter::builder().quota(quota).distributed(store.clone()).clock(clock.clone()).build()?;
    clock.follow(&limiter);
    for _ in 0..work.tasks() {
        let limiter = limiter.clone();
        tokio::spawn(async move { while limiter.wait(1).await.is_ok() {} });
    }
    tokio::select! {
        failed = reporter.watch(&limiter) => failed?,
        () = sleep(Duration::from_secs_f64(work.seconds)) => {}
        Ok(()) = stop => {}
    }
    say(Report::Ended { at: now() })?;
    reporter.report(&limiter)?;
    clock.end();
    Ok(())
}

struct Reporter {
    store: RecordedStore,
    clock: StepClock,
    connections: Box<dyn Fn() -> u64>,
}

impl Reporter {
    /// Reports until the parent does not read any more.
    async fn watch(&self, limiter: &Limiter) -> Result<(), Failure> {
        let mut ticks = interval(REPORT_EVERY);
        loop {
            ticks.tick().await;
            self.report(limiter)?;
        }
    }

    /// Reports the grants since the last report, and a sample.
    fn report(&self, limiter: &Limiter) -> Result<(), Failure> {
        for Batch { first, last, tokens } in self.clock.take_batches() {
            say(Report::Grants { first, last, tokens })?;
        }
        say(Report::Sample(self.sample(limiter)))
    }

    fn sample(&self, limiter: &Limiter) -> Sample {
        let (limiter, store) = (limiter.snapshot(), self.store.tally().snapshot());
        Sample {
            waiting: limiter.waiting_tasks as u64,
            round_trips: store.round_trips,
            lease: store.lease,
            hold: store.allowance,
            late: self.clock.late(),
            connections: (self.connections)(),
        }
    }
}
