//! Runtimes that are shut down while tasks wait, on them and on others.

use super::*;

type End = fn(Runtime);

const ENDS: [End; 3] = [drop, Runtime::shutdown_background, |runtime| runtime.shutdown_timeout(Duration::from_secs(9))];

#[test]
fn when_one_runtime_is_shut_down_the_waiters_of_another_are_all_served() {
    for end in ENDS {
        to_its_end(move || {
            let (gone, stays) = (workers(1), workers(1));
            // No claim passes before all wait, the first of them on the runtime that ends.
            let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
            let mut served = Vec::new();
            for index in 0..60 {
                let runtime = if index % 2 == 0 { &gone } else { &stays };
                let task = runtime.spawn(limiter.clone().consume_owned(1));
                if index % 2 == 1 {
                    served.push(task);
                }
                await_waiters(&limiter, index + 1);
            }
            limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
            end(gone);
            stays.block_on(async {
                try_join_all(served).await.unwrap().into_iter().for_each(|answer| drop(answer.unwrap()));
            });
        });
    }
}

#[test]
fn a_runtime_dropped_with_its_waiters_removes_them_from_the_queue() {
    for end in ENDS {
        to_its_end(move || {
            let runtime = workers(2);
            let limiter = Limiter::builder().quota(Quota::manual(10)).max_in_flight(9).build().unwrap();
            let held = limiter.try_acquire(9).unwrap();
            for index in 0..40 {
                drop(runtime.spawn(limiter.clone().consume_owned(1 + index % 3)));
            }
            await_waiters(&limiter, 40);
            end(runtime);
            await_waiters(&limiter, 0);
            drop(held);
            assert_eq!((limiter.available(), limiter.deficiency()), (1, 0));
            limiter.replenish(8);
            assert_eq!(limiter.available(), 9);
        });
    }
}

/// The first poll starts the replenisher on its runtime; the next poll of the future may be on another one.
#[test]
fn a_waiter_that_moved_away_from_a_runtime_that_ends_is_served_where_it_is() {
    for end in ENDS {
        to_its_end(move || {
            let (gone, stays) = (workers(1), alone());
            let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
            let mut waiting = Box::pin(limiter.clone().consume_owned(1));
            gone.block_on(async {
                assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            });
            let moved = stays.spawn(waiting);
            stays.block_on(tokio::task::yield_now());
            end(gone);
            limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
            drop(stays.block_on(moved).unwrap().unwrap());
        });
    }
}

/// The runtimes end one after the other while claims wait; the remaining claims are served.
#[test]
fn runtimes_come_and_go_and_the_queue_moves_on() {
    to_its_end(|| {
        let (limiter, stays) = (empty(), workers(1));
        for _ in 0..20 {
            let passing = alone();
            let giant = passing.spawn(limiter.clone().consume_owned(1_000_000));
            passing.block_on(tokio::task::yield_now());
            await_waiters(&limiter, 1);
            let served = stays.spawn(limiter.clone().consume_owned(1));
            await_waiters(&limiter, 2);
            drop(passing);
            drop(stays.block_on(served).unwrap().unwrap());
            assert!(stays.block_on(giant).unwrap_err().is_cancelled());
        }
        // One replenisher on the runtime that remains, none of the others; the tasks of the ended runtimes leave when
        // they can.
        while stays.metrics().num_alive_tasks() != 1 {
            thread::yield_now();
        }
    });
}

#[test]
fn a_thread_that_blocks_on_a_shut_down_runtime_is_refused() {
    to_its_end(|| {
        let limiter = empty();
        for runtime in [workers(1), alone()] {
            let handle = runtime.handle().clone();
            runtime.shutdown_background();
            let answer = handle.block_on(limiter.consume(1)).map(|grant| grant.cost());
            assert!(matches!(answer, Err(ConsumeError::NoRuntime) | Ok(1)), "{answer:?}");
        }
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
    });
}

/// The driver of its keys has ended before the claim relied on it.
#[cfg(feature = "keyed")]
#[test]
fn a_thread_that_waits_for_a_key_on_a_shut_down_runtime_is_refused() {
    to_its_end(|| {
        let keys = KeyedLimiter::new(Quota::per_day(1)).unwrap();
        drop(keys.try_acquire(&1, 1).unwrap());
        for runtime in [workers(1), alone()] {
            let handle = runtime.handle().clone();
            runtime.shutdown_background();
            assert_eq!(handle.block_on(keys.consume(&1, 1)).unwrap_err(), ConsumeError::NoRuntime);
        }
        assert_eq!(keys.snapshot().waiting_tasks, 0);
    });
}

/// The thread is served or refused: it neither hangs nor spins.
#[test]
fn a_thread_that_blocks_on_a_runtime_during_its_shutdown_returns() {
    for end in ENDS {
        to_its_end(move || {
            let runtime = workers(1);
            let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
            thread::scope(|scope| {
                let (handle, limiter) = (runtime.handle().clone(), &limiter);
                let blocked = scope.spawn(move || handle.block_on(limiter.consume(1)).map(|grant| grant.cost()));
                await_waiters(limiter, 1);
                end(runtime);
                limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
                let answer = blocked.join().unwrap();
                assert!(matches!(answer, Err(ConsumeError::NoRuntime) | Ok(1)), "{answer:?}");
            });
            assert_eq!(limiter.snapshot().waiting_tasks, 0);
        });
    }
}

#[test]
fn a_runtime_without_timers_panics_in_the_caller_and_affects_no_other() {
    to_its_end(|| {
        let (timeless, other) = (Builder::new_multi_thread().worker_threads(1).build().unwrap(), workers(1));
        let limiter = Limiter::new(Quota::manual(5)).unwrap();
        drop(timeless.block_on(limiter.consume(5)).unwrap());
        for _ in 0..3 {
            let waiting = timeless.spawn(limiter.clone().consume_owned(1));
            let panic = timeless.block_on(waiting).unwrap_err().into_panic();
            let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            assert!(said.unwrap_or_default().contains("enable_time"), "{said:?}");
            assert_eq!(limiter.snapshot().waiting_tasks, 0);
        }
        limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
        drop(other.block_on(limiter.consume(1)).unwrap());
    });
}

/// The poll panicked, and the future still exists: it must take nothing from the claims behind it.
#[test]
fn a_waiter_that_panicked_for_lack_of_timers_is_not_in_the_queue() {
    let timeless = Builder::new_current_thread().build().unwrap();
    let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
    let mut broken = spawn(limiter.consume(1));
    let polled = timeless.block_on(async {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| broken.poll().map(|grant| grant.is_ok())))
    });
    assert!(polled.is_err());
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
    limiter.replenish(1);
    assert_eq!(limiter.available(), 1);
    drop(broken);
}
