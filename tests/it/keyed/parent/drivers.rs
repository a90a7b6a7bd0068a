//! What serves the queue of a parent limiter and those of its keys: runtimes, threads, replenishers; and what clocks do.

use super::{limiter, pair, under};
use crate::fixture::*;
use std::future::poll_fn;
use tollgate::KeyedReplenisher;

#[tokio::test(start_paused = true)]
async fn a_key_is_not_charged_for_a_late_timer() {
    // The parent has tokens all the time. The key gets one each 1.5 ms, and tokio's timers have a resolution of 1 ms.
    let global = Limiter::new(Quota::per_second(1_000_000)).unwrap();
    let quota = Quota::new(2, 3 * MILLI).burst(1);
    let keyed = KeyedLimiter::builder().quota(quota).parent(&global).build().unwrap();
    let start = Instant::now();
    for _ in 0..=2_000 {
        drop(keyed.consume(&1, 1).await.unwrap());
    }
    let took = start.elapsed();
    assert!((3_000 * MILLI..=3_002 * MILLI).contains(&took), "{took:?}");
}

#[test]
fn the_global_limiter_lives_as_long_as_its_keys() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(2), Quota::per_second(1).burst(2));
    drop(global);
    drop(keyed.try_acquire(&1, 2).unwrap());
    let mut waiting = pending(keyed.consume(&2, 1));
    tick_after(&clock, &keyed, SECOND);
    assert!(waiting.is_woken() && waiting.poll().is_ready());
}

#[test]
fn blocked_threads_drive_keys_and_their_parent() {
    let quota = Quota::new(1, MILLI).burst(1);
    let global = Limiter::new(quota).unwrap();
    let under = KeyedLimiter::builder().quota(quota).parent(&global).build().unwrap();
    for keyed in [KeyedLimiter::new(quota).unwrap(), under] {
        thread::scope(|scope| {
            for thread in 0..6_u32 {
                let keyed = &keyed;
                scope.spawn(move || (0..5).for_each(|_| drop(keyed.blocking_consume(&(thread % 3), 1).unwrap())));
            }
        });
        assert_eq!((keyed.snapshot().waiting_tasks, keyed.snapshot().granted), (0, 30));
    }
    assert_eq!(global.snapshot().granted, 30);
}

#[test]
fn manual_replenishers_of_two_keyed_limiters_serve_their_common_parent() {
    let global = Limiter::new(Quota::new(1, MILLI).burst(1)).unwrap();
    let [gone, kept] = [(), ()].map(|()| {
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1_000_000));
        builder.parent(&global).build().unwrap()
    });
    let worker = workers(1);
    let [first, second] = [&gone, &kept].map(|keyed: &KeyedLimiter<u32>| {
        let task = worker.spawn(keyed.replenisher());
        // It registers with its first poll.
        while futures::executor::block_on(keyed.consume(&1, 5)).is_err() {
            std::thread::yield_now();
        }
        task
    });
    drop(gone);
    worker.block_on(first).unwrap();
    drop(futures::executor::block_on(kept.consume(&2, 5)).unwrap());
    drop(kept);
    worker.block_on(second).unwrap();
    let refusal = futures::executor::block_on(global.consume(500)).map(drop);
    assert_eq!(refusal, Err(ConsumeError::NoRuntime), "a dropped replenisher does not count as a driver");
}

/// A replenisher polled by hand, on a runtime for its timers.
fn by_hand(keyed: &KeyedLimiter<u32>) -> (tokio::runtime::Runtime, task::Spawn<KeyedReplenisher>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let inside = runtime.enter();
    let replenisher = pending(keyed.replenisher());
    drop(inside);
    (runtime, replenisher)
}

#[test]
fn a_replenisher_by_hand_serves_the_global_limiter_by_that_limiters_clock() {
    let (clock, other) = (ManualClock::new(), ManualClock::new());
    let global = limiter(&clock, Quota::per_second(1).burst(1));
    let keyed = under(&global, &other, Quota::per_second(1).burst(1)).build().unwrap();
    drop(global.try_acquire(1).unwrap());
    let (runtime, mut replenisher) = by_hand(&keyed);
    let _inside = runtime.enter();
    let mut claim = pending(global.consume(1));
    other.advance(3_600 * SECOND);
    assert!(replenisher.poll().is_pending());
    assert!(!claim.is_woken() && claim.poll().is_pending(), "no time has passed for this queue");
    clock.advance(SECOND);
    assert!(replenisher.poll().is_pending());
    assert!(claim.is_woken() && claim.poll().is_ready());
}

#[test]
fn a_replenisher_by_hand_serves_a_global_limiter_that_is_older_than_the_keys() {
    let clock = ManualClock::new();
    let global = limiter(&clock, Quota::per_second(1).burst(1));
    clock.advance(10 * SECOND);
    let keyed = under(&global, &clock, Quota::per_second(1).burst(1)).build().unwrap();
    drop(global.try_acquire(1).unwrap());
    let (runtime, mut replenisher) = by_hand(&keyed);
    let _inside = runtime.enter();
    let mut claim = pending(keyed.consume(&1, 1));
    assert!(replenisher.poll().is_pending());
    clock.advance(SECOND);
    assert!(replenisher.poll().is_pending());
    assert!(claim.is_woken() && claim.poll().is_ready(), "at its instant, not ten seconds later");
}

