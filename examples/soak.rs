//! All operations at once, in real time, for as long as you like.
//!
//! ```text
//! cargo run --release --example soak -- --seconds 60
//! ```
//!
//! Ten thousand tasks wait in one queue and claim again as soon as they are served. Many cancel half-way; those that
//! are served settle for more or less than they claimed. One more task tries to overtake, reads all values, and changes
//! the in-flight cap. The last line says whether the law was kept, and the exit code is 1 if it was not. Runs of at
//! least 30 seconds must also reach 0.999 of the rate, with constant memory.
//!
//! All tasks run on one thread, where the wake order is the poll order, so that the order of service is well defined.
//! Tests with many threads are in `tests/it/threads`.

use clap::Parser;
use std::cell::RefCell;
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tollgate::{Limiter, Quota};

/// Soak a limiter: a long queue, random cancellations and settlements, and a task that calls everything else
#[derive(Clone, Parser)]
struct Options {
    /// The duration
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Waiting tasks
    #[arg(long, default_value_t = 10_000)]
    tasks: u64,
    /// Tokens per second
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    /// Largest cost of a claim
    #[arg(long, default_value_t = 10)]
    cost: u64,
}

impl Options {
    /// A fifth of a second: more than the lateness of timers on a busy machine.
    fn burst(&self) -> u64 {
        self.rate / 5
    }
}

/// Checks the grants in their order.
struct Judge {
    rate: f64,
    /// The largest excess over `rate x window` of all windows that end now, and of all windows so far.
    excess: f64,
    worst: f64,
    last: Instant,
    /// The place of the latest served claim.
    furthest: u64,
    overtaken: u64,
    /// How often `try_acquire` was granted while others waited.
    barged: u64,
}

impl Judge {
    fn count(&mut self, tokens: f64) {
        let now = Instant::now();
        self.excess = (self.excess - self.rate * (now - self.last).as_secs_f64()).max(0.0) + tokens;
        self.worst = self.worst.max(self.excess);
        self.last = now;
    }

    fn served(&mut self, place: Option<u64>, cost: u64) {
        self.count(cost as f64);
        if let Some(place) = place {
            self.overtaken += u64::from(place < self.furthest);
            self.furthest = self.furthest.max(place);
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let quota = Quota::per_second(options.rate).burst(options.burst());
    let limiter = Limiter::builder().quota(quota).max_in_flight(options.rate).build().expect("a valid quota");
    let start = Instant::now();
    let judge =
        Judge { rate: options.rate as f64, excess: 0.0, worst: 0.0, last: start, furthest: 0, overtaken: 0, barged: 0 };
    let judge = Rc::new(RefCell::new(judge));
    let (memory_at_first, took) = soak(&options, &limiter, &judge);
    report(&options, &limiter, &judge.borrow(), memory_at_first, took)
}

/// Runs the tasks. Returns the memory in use when all of them waited, and the elapsed time.
fn soak(options: &Options, limiter: &Limiter, judge: &Rc<RefCell<Judge>>) -> (u64, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    let start = Instant::now();
    let places = Rc::new(RefCell::new(0));
    for seed in 0..options.tasks {
        let random = fastrand::Rng::with_seed(seed);
        // Without a cooperative budget, a first poll that returns `Pending` has entered the queue, so places follow the
        // order of the first polls.
        let task = ask(options.clone(), limiter.clone(), judge.clone(), places.clone(), random);
        local.spawn_local(tokio::task::unconstrained(task));
    }
    local.spawn_local(try_to_overtake(options.rate, limiter.clone(), judge.clone()));
    local.block_on(&runtime, async {
        let settled = Duration::from_secs(options.seconds.div_ceil(4));
        tokio::time::sleep(settled).await;
        let memory = resident();
        tokio::time::sleep(Duration::from_secs(options.seconds) - settled).await;
        (memory, start.elapsed())
    })
}

/// One task: claims, perhaps cancels, perhaps settles, claims again.
async fn ask(
    options: Options,
    limiter: Limiter,
    judge: Rc<RefCell<Judge>>,
    places: Rc<RefCell<u64>>,
    mut random: fastrand::Rng,
) {
    loop {
        let cost = random.u64(1..=options.cost);
        let place = {
            let mut places = places.borrow_mut();
            *places += 1;
            *places
        };
        let mut claim = pin!(limiter.consume(cost));
        // A claim that need not wait, or is polled by a timer, may be seen before others that were granted earlier and
        // not polled yet. So only claims that did nothing but wait are compared.
        let (waited, answer) = match futures::poll!(claim.as_mut()) {
            Poll::Ready(answer) => (false, Some(answer)),
            Poll::Pending if random.u8(..) < 64 => {
                let cancel_after = Duration::from_millis(random.u64(0..1_000));
                (false, tokio::time::timeout(cancel_after, claim).await.ok())
            }
            Poll::Pending => (true, Some(claim.await)),
        };
        let Some(Ok(mut grant)) = answer else { continue };
        judge.borrow_mut().served(waited.then_some(place), cost);
        if random.bool() {
            let actual = random.u64(0..=cost);
            grant.settle(actual);
            judge.borrow_mut().count(actual as f64 - cost as f64);
        } else if random.u8(..) < 16 {
            // A debt: later claims pay for it.
            grant.settle(cost + 1);
        }
    }
}

/// The task that tries to overtake, and changes the settings.
async fn try_to_overtake(rate: u64, limiter: Limiter, judge: Rc<RefCell<Judge>>) {
    let mut random = fastrand::Rng::with_seed(0);
    loop {
        let waiting = limiter.snapshot().waiting_tasks;
        if limiter.try_acquire(1).is_ok() && waiting > 0 {
            judge.borrow_mut().barged += 1;
        }
        limiter.set_max_in_flight(random.u64(rate / 2..=rate)).expect("capped");
        tokio::time::sleep(Duration::from_millis(random.u64(0..5))).await;
    }
}

fn report(options: &Options, limiter: &Limiter, judge: &Judge, memory_at_first: u64, took: Duration) -> ExitCode {
    let seen = limiter.snapshot();
    let allowed = options.burst() as f64 + options.rate as f64 * took.as_secs_f64();
    let achieved = (seen.granted - seen.refunded) as f64 / allowed;
    let excess = (judge.worst - options.burst().max(options.cost) as f64).max(0.0).floor();
    let growth = resident() as f64 / memory_at_first.max(1) as f64;
    println!(
        "soak: achieved={achieved:.4} excess={excess} order_violations={} barged={} memory_growth={growth:.3} \
         granted={} refunded={} lateness_ms={:.1} seconds={:.1}",
        judge.overtaken,
        judge.barged,
        seen.granted,
        seen.refunded,
        seen.lateness.as_secs_f64() * 1e3,
        took.as_secs_f64(),
    );
    let lawful = excess == 0.0 && judge.overtaken == 0 && judge.barged == 0;
    // In a short run, one stall of the machine is a large share of the time.
    let steady = options.seconds < 30 || (achieved >= 0.999 && growth < 1.05);
    let kept = lawful && steady;
    if kept { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Bytes of memory in use; 0 where the system does not report it.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}
