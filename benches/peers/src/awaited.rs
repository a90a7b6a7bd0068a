//! Hot loops that await and never have to wait.

use crate::rounds::{Extent, on_threads, print, undisturbed};
use std::future::{Future, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollgate::{Limiter, Quota};

const PLENTY: u32 = 1_000_000_000;
const BURST: u32 = 1_000_000;

/// After this time a turn has hung: two tasks at once have lost leaky-bucket's wake-up, though there were enough
/// tokens.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;
type MakeJob = Box<dyn Fn(u64) -> Job + Sync>;

/// A contender that makes a new future for each operation.
macro_rules! contender {
    ($name:literal, $shared:expr, |$it:ident| $operation:expr) => {{
        let shared = $shared;
        let make = move |n: u64| -> Job {
            let $it = shared.clone();
            Box::pin(async move {
                for _ in 0..n {
                    let _ = $operation;
                }
            })
        };
        ($name, Box::new(make) as MakeJob)
    }};
}

fn contenders() -> Vec<(&'static str, MakeJob)> {
    let rate = |n| NonZeroU32::new(n).expect("not zero");
    let quota = || Quota::per_second(PLENTY.into()).burst(BURST.into());
    let limiter = Limiter::new(quota()).expect("valid");
    let capped = Limiter::builder().quota(quota()).max_in_flight(BURST.into()).build().expect("valid");
    let most = usize::MAX / 4;
    let leaky = Arc::new(leaky_bucket::RateLimiter::builder().max(most).initial(most).build());
    let governor_quota = governor::Quota::per_second(rate(PLENTY)).allow_burst(rate(BURST));
    vec![
        contender!("floor: fetch_add as a future", Arc::new(AtomicU64::new(0)), |counter| {
            black_box(ready(counter.fetch_add(1, Relaxed)).await)
        }),
        contender!("tollgate", limiter, |limiter| limiter.consume(1).await.expect("open")),
        contender!("tollgate, capped, released", capped, |limiter| limiter.consume(1).await.expect("open")),
        contender!("tokio Semaphore", Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)), |semaphore| {
            semaphore.acquire().await.expect("open").forget()
        }),
        contender!("tokio Semaphore, released", Arc::new(Semaphore::new(BURST as usize)), |semaphore| {
            semaphore.acquire().await.expect("open")
        }),
        contender!("governor", Arc::new(governor::RateLimiter::direct(governor_quota)), |governor| {
            governor.until_ready().await
        }),
        contender!("leaky-bucket", leaky, |leaky| leaky.acquire(1).await),
        contender!("rate-net", Arc::new(rate_net::DirectLimiter::per_second(PLENTY)), |limiter| {
            limiter.try_until_ready().await.expect("it fits")
        }),
        contender!("async-speed-limit", <async_speed_limit::Limiter>::new(PLENTY.into()), |limiter| {
            limiter.consume(1).await
        }),
    ]
}

pub fn run(tasks: usize, extent: Extent) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let contenders = contenders();
    let case = format!("awaited, {tasks} tasks");
    for _ in 0..extent.rounds {
        for (name, make) in &contenders {
            let hung = AtomicBool::new(false);
            let work = async || {
                if timeout(TURN_TIMEOUT, make(extent.operations)).await.is_err() {
                    hung.store(true, Relaxed);
                }
            };
            // Each on a thread of its own: spawned tasks can end up on one worker, and would not contend.
            let took = undisturbed(|| on_threads(tasks, || runtime.block_on(work())));
            if hung.into_inner() {
                print(&case, name, "hung", 1.0);
            } else {
                print(&case, name, "ns", took.as_nanos() as f64 / extent.operations as f64);
            }
        }
    }
}
