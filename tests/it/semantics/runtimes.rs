//! Several runtimes on one limiter. Real runtimes and threads, without timing: a claim that hangs makes the test hang.

use super::*;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread;
use tokio::runtime::{self, Runtime};
use tollgate::{ConsumeError, ConsumeOwned, OwnedGrant};

/// Fast enough for a short test, slow enough that every claim has to wait.
fn slow() -> Limiter {
    Limiter::new(Quota::new(1, MILLI).burst(1).initial(0)).unwrap()
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn worker() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

fn until_waiting(limiter: &Limiter, tasks: usize) {
    while limiter.snapshot().waiting_tasks < tasks {
        thread::yield_now();
    }
}

/// Polls once, on the current runtime.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// A claim that waits in the queue, first polled on `runtime`. A claim that finds a token, because this thread was slow,
/// takes it, and the next one is tried.
fn waiting_on(runtime: &Runtime, limiter: &Limiter) -> Pin<Box<ConsumeOwned>> {
    loop {
        let mut claim = Box::pin(limiter.clone().consume_owned(1));
        if runtime.block_on(poll_once(&mut claim)).is_pending() {
            return claim;
        }
    }
}

#[test]
fn runtime_shut_down_under_the_replenisher_while_tasks_of_another_wait() {
    let limiter = slow();
    // The first waiter is a giant: no claim passes before it is gone, and its runtime with it.
    let (first, second) = (worker(), worker());
    let _lost = first.spawn(limiter.clone().consume_owned(1 << 40));
    until_waiting(&limiter, 1);
    let others: Vec<_> = (0..20).map(|_| second.spawn(limiter.clone().consume_owned(1))).collect();
    until_waiting(&limiter, 21);
    drop(first);
    assert!(limiter.snapshot().waiting_tasks <= 20, "the tasks of the first runtime must leave the queue");
    for other in others {
        let _grant: OwnedGrant = second.block_on(other).unwrap().unwrap();
    }
}

/// The drivers of these runtimes have run once, so one of them leads and the others are to wake soon after it.
#[test]
fn several_runtimes_that_are_alive_and_not_driven_delay_no_other() {
    let limiter = Limiter::new(Quota::new(1, 20 * MILLI).burst(1).initial(0)).unwrap();
    let idle: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, mut waiting) = (current_thread(), Box::pin(limiter.clone().consume_owned(1)));
            runtime.block_on(async {
                assert_pending!(poll_once(&mut waiting).await);
                tokio::task::yield_now().await;
            });
            (runtime, waiting)
        })
        .collect();
    let driven = current_thread();
    driven.block_on(async {
        for _ in 0..4 {
            drop(limiter.consume(1).await.unwrap());
        }
    });
    // The claims that were never polled were granted too, in their turn.
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
    drop(idle);
}

/// Another executor inside a runtime that is not driven: the limiter's own task there never runs.
#[test]
fn a_claim_on_an_entered_runtime_that_is_not_driven_is_served_by_a_replenisher_elsewhere() {
    let limiter = slow();
    let (entered, driven) = (current_thread(), worker());
    let _serving = driven.spawn(limiter.replenisher());
    let _inside = entered.enter();
    for _ in 0..3 {
        drop(futures::executor::block_on(limiter.consume(1)).unwrap());
    }
}

#[test]
fn a_thread_that_blocks_on_an_entered_runtime_that_is_not_driven_serves_itself() {
    let limiter = slow();
    let entered = current_thread();
    let _inside = entered.enter();
    for _ in 0..3 {
        drop(limiter.blocking_consume(1).unwrap());
    }
}

#[test]
fn runtime_shut_down_under_a_future_that_continues_in_another() {
    let limiter = slow();
    let (first, second) = (current_thread(), current_thread());
    let mut moving = Box::pin(limiter.clone().consume_owned(3));
    assert_pending!(first.block_on(poll_once(&mut moving)));
    let mut task = spawn(moving);
    assert_pending!(second.block_on(async { task.poll() }));
    drop(first);
    // The waiter is woken so that it polls again; the next replenisher is spawned where that poll runs.
    assert!(task.is_woken());
    let _looked = second.block_on(async { task.poll() });
    assert_eq!(second.metrics().num_alive_tasks(), 1, "without a replenisher here it would hang");
    let _grant = second.block_on(task).unwrap();
}

/// A claim that is first polled on one runtime and then awaited on another uses a timer of the latter.
#[test]
fn a_deadline_is_kept_on_the_runtime_where_it_is_awaited() {
    for first_is_dropped in [true, false] {
        let limiter = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap();
        let _held = limiter.try_acquire(1).unwrap();
        let (first, second) = (current_thread(), current_thread());
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
fn runtime_shut_down_under_a_waiter_without_one_refuses_it() {
    let limiter = Limiter::new(Quota::per_day(1).initial(0)).unwrap();
    let first = current_thread();
    // A waiter outside of all runtimes relies on a replenisher that was spawned by hand.
    first.spawn(limiter.replenisher());
    first.block_on(tokio::task::yield_now());
    let mut outside = spawn(limiter.consume(1));
    assert_pending!(outside.poll());
    drop(first);
    assert!(outside.is_woken());
    let answer = outside.poll();
    assert!(matches!(answer, Poll::Ready(Err(ConsumeError::NoRuntime))), "the claim would hang: {answer:?}");
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}

#[test]
fn runtime_of_the_first_waiter_is_alive_but_its_block_on_returned() {
    let limiter = slow();
    let (first, second) = (current_thread(), current_thread());
    let stalled = waiting_on(&first, &limiter);
    for _ in 0..10 {
        let _grant = second.block_on(limiter.consume(1)).unwrap();
    }
    let _grant = first.block_on(stalled).unwrap();
}

#[test]
fn runtime_that_is_not_driven_delays_no_blocked_thread() {
    let limiter = slow();
    let first = current_thread();
    let stalled = waiting_on(&first, &limiter);
    for _ in 0..10 {
        let _grant = limiter.blocking_consume(1).unwrap();
    }
    let _grant = first.block_on(stalled).unwrap();
}

#[test]
fn runtimes_of_several_threads_each_serve_their_own_and_any_driver_serves_all() {
    let limiter = slow();
    let work = |limiter: Limiter, rounds: usize| {
        let runtime = current_thread();
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
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}
