//! Seastar's test of its token bucket: how much of the rate is kept, and how evenly, while other threads or tasks use
//! all of the CPU.
//!
//! Each worker takes 10 tokens, works for a millisecond, and starts again. Hogs are threads, or tasks that keep the
//! runtime from checking its timers for some milliseconds. A cap that loses the tokens minted while it is reached
//! (seastar's) loses rate here, since releases come late and together. A cap that only delays claims does not.

use crate::Failure;
use crate::job::{Contender, Hogs, Job, Outcome, Plan};
use crate::waiting::two_workers;
use std::future::Future;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::{Bucket, Capped, Limiter, Quota};

const RATE: u64 = 10_000;
const WORKERS: usize = 32;
const COST: u64 = 10;
const BURST: u64 = 200;
const CAP: u64 = 160;
const WORK: Duration = Duration::from_millis(1);
/// How long a hog computes before it yields. A runtime may check its timers this late, or twice that with two hogs on a
/// worker.
const HOG: Duration = Duration::from_millis(6);

use Contender as C;

pub fn run(plan: &Plan) -> Result<(), Failure> {
    let contenders = [
        (C::Bucket, "Bucket"),
        (C::CappedBucket, "CappedBucket"),
        (C::Limiter, "Limiter"),
        (C::CappedLimiter, "Limiter with max_in_flight"),
        (C::Burning, "seastar's rule for caps"),
    ];
    for _ in 0..plan.rounds {
        for (count, tasks) in [(0, false), (4, false), (4, true)] {
            let kind = if tasks { "tasks" } else { "threads" };
            for (contender, name) in contenders {
                let hogs = Hogs { count, tasks };
                let job = Job::Hogs { contender, hogs, seconds: plan.seconds };
                plan.run_in_child(&format!("hogs, {count} {kind}"), name, &job)?;
            }
        }
    }
    Ok(())
}

/// One turn of a worker: takes, works, releases.
trait Work: Send + Sync + 'static {
    fn turn(&self, count: &AtomicU64) -> impl Future<Output = ()> + Send;
}

pub fn measure(contender: Contender, hogs: Hogs, seconds: f64) -> Outcome {
    let quota = || Quota::per_second(RATE).burst(BURST).initial(0);
    let limiter = || Limiter::builder().quota(quota());
    match contender {
        C::Bucket => watch(Polled(Bucket::new(quota(), Duration::ZERO).expect("valid"), Instant::now()), hogs, seconds),
        C::CappedBucket => {
            let bucket = Bucket::capped(quota(), CAP, Duration::ZERO).expect("valid");
            watch(Polled(bucket, Instant::now()), hogs, seconds)
        }
        C::Burning => watch(Polled(Burning::default(), Instant::now()), hogs, seconds),
        C::Limiter => watch(limiter().build().expect("valid"), hogs, seconds),
        C::CappedLimiter => watch(limiter().max_in_flight(CAP).build().expect("valid"), hogs, seconds),
    }
}

fn watch(work: impl Work, hogs: Hogs, seconds: f64) -> Outcome {
    let (work, runtime) = (Arc::new(work), two_workers());
    let counts: Vec<Arc<AtomicU64>> = (0..WORKERS).map(|_| Arc::default()).collect();
    for count in &counts {
        let (work, count) = (work.clone(), count.clone());
        runtime.spawn(async move {
            loop {
                work.turn(&count).await;
            }
        });
    }
    let stop = AtomicBool::new(false);
    let read = || counts.iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>();
    let (each, took) = thread::scope(|scope| {
        for _ in 0..hogs.count {
            if hogs.tasks {
                runtime.spawn(hog_task());
            } else {
                scope.spawn(|| burn_until(|| stop.load(Relaxed)));
            }
        }
        thread::sleep(Duration::from_millis(300));
        let (start, before) = (Instant::now(), read());
        thread::sleep(Duration::from_secs_f64(seconds));
        let each: Vec<f64> = read().iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
        stop.store(true, Relaxed);
        (each, start.elapsed().as_secs_f64())
    });
    runtime.shutdown_background();
    let all: f64 = each.iter().sum();
    let mean = all / WORKERS as f64;
    vec![
        ("rate kept, %", 100.0 * all / (RATE as f64 * took)),
        ("least worker / mean", each.iter().copied().fold(f64::MAX, f64::min) / mean),
        ("most / mean", each.iter().copied().fold(0.0, f64::max) / mean),
    ]
}

async fn hog_task() {
    loop {
        let end = Instant::now() + HOG;
        burn_until(|| Instant::now() >= end);
        tokio::task::yield_now().await;
    }
}

fn burn_until(done: impl Fn() -> bool) {
    while !done() {
        spin_loop();
    }
}

impl Work for Limiter {
    async fn turn(&self, count: &AtomicU64) {
        let _grant = self.consume(COST).await.expect("open");
        count.fetch_add(COST, Relaxed);
        sleep(WORK).await;
    }
}

/// A bucket, polled as on seastar's shards: every worker replenishes it and then checks its ticket.
struct Polled<B>(B, Instant);

/// The calls of a dispatch loop.
trait Dispense: Send + Sync + 'static {
    type Ticket: Send + Sync;
    fn grab(&self) -> Self::Ticket;
    fn is_granted(&self, ticket: &Self::Ticket, now: Duration) -> bool;
    fn release(&self) {}
}

impl<B: Dispense> Work for Polled<B> {
    async fn turn(&self, count: &AtomicU64) {
        let Self(bucket, start) = self;
        let ticket = bucket.grab();
        while !bucket.is_granted(&ticket, start.elapsed()) {
            sleep(Duration::from_millis(1)).await;
        }
        count.fetch_add(COST, Relaxed);
        sleep(WORK).await;
        bucket.release();
    }
}

impl Dispense for Bucket {
    type Ticket = tollgate::Ticket;

    fn grab(&self) -> Self::Ticket {
        Bucket::grab(self, COST)
    }

    fn is_granted(&self, ticket: &Self::Ticket, now: Duration) -> bool {
        self.replenish(now);
        self.deficiency(*ticket) == 0
    }
}

impl Dispense for Bucket<Capped> {
    type Ticket = tollgate::Ticket;

    fn grab(&self) -> Self::Ticket {
        Bucket::grab(self, COST)
    }

    fn is_granted(&self, ticket: &Self::Ticket, now: Duration) -> bool {
        self.replenish(now);
        self.deficiency(*ticket) == 0
    }

    fn release(&self) {
        Bucket::release(self, COST);
    }
}

/// Seastar's rule: the tokens minted while the ceiling holds the head back are lost.
#[derive(Default)]
struct Burning(Mutex<Rovers>);

#[derive(Default)]
struct Rovers {
    tail: u64,
    head: u64,
    released: u64,
    minted: u64,
}

impl Dispense for Burning {
    type Ticket = u64;

    fn grab(&self) -> u64 {
        let mut rovers = self.0.lock().expect("no panics");
        rovers.tail += COST;
        rovers.tail
    }

    fn is_granted(&self, ticket: &u64, now: Duration) -> bool {
        let mut rovers = self.0.lock().expect("no panics");
        let due = now.as_micros() as u64 * RATE / 1_000_000;
        let extra = due.saturating_sub(rovers.minted);
        rovers.minted += extra;
        rovers.head = (rovers.head + extra).min(rovers.released + CAP).min(rovers.tail + BURST);
        *ticket <= rovers.head
    }

    fn release(&self) {
        self.0.lock().expect("no panics").released += COST;
    }
}
