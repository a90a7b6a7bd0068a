//! Seastar's dispatch loop on a `Bucket`, with threads and without a runtime.
//!
//! ```text
//! cargo run --example dispatch_loop
//!
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
//! With tokio you need none of this: a `Limiter` with `max_in_flight` is the same bucket with a queue.

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use tollgate::{Bucket, Quota};

const STALL: Range<Duration> = Duration::from_millis(300)..Duration::from_millis(600);
const REQUESTS: u64 = 160;

/// The cost of a request, in tokens.
fn cost_of(number: u64) -> u64 {
    1 + number % 4
}

fn main() -> Result<(), Box<dyn Error>> {
    // Both buckets count time from the instant at which they were created: `Duration::ZERO` here.
    let quota = Quota::per_second(400).burst(40);
    let plain = Bucket::new(quota, Duration::ZERO)?;
    run("Bucket", &plain, |_cost| {});
    let capped = Bucket::capped(quota, 30, Duration::ZERO)?;
    run("Bucket<Capped>", &capped, |cost| capped.release(cost));
    Ok(())
}

/// Sends all requests through `bucket`. `complete` is called with the cost of each finished request.
fn run<C>(name: &str, bucket: &Bucket<C>, complete: impl Fn(u64) + Sync) {
    let (start, stop) = (Instant::now(), AtomicBool::new(false));
    let (in_flight, most_in_flight) = (AtomicU64::new(0), AtomicU64::new(0));
    let (dispatch, jobs) = mpsc::channel();
    let jobs = Mutex::new(jobs);
    // A worker takes jobs until there are none.
    let work = || {
        loop {
            // One worker at a time waits for the next job; the lock is released before the work begins.
            let job = jobs.lock().expect("no worker panics").recv();
            let Ok(cost) = job else { break };
            use_disk(cost, start.elapsed());
            in_flight.fetch_sub(cost, Relaxed);
            complete(cost); // with a cap, this lets other jobs start
        }
    };
    scope(|scope| {
        // The timer. A tick makes up for a late one, since tokens are counted by the time. The interval decides how finely the
        // tokens come, and how soon a full bucket fills again.
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                bucket.replenish(start.elapsed());
                sleep(Duration::from_millis(1));
            }
        });
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        for cost in (0..REQUESTS).map(cost_of) {
            // The position in the queue is taken here. With several dispatchers, this keeps them in order.
            let ticket = bucket.grab(cost);
            while bucket.deficiency(ticket) > 0 {
                // Seastar yields to its other fibers here. This thread sleeps instead, so that it does not burn a core.
                sleep(Duration::from_micros(200));
            }
            let now = in_flight.fetch_add(cost, Relaxed) + cost;
            most_in_flight.fetch_max(now, Relaxed);
            dispatch.send(cost).expect("the workers run");
        }
        let tokens: u64 = (0..REQUESTS).map(cost_of).sum();
        println!("{name}: {tokens} tokens dispatched in {:.2?}", start.elapsed());
        drop(dispatch);
        workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
        stop.store(true, Relaxed);
    });
    println!("    at most {} of them in flight", most_in_flight.into_inner());
}

/// The work: two milliseconds per token, unless the disk stalls.
fn use_disk(cost: u64, now: Duration) {
    if STALL.contains(&now) {
        sleep(STALL.end - now);
    }
    sleep(Duration::from_millis(2) * cost as u32);
}
