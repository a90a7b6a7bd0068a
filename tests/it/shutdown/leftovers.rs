//! What remains of dropped limiters: no tasks, no timers, no memory.

use super::*;
use tokio::task::yield_now;

#[test]
fn a_limiter_that_is_dropped_outside_ends_its_tasks_on_every_runtime() {
    to_its_end(|| {
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        let runtimes = [workers(1), alone(), workers(1)];
        for runtime in &runtimes {
            runtime.block_on(async { assert!(spawn(limiter.consume(1)).poll().is_pending()) });
            assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        }
        drop(limiter);
        for runtime in &runtimes {
            runtime.block_on(async {
                while tasks() > 0 {
                    yield_now().await;
                }
            });
        }
    });
}

/// On tokio's time. Its clock has a share of `live`, so `live` tells how many of these limiters are left.
fn counted(live: &Arc<()>) -> Limiter {
    let (live, base) = (Arc::clone(live), Instant::now());
    let clock = ClockFn::moving(move || {
        let _live = &live;
        base.elapsed()
    });
    let quota = Quota::per_second(1_000).burst(1).initial(0);
    Limiter::builder().quota(quota).max_in_flight(2).clock(clock).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn thousands_of_limiters_waited_on_once_leave_nothing_behind() {
    let live = Arc::default();
    for round in 0..many(5_000) {
        let limiter = counted(&live);
        match round % 4 {
            0 => drop(limiter.consume(1).await.unwrap()),
            1 => drop(limiter.clone().consume_owned(1).await.unwrap()),
            2 => drop(limiter.consume(1).within(Duration::from_secs(1)).await.unwrap()),
            // Cancelled while it waits.
            _ => assert!(spawn(limiter.clone().consume_owned(1)).poll().is_pending()),
        }
        drop(limiter);
        yield_now().await;
        assert_eq!((Arc::strong_count(&live), tasks()), (1, 0), "after {round} limiters");
    }
}

/// The last clone may be in a grant, in a future, or in a task of the runtime that ends.
#[test]
fn limiters_held_only_by_what_a_runtime_drops_are_dropped_with_it() {
    to_its_end(|| {
        let live = Arc::default();
        let runtime = workers(2);
        for round in 0..many(300) {
            // On tokio's clock, and so on the runtime's.
            let limiter = runtime.block_on(async { counted(&live) });
            match round % 3 {
                0 => drop(runtime.spawn(limiter.consume_owned(1_000_000))),
                1 => drop(runtime.spawn(limiter.consume_owned(1))),
                _ => drop(runtime.spawn(async move {
                    let _grant = limiter.clone().consume_owned(1).await;
                    drop(limiter);
                    std::future::pending::<()>().await;
                })),
            }
        }
        drop(runtime);
        assert_eq!(Arc::strong_count(&live), 1);
    });
}

/// A limiter and a runtime that end at the same time, on two threads.
#[test]
fn a_limiter_and_a_runtime_that_end_together_leave_nothing_behind() {
    to_its_end(|| {
        let live = Arc::default();
        for _ in 0..many(200) {
            let runtime = workers(1);
            let limiter = runtime.block_on(async { counted(&live) });
            drop(runtime.spawn(limiter.clone().consume_owned(2)));
            thread::scope(|scope| {
                scope.spawn(move || drop(limiter));
                scope.spawn(move || drop(runtime));
            });
            assert_eq!(Arc::strong_count(&live), 1);
        }
    });
}
