//! Seastar's dispatch loop on a `Bucket`, with threads and without a runtime.
//!
//! ```text
//! requests -> [queue] -> dispatcher -> [jobs] -> workers -> disk
//!                          | grab, deficiency      | release
//!                          v                       v
//!                        bucket <--- replenish --- timer
//! ```
//!
//! The disk takes 400 tokens of work per second, and stalls for a while. The loop runs twice. With a plain `Bucket` it
//! continues to dispatch at its rate, and the work piles up in front of the disk. A `Bucket<Capped>` allows at most 30
//! tokens in flight: the loop stops when there are no completions, and continues when they return.
//!
//! `cargo run --release --example dispatch_loop` takes about two seconds.
//!
//! With tokio you need none of this: a `Limiter` with `max_in_flight` is the same bucket with a queue.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Bucket, Quota};

const RATE: u64 = 400;
const BURST: u64 = 40;
const MAX_IN_FLIGHT: u64 = 30;
const REQUESTS: u64 = 160;
const WORKERS: usize = 4;
const STALL: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_millis(600);

/// A job, with its cost in tokens of the disk's time.
struct Request {
    cost: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    // Both buckets count time from the instant at which they were created: `Duration::ZERO` here.
    let quota = Quota::per_second(RATE).burst(BURST);
    println!("configured: {RATE} tokens/s, burst {BURST}; the disk stalls from {:?} to {:?}\n", STALL.start, STALL.end);
    println!("{:<20} {:>8} {:>8} {:>12} {:>16}", "", "tokens", "seconds", "achieved/s", "most in flight");

    let plain = Bucket::new(quota, Duration::ZERO)?;
    run(&plain, |_cost| {}).print("Bucket");

    let capped = Bucket::capped(quota, MAX_IN_FLIGHT, Duration::ZERO)?;
    run(&capped, |cost| capped.release(cost)).print(&format!("Bucket<Capped>, {MAX_IN_FLIGHT}"));
    Ok(())
}

struct Summary {
    tokens: u64,
    took: Duration,
    most_in_flight: u64,
}

impl Summary {
    fn print(&self, name: &str) {
        let Self { tokens, took, most_in_flight } = self;
        // The first `BURST` tokens were there from the start; the others had to be minted.
        let achieved = tokens.saturating_sub(BURST) as f64 / took.as_secs_f64();
        println!("{name:<20} {tokens:>8} {:>8.2} {achieved:>12.1} {most_in_flight:>16}", took.as_secs_f64());
    }
}

/// Sends all requests through `bucket`. `complete` is called with the cost of each finished request.
fn run<C>(bucket: &Bucket<C>, complete: impl Fn(u64) + Sync) -> Summary {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let in_flight = InFlight::default();
    let (enqueue, queue) = mpsc::channel();
    let (dispatch, jobs) = mpsc::channel();
    let jobs = Mutex::new(jobs);

    for number in 0..REQUESTS {
        let request = Request { cost: 1 + number % 4 };
        enqueue.send(request).expect("the dispatcher still runs");
    }
    drop(enqueue); // there are no more: the dispatcher ends when the queue is empty

    thread::scope(|scope| {
        scope.spawn(|| replenish_all_the_time(bucket, start, &stop));
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&jobs, start, &in_flight, &complete))).collect();
        let dispatcher = scope.spawn(|| dispatch_all(bucket, queue, dispatch, &in_flight));

        let tokens = dispatcher.join().expect("the dispatcher does not panic");
        let took = start.elapsed();
        for worker in workers {
            worker.join().expect("workers do not panic");
        }
        stop.store(true, Ordering::Relaxed);
        Summary { tokens, took, most_in_flight: in_flight.most.load(Ordering::Relaxed) }
    })
}

/// The dispatch loop: grab, wait until the tokens are there, dispatch. Returns the number of dispatched tokens.
fn dispatch_all<C>(
    bucket: &Bucket<C>,
    queue: mpsc::Receiver<Request>,
    jobs: mpsc::Sender<Request>,
    in_flight: &InFlight,
) -> u64 {
    let mut tokens = 0;
    for request in queue {
        // The position in the queue is taken here. With several dispatchers, this keeps them in order.
        let ticket = bucket.grab(request.cost);
        while bucket.deficiency(ticket) > 0 {
            // Seastar yields to its other fibers here. This thread sleeps instead, so that it does not burn a core.
            thread::sleep(Duration::from_micros(200));
        }
        tokens += request.cost;
        in_flight.begin(request.cost);
        jobs.send(request).expect("the workers outlive the dispatcher");
    }
    tokens
}

/// The timer: replenishes the bucket with the current time. A tick makes up for a late one, since tokens are counted by
/// the time. The interval decides how finely the tokens come, and how soon a full bucket fills again.
fn replenish_all_the_time<C>(bucket: &Bucket<C>, start: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        bucket.replenish(start.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
}

/// A worker: takes jobs until there are none, and reports each finished one.
fn work(jobs: &Mutex<mpsc::Receiver<Request>>, start: Instant, in_flight: &InFlight, complete: &impl Fn(u64)) {
    loop {
        // One worker at a time waits for the next job; the lock is released before the work begins.
        let job = jobs.lock().expect("workers do not panic").recv();
        let Ok(Request { cost }) = job else { return };
        use_disk(cost, start.elapsed());
        in_flight.end(cost);
        complete(cost); // with a cap, this lets other jobs start
    }
}

/// The work: two milliseconds per token, unless the disk stalls.
fn use_disk(cost: u64, now: Duration) {
    if STALL.contains(&now) {
        thread::sleep(STALL.end - now);
    }
    thread::sleep(Duration::from_millis(2) * cost as u32);
}

/// Counts the tokens that were dispatched and are not finished.
#[derive(Default)]
struct InFlight {
    now: AtomicU64,
    most: AtomicU64,
}

impl InFlight {
    fn begin(&self, cost: u64) {
        let now = self.now.fetch_add(cost, Ordering::Relaxed) + cost;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self, cost: u64) {
        self.now.fetch_sub(cost, Ordering::Relaxed);
    }
}
