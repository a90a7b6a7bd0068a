//! What remains of dropped limiters: no tasks, no timers, no memory.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_test::task::spawn;
use tollgate::Clock;

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_ends_its_parked_task() {
    let limiter = empty();
    drop(limiter.consume(1).await.unwrap());
    yield_now().await;
    assert_eq!(alive(), 1, "parked for the next waiter");
    let another = limiter.clone();
    drop(limiter);
    yield_now().await;
    assert_eq!(alive(), 1);
    drop(another);
    yield_now().await;
    assert_eq!(alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_ends_a_task_that_sleeps_for_years() {
    let limiter = Limiter::new(Quota::new(1, Duration::from_secs(1 << 32)).initial(0)).unwrap();
    let mut waiting = spawn(limiter.consume(1));
    assert!(waiting.poll().is_pending());
    yield_now().await;
    drop(waiting);
    yield_now().await;
    let (now, tasks) = (Instant::now(), alive());
    drop(limiter);
    yield_now().await;
    assert_eq!((tasks, alive(), now.elapsed()), (1, 0, Duration::ZERO));
}

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
                while alive() > 0 {
                    yield_now().await;
                }
            });
        }
    });
}

/// Tokio's time, on a clock that counts its instances: one per limiter, since limiters own them.
#[derive(Debug)]
struct Counted {
    base: Instant,
    live: Arc<AtomicUsize>,
}

impl Counted {
    fn new(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, SeqCst);
        Self { base: Instant::now(), live: Arc::clone(live) }
    }
}

impl Clock for Counted {
    fn now(&self) -> Duration {
        self.base.elapsed()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
    }
}

fn counted(live: &Arc<AtomicUsize>) -> Limiter {
    let quota = Quota::per_second(1_000).burst(1).initial(0);
    Limiter::builder().quota(quota).max_in_flight(2).clock(Counted::new(live)).build().unwrap()
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
        assert_eq!((live.load(SeqCst), alive()), (0, 0), "after {round} limiters");
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
        assert_eq!(live.load(SeqCst), 0);
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
            assert_eq!(live.load(SeqCst), 0);
        }
    });
}
