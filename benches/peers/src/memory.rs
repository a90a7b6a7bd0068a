//! Bytes of a waiting future, allocations of a consume, bytes of a limiter.

use crate::rounds::print;
use allocation_counter::measure;
use futures::poll;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tollgate::{Limiter, Quota};

const CASE: &str = "memory";

/// Each on a runtime of this thread, on which allocations are counted. A wait is for a token that is due in a
/// millisecond.
pub fn run() {
    let some = |n| NonZeroU32::new(n).expect("not zero");
    let tollgate =
        |initial| move || Limiter::new(Quota::per_second(1_000).burst(100_000).initial(initial)).expect("valid");
    audit("tollgate", tollgate(0), tollgate(100_000), async |limiter: &Limiter, _| {
        drop(limiter.consume(1).await.expect("open"))
    });
    size("tollgate", &tollgate(0)().consume(1));
    let semaphore = |permits| move || Arc::new(Semaphore::new(permits));
    audit("tokio Semaphore", semaphore(0), semaphore(100_000), async |semaphore: &Arc<Semaphore>, wait| {
        let acquire = async { semaphore.acquire().await.expect("open").forget() };
        let mut acquire = pin!(acquire);
        if wait {
            assert!(poll!(acquire.as_mut()).is_pending());
            semaphore.add_permits(1);
        }
        acquire.await
    });
    size("tokio Semaphore", &semaphore(0)().acquire());
    let governor = |burst| {
        move || {
            let limiter =
                governor::RateLimiter::direct(governor::Quota::per_second(some(1_000)).allow_burst(some(burst)));
            while burst == 1 && limiter.check().is_ok() {}
            Arc::new(limiter)
        }
    };
    audit("governor", governor(1), governor(100_000), async |limiter: &Arc<governor::DefaultDirectRateLimiter>, _| {
        limiter.until_ready().await
    });
    size("governor", &governor(1)().until_ready());
    let leaky = |initial| {
        move || {
            let mut builder = leaky_bucket::RateLimiter::builder();
            Arc::new(builder.max(100_000).initial(initial).refill(1).interval(Duration::from_millis(1)).build())
        }
    };
    audit("leaky-bucket", leaky(0), leaky(100_000), async |limiter: &Arc<leaky_bucket::RateLimiter>, _| {
        limiter.acquire(1).await
    });
    size("leaky-bucket", &leaky(0)().acquire(1));
}

fn size<F: Future>(name: &str, future: &F) {
    print(CASE, name, "future, bytes", size_of_val(future) as f64);
}

fn audit<T>(name: &str, empty: impl Fn() -> T, full: impl Fn() -> T, consume: impl AsyncFn(&T, bool)) {
    const TIMES: u64 = 200;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let mut kept = None;
    let built = measure(|| kept = Some(empty()));
    print(CASE, name, "shared state, heap bytes", built.bytes_current as f64);
    for (how, limiter, wait) in [("ready", full(), false), ("waiting", empty(), true)] {
        let times = |n: u64| {
            runtime.block_on(async {
                for _ in 0..n {
                    consume(&limiter, wait).await;
                }
            })
        };
        // The first call spawns background tasks.
        times(10);
        let count = measure(|| times(TIMES)).count_total;
        print(CASE, name, &format!("allocations per consume, {how}"), count as f64 / TIMES as f64);
    }
}
