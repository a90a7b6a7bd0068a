//! One limiter, several runtimes, and tasks that hang or panic.

use super::*;
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_test::task::spawn;
use tollgate::{Limiter, Quota};

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Grants nothing before its quota is changed, however slow the setup is on this machine.
fn never() -> Limiter {
    Limiter::new(Quota::manual(1).initial(0)).unwrap()
}

/// Spawns tasks on the runtimes in turn, each when the one before it waits. Each records its number while it holds the
/// only token in flight.
fn line_up(
    limiter: &Limiter,
    runtimes: &[&Runtime],
    order: &Arc<Mutex<Vec<usize>>>,
    count: usize,
) -> Vec<JoinHandle<()>> {
    let enter = |index: usize| {
        let (limiter, order) = (limiter.clone(), Arc::clone(order));
        let task = runtimes[index * 7 / 3 % runtimes.len()].spawn({
            let limiter = limiter.clone();
            async move {
                let grant = limiter.consume_owned(1).await.unwrap();
                order.lock().unwrap().push(index);
                drop(grant);
            }
        });
        while limiter.snapshot().waiting_tasks <= index {
            thread::yield_now();
        }
        task
    };
    (0..count).map(enter).collect()
}

#[test]
fn callers_on_two_runtimes_are_granted_in_the_order_they_came() {
    const COUNT: usize = many(300);
    to_its_end(|| {
        let (many, one) = (workers(2), alone());
        let limiter = Limiter::builder().quota(Quota::per_second(5_000).burst(1)).max_in_flight(1).build().unwrap();
        let order = Arc::default();
        let held = limiter.try_acquire(1).unwrap();
        let end = Arc::new(Notify::new());
        thread::scope(|scope| {
            scope.spawn(|| one.block_on(end.notified()));
            let tasks = line_up(&limiter, &[&many, &one], &order, COUNT);
            drop(held);
            many.block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
            end.notify_one();
        });
        assert!(order.lock().unwrap().iter().copied().eq(0..COUNT), "{order:?}");
    });
}

#[test]
fn a_first_waiter_that_is_never_polled_again_delays_no_other() {
    to_its_end(|| {
        let runtime = workers(2);
        let limiter = never();
        let mut stalled = spawn(limiter.consume(1));
        runtime.block_on(async { assert!(stalled.poll().is_pending()) });
        limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
        runtime.block_on(async {
            let others: Vec<_> = (0..20).map(|_| tokio::spawn(limiter.clone().consume_owned(1))).collect();
            for other in others {
                drop(other.await.unwrap().unwrap());
            }
        });
        assert!(stalled.is_woken() && stalled.poll().is_ready(), "the stalled claim is granted too");
    });
}

/// The runtime of the first waiter exists, and is not driven.
#[test]
fn a_first_waiter_on_an_undriven_runtime_delays_no_other() {
    to_its_end(|| {
        let (still, runtime) = (alone(), workers(1));
        let limiter = never();
        let mut stalled = spawn(limiter.consume(1));
        still.block_on(async { assert!(stalled.poll().is_pending()) });
        limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
        runtime.block_on(async {
            for _ in 0..20 {
                drop(limiter.consume(1).await.unwrap());
            }
        });
        assert!(stalled.is_woken());
    });
}

#[test]
fn a_task_that_panics_with_a_grant_releases_it() {
    to_its_end(|| {
        let runtime = workers(2);
        let builder = Limiter::builder().quota(Quota::per_second(1_000_000).burst(10)).max_in_flight(3);
        let limiter = builder.build().unwrap();
        let fail = async |limiter: Limiter| {
            let mut grant = limiter.consume_owned(2).await.unwrap();
            grant.settle(3);
            panic!("on purpose, with {grant:?}");
        };
        runtime.block_on(async {
            let tasks: Vec<_> =
                (0..if cfg!(miri) { 3 } else { 50 }).map(|_| tokio::spawn(fail(limiter.clone()))).collect();
            for task in tasks {
                assert!(task.await.unwrap_err().is_panic());
            }
            drop(limiter.consume(3).await.unwrap());
        });
        assert_eq!(limiter.snapshot().in_flight, Some(0));
    });
}
