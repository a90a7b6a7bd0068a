//! A quota is tried out before it is enforced.
//!
//! A service is limited to 1,000 requests per second. Its operators want to add a quota of 100 requests per second with
//! a burst of 20, and do not know which callers it would delay. So they add the new quota in dry run: it holds back no
//! request, and each grant says what the new quota would have done. Then they enforce it, while requests arrive.
//!
//! Time is simulated, so the program ends at once and prints the same on every run. It also makes the same calls on a
//! limiter that enforces both quotas from the start, and compares each wait with what the dry run said, to the
//! nanosecond.
//!
//! `cargo run --release --example dry_run`; the last line is for machines.

use fastrand::Rng;
use futures::task::noop_waker;
use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Consume, Limiter, ManualClock, Quota};

const CALLS: usize = 20_000;
const NANO: Duration = Duration::from_nanos(1);

fn main() -> Result<(), Box<dyn Error>> {
    let calls = calls();
    let length: Duration = calls.iter().map(|call| call.after).sum();
    println!("{CALLS} requests in {length:.1?}: 80 per second on average, some in bursts of 60, some heavy\n");

    let clock = ManualClock::new();
    let limiter = limiter(&clock).dry_run_quota("new").build()?;
    let waits = try_out(&limiter, &clock, &calls)?;
    print(&limiter, &waits);

    let enforced = enforce(&calls)?;
    let agree = waits == enforced;
    println!("\na limiter that enforces both quotas made them wait: the same, request by request? {agree}");

    limiter.set_dry_run("new", false)?;
    let mut passed = 0;
    while limiter.try_acquire(1).is_ok() {
        passed += 1;
    }
    println!(
        "enforced from now on: {passed} requests pass at once, the next one in {:?}",
        limiter.estimate(1).ok_or("no rate")?
    );

    let longest = waits.iter().max().ok_or("no calls")?;
    let would_wait = waits.iter().filter(|wait| !wait.is_zero()).count();
    println!(
        "dry_run: calls={CALLS} would_wait={would_wait} wait_max_ms={:.3} agree={agree}",
        longest.as_secs_f64() * 1e3
    );
    if agree { Ok(()) } else { Err("the dry run and the enforced quotas disagree".into()) }
}

/// A request: the time since the one before it, and its cost.
struct Call {
    after: Duration,
    cost: u64,
}

/// Requests at random, and now and then a burst of them.
fn calls() -> Vec<Call> {
    let mut random = Rng::with_seed(20);
    let mut in_burst = 0;
    let mut call = || {
        if in_burst == 0 && random.u32(0..600) == 0 {
            in_burst = 60;
        }
        in_burst -= u32::from(in_burst > 0);
        let mean = if in_burst > 0 { 0.001 } else { 0.014 };
        let after = Duration::from_secs_f64(-mean * (1.0 - random.f64()).ln());
        Call { after, cost: if random.u32(0..50) == 0 { 5 } else { 1 } }
    };
    (0..CALLS).map(|_| call()).collect()
}

fn limiter(clock: &ManualClock) -> tollgate::Builder {
    Limiter::builder()
        .quota_named("old", Quota::per_second(1_000))
        .quota_named("new", Quota::per_second(100).burst(20))
        .clock(clock.clone())
}

/// Makes all calls on a limiter that holds back none of them, and returns how long each would have waited.
fn try_out(limiter: &Limiter, clock: &ManualClock, calls: &[Call]) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut waits = Vec::new();
    for call in calls {
        clock.advance(call.after);
        // A request of its own task writes `limiter.consume(cost).await?`.
        let Poll::Ready(grant) = poll(&mut Box::pin(limiter.consume(call.cost))) else {
            return Err("a request was held back".into());
        };
        waits.push(grant?.would_have_waited().ok_or("the wait is known")?);
    }
    Ok(waits)
}

fn print(limiter: &Limiter, waits: &[Duration]) {
    let mut sorted = waits.to_vec();
    sorted.sort();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    println!("with the new quota they would have waited:");
    for (name, share) in
        [("half of them at most", 0.5), ("90 % at most", 0.9), ("99 % at most", 0.99), ("all at most", 1.0)]
    {
        println!("  {name:<22}{:>12.3?}", at(share));
    }
    let seen = limiter.snapshot();
    if let Some(dry_run) = seen.dry_run {
        println!("{} would have waited, and {} would be waiting now", dry_run.would_wait, dry_run.waiting_tasks);
    }
}

/// Makes all calls on a limiter that enforces both quotas, and returns how long each waits.
fn enforce(calls: &[Call]) -> Result<Vec<Duration>, Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = limiter(&clock).build()?;
    let mut waits = vec![Duration::ZERO; calls.len()];
    let mut queue: VecDeque<Waiting<'_>> = VecDeque::new();
    let (mut now, mut next) = (Duration::ZERO, Duration::ZERO);
    for (index, call) in calls.iter().enumerate() {
        next += call.after;
        while let Some(first) = queue.front().filter(|first| first.due <= next) {
            now = pass(&clock, now, first.due)?;
            limiter.tick();
            let mut first = queue.pop_front().ok_or("there is a first one")?;
            if poll(&mut first.claim).is_pending() {
                return Err("the first request in the queue is not granted when it is due".into());
            }
            waits[first.index] = now - first.since;
        }
        now = pass(&clock, now, next)?;
        let due = now + limiter.estimate(call.cost).ok_or("no rate")?;
        let mut claim = Box::pin(limiter.consume(call.cost));
        if poll(&mut claim).is_pending() {
            queue.push_back(Waiting { claim, index, since: now, due });
        }
    }
    for mut waiting in queue {
        // A nanosecond early is too early.
        now = pass(&clock, now, waiting.due - NANO)?;
        if poll(&mut waiting.claim).is_ready() {
            return Err("a request is granted before it is due".into());
        }
        now = pass(&clock, now, waiting.due)?;
        limiter.tick();
        let Poll::Ready(Ok(_grant)) = poll(&mut waiting.claim) else { return Err("not granted when it is due".into()) };
        waits[waiting.index] = now - waiting.since;
    }
    Ok(waits)
}

/// A request in the queue of the enforced limiter.
struct Waiting<'a> {
    claim: Pin<Box<Consume<'a>>>,
    index: usize,
    since: Duration,
    due: Duration,
}

fn pass(clock: &ManualClock, now: Duration, until: Duration) -> Result<Duration, Box<dyn Error>> {
    clock.advance(until.checked_sub(now).ok_or("time does not go back")?);
    Ok(until)
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(&noop_waker()))
}
