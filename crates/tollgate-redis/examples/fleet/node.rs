//! A node: many tasks that claim from one limiter, and one task that reports their grants.

use crate::report::{Report, Sample, now};
use crate::{Failure, Options};
use std::cell::Cell;
use std::io::{BufRead, Write, stdin, stdout};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{interval, sleep};
use tollgate::{Limiter, Quota};
use tollgate_redis::RedisStore;

const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// Grants that are not reported yet.
#[derive(Default)]
struct Desk {
    /// The instants of the first and the last grant, and the number of tokens.
    granted: Cell<Option<(u64, u64, u64)>>,
    news: Notify,
}

pub(crate) fn run(options: &Options, url: &str) -> Result<(), Failure> {
    // One thread, so that all claims woken at once are in one report, written before anything else happens.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let line = runtime.block_on(RedisStore::connect(url, "fleet"))?;
    say(Report::Ready)?;
    wait_for_go()?;
    let desk = Rc::new(Desk::default());
    let local = LocalSet::new();
    let limiter = local.block_on(&runtime, work(options, &line, &desk))?;
    drop(local);
    desk.report()?;
    say(Report::Sample(sample(&limiter, &line, 0)))
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

async fn work(options: &Options, line: &RedisStore, desk: &Rc<Desk>) -> Result<Limiter, Failure> {
    say(Report::Began { at: now() })?;
    let quota = Quota::per_second(options.rate).burst(options.burst());
    let limiter = Limiter::builder().quota(quota).distributed(line.clone()).build()?;
    for _ in 0..options.tasks() {
        tokio::task::spawn_local(ask(limiter.clone(), desk.clone()));
    }
    let end = sleep(Duration::from_secs_f64(options.seconds));
    tokio::select! {
        failed = report(desk) => failed?,
        failed = watch(&limiter, line) => failed?,
        () = end => {}
    }
    say(Report::Ended { at: now() })?;
    Ok(limiter)
}

/// Reports the grants until the parent does not read any more.
async fn report(desk: &Desk) -> Result<(), Failure> {
    loop {
        desk.news.notified().await;
        desk.report()?;
    }
}

/// Reports samples until the parent does not read any more.
async fn watch(limiter: &Limiter, line: &RedisStore) -> Result<(), Failure> {
    let mut ticks = interval(SAMPLE_EVERY);
    loop {
        let late = ticks.tick().await.elapsed().as_nanos() as u64;
        say(Report::Sample(sample(limiter, line, late)))?;
    }
}

async fn ask(limiter: Limiter, desk: Rc<Desk>) {
    while limiter.consume(1).await.is_ok() {
        desk.note(1);
    }
}

impl Desk {
    fn note(&self, cost: u64) {
        let now = now();
        let (first, _, tokens) = self.granted.get().unwrap_or((now, now, 0));
        self.granted.set(Some((first, now, tokens + cost)));
        self.news.notify_one();
    }

    fn report(&self) -> Result<(), Failure> {
        self.granted.take().map_or(Ok(()), |(first, last, tokens)| say(Report::Grants { first, last, tokens }))
    }
}

fn sample(limiter: &Limiter, line: &RedisStore, late: u64) -> Sample {
    let (limiter, line) = (limiter.snapshot(), line.snapshot());
    Sample {
        waiting: limiter.waiting_tasks as u64,
        round_trips: line.round_trips,
        lease: line.lease,
        hold: line.allowance,
        late: late.max(limiter.lateness.as_nanos() as u64) + line.round_trip.as_nanos() as u64,
    }
}

fn say(report: Report) -> Result<(), Failure> {
    writeln!(stdout(), "{report}").map_err(|error| format!("the parent does not read the reports: {error}").into())
}
