//! Several runtimes on one limiter. Real runtimes and threads, without timing: a claim that hangs makes the test hang.

use super::*;
use std::pin::pin;

/// Fast enough for a short test, slow enough that every claim has to wait.
fn slow() -> Limiter {
    Limiter::new(Quota::new(1, MILLI).burst(1).initial(0)).unwrap()
}

/// Polls once, on the current runtime.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// The drivers of these runtimes have run once, so one of them leads and the others are to wake soon after it.
#[test]
fn several_runtimes_that_are_alive_and_not_driven_delay_no_other() {
    let limiter = Limiter::new(Quota::new(1, 20 * MILLI).burst(1).initial(0)).unwrap();
    let idle: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, mut waiting) = (alone(), Box::pin(limiter.clone().consume_owned(1)));
            runtime.block_on(async {
                assert_pending!(poll_once(&mut waiting).await);
                tokio::task::yield_now().await;
            });
            (runtime, waiting)
        })
        .collect();
    let driven = alone();
    driven.block_on(async {
        for _ in 0..4 {
            drop(limiter.consume(1).await.unwrap());
        }
    });
    // The claims that were never polled were granted too, in their turn.
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
    drop(idle);
}

/// The runtime of the first waiter exists, and is not driven.
#[test]
fn a_first_waiter_on_an_undriven_runtime_delays_neither_tasks_nor_blocked_threads() {
    to_its_end(|| {
        let (still, driven) = (alone(), workers(1));
        let limiter = never();
        let mut stalled = spawn(limiter.consume(1));
        still.block_on(async { assert_pending!(stalled.poll()) });
        limiter.set_quota(0, one_per_milli(1)).unwrap();
        for _ in 0..10 {
            drop(driven.block_on(limiter.consume(1)).unwrap());
            drop(limiter.blocking_consume(1).unwrap());
        }
        assert!(stalled.is_woken() && stalled.poll().is_ready());
    });
}

/// Another executor inside a runtime that is not driven: the limiter's own task there never runs.
#[test]
fn a_claim_on_an_entered_runtime_that_is_not_driven_is_served_by_a_replenisher_elsewhere() {
    let limiter = slow();
    let (entered, driven) = (alone(), workers(1));
    let _serving = driven.spawn(limiter.replenisher());
    let _inside = entered.enter();
    for _ in 0..3 {
        drop(futures::executor::block_on(limiter.consume(1)).unwrap());
    }
}

#[test]
fn a_thread_that_blocks_on_an_entered_runtime_that_is_not_driven_serves_itself() {
    let limiter = slow();
    let entered = alone();
    let _inside = entered.enter();
    for _ in 0..3 {
        drop(limiter.blocking_consume(1).unwrap());
    }
}

/// A claim that is first polled on one runtime and then awaited on another uses a timer of the latter.
#[test]
fn a_deadline_is_kept_on_the_runtime_where_it_is_awaited() {
    for first_is_dropped in [true, false] {
        let limiter = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap();
        let _held = limiter.try_acquire(1).unwrap();
        let (first, second) = (alone(), alone());
        let mut moving = Box::pin(limiter.clone().consume_owned(1).within(30 * MILLI));
        assert_pending!(first.block_on(poll_once(&mut moving)));
        // The first runtime is not driven any more, whether it exists or not.
        let first = (!first_is_dropped).then_some(first);
        let answer = second.block_on(async {
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("the claim hangs"),
                answer = moving => answer.map(drop),
            }
        });
        assert!(matches!(answer, Err(ConsumeError::TimedOut { .. })), "{answer:?}");
        drop(first);
    }
}

#[test]
fn runtimes_of_several_threads_each_serve_their_own_and_any_driver_serves_all() {
    let limiter = slow();
    let work = |limiter: Limiter, rounds: usize| {
        let runtime = alone();
        for round in 0..rounds {
            let _grant = runtime.block_on(limiter.consume(1)).unwrap();
            // This runtime is not driven between two rounds, and in some of them a waiter of it is in the queue.
            if round % 3 == 0 {
                let mut left = pin!(limiter.consume(2));
                let _pending = runtime.block_on(poll_once(&mut left));
                thread::yield_now();
            }
        }
    };
    // They end one after the other, each with its runtime, while other claims wait.
    let threads: Vec<_> =
        (1..=4).map(|n| (n, limiter.clone())).map(|(n, l)| thread::spawn(move || work(l, 10 * n))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
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