#[tokio::test(start_paused = true)]
async fn keys_that_waited_for_the_parent_are_removed_by_themselves() {
    let global = Limiter::new(Quota::per_second(1).burst(1)).unwrap();
    let keyed = KeyedLimiter::builder().quota(Quota::per_second(10).burst(1)).parent(&global).build().unwrap();
    // So that each of them waits: the background task only handles keys with waiters.
    drop(global.try_acquire(1).unwrap());
    let claims: Vec<_> = (0..5_u32).map(|key| tokio::spawn(keyed.clone().consume_owned(key, 1))).collect();
    try_join_all(claims).await.unwrap().into_iter().for_each(|answer| drop(answer.unwrap()));
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(keyed.snapshot().keys, 0, "removed by the background task");
}

#[tokio::test(start_paused = true)]
async fn the_driver_of_a_parent_lets_other_tasks_run_between_its_batches() {
    for builder in [Limiter::builder(), Limiter::builder().classes()] {
        let global = builder.quota(Quota::new(1, MILLI).burst(1).initial(0)).build().unwrap();
        let keyed = KeyedLimiter::builder().parent(&global).build().unwrap();
        let claims: Vec<_> = (0..1_000).map(|claim| pending(keyed.clone().consume_owned(claim % 300, 1))).collect();
        tokio::time::sleep(MILLI / 2).await;
        let other = tokio::spawn(async move {
            let mut counts = vec![0];
            while counts.len() < 30 {
                counts.push(woken(&claims));
                // Unlike `yield_now`, this takes turns with tasks that wake themselves.
                let mut polls = [Poll::Pending, Poll::Ready(())].into_iter();
                poll_fn(|cx| polls.next().inspect(|_| cx.waker().wake_by_ref()).expect("two polls")).await;
            }
            counts
        });
        tokio::time::advance(2 * SECOND).await;
        let woken = other.await.unwrap();
        assert!(woken.contains(&1_000) && woken.windows(2).all(|pair| pair[1] - pair[0] <= 4 * 32), "{woken:?}");
    }
}

/// The time since `start`. The first readings from the fifth millisecond on panic.
fn failing(start: Instant) -> ClockFn {
    let failures = AtomicU64::new(3);
    ClockFn::moving(move || {
        let now = start.elapsed();
        if now >= 5 * MILLI && failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            resume_unwind(Box::new("a clock that fails"));
        }
        now
    })
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_fails_for_a_while_strands_no_claim() {
    let start = Instant::now();
    let global = Quota::new(1, 10 * MILLI).burst(1);
    let global = Limiter::builder().quota(global).clock(failing(start)).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::new(1, 2 * MILLI).burst(1)).clock(failing(start));
    let keyed = builder.parent(&global).build().unwrap();
    drop(keyed.try_acquire(&1, 1).unwrap());
    let all = async { tokio::join!(keyed.consume(&1, 1), keyed.consume(&2, 1), keyed.consume(&1, 4)) };
    let (one, two, three) = tokio::time::timeout(SECOND, all).await.expect("all claims are due by then");
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert_eq!(start.elapsed(), 60 * MILLI);
}

/// Granted claims are delivered in batches, and a batch may be full when the thread is to learn that it is due earlier.
#[test]
fn a_thread_blocked_behind_any_number_of_grants_does_not_oversleep() {
    for granted in [8, 16, 32, 64] {
        let (nanos, clock) = shown(ClockFn::moving);
        let comes_to = |millis: u64| nanos.store(millis * 1_000_000, Relaxed);
        let global = Limiter::builder().quota(Quota::per_second(1_000)).clock(clock.clone()).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1_000).burst(100)).clock(clock.clone());
        let keyed: KeyedLimiter<u32> = builder.parent(&global).build().unwrap();
        // This runtime is never driven.
        let runtime = alone();
        let inside = runtime.enter();
        drop(keyed.try_acquire(&1, 100).unwrap());
        let giant = pending(keyed.consume(&1, 1_000_000));
        let waiters: Vec<_> = (0..granted).map(|_| pending(keyed.consume(&1, 1))).collect();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let theirs = keyed.clone();
        std::thread::spawn(move || {
            drop(theirs.blocking_consume(&1, 1).unwrap());
            ended.send(()).unwrap();
        });
        while keyed.snapshot().waiting_tasks < granted + 2 {
            std::thread::yield_now();
        }
        // The thread falls asleep. If that takes longer, it sees the rest by itself.
        std::thread::sleep(50 * MILLI);
        comes_to(granted);
        drop(giant);
        assert!(waiters.iter().all(|claim| claim.is_woken()));
        comes_to(granted + 1);
        has_ended.recv_timeout(60 * SECOND).expect("the claim is due now");
        drop(inside);
    }
}

#[test]
fn a_clock_that_stepped_back_delays_no_claim_with_tokens_in_the_parent() {
    let (clock, global, keyed) = pair(Quota::per_second(1).burst(5), Quota::per_second(1).burst(5));
    tick_after(&clock, &global, 10 * SECOND);
    clock.step_back(5 * SECOND);
    assert_eq!(keyed.estimate(&1, 5), Some(Duration::ZERO));
    assert!(keyed.try_acquire(&1, 5).is_ok());
}
