//! Waiting: one background task for all keys, whatever happens to the runtimes.

use super::manual;
use crate::fixture::*;
use tokio::runtime::Handle;

#[tokio::test(start_paused = true)]
async fn one_background_task_serves_all_keys_and_removes_their_live_entries() {
    let keyed = KeyedLimiter::new(Quota::per_second(10).burst(1)).unwrap();
    let before = Handle::current().metrics().num_alive_tasks();
    let claims: Vec<_> = (0..1_000_u32).map(|key| (keyed.clone(), key)).collect();
    let claims = claims.into_iter().map(|(keyed, key)| async move {
        drop(keyed.consume(&key, 1).await.unwrap());
        drop(keyed.consume(&key, 1).await.unwrap());
    });
    // One task claims for all of them in one poll, which takes more than its cooperative budget.
    let all = tokio::task::unconstrained(futures::future::join_all(claims));
    tokio::pin!(all);
    assert!(futures::poll!(&mut all).is_pending());
    assert_eq!(keyed.snapshot().keys_waiting, 1_000);
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before + 1);
    all.await;
    assert_eq!(keyed.snapshot().keys_waiting, 0);
    // The last bucket is full and the last live entry removed a moment later, without any call.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(keyed.snapshot().keys, 0, "removed by the background task");
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before + 1);
    drop(keyed);
    tokio::time::sleep(MILLI).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before, "the background task ends with the limiter");
}

#[tokio::test(start_paused = true)]
async fn keys_with_cancelled_waiters_are_removed_too() {
    let keyed = KeyedLimiter::new(Quota::per_second(10).burst(1)).unwrap();
    for key in 0..100 {
        drop(keyed.consume(&key, 1).await.unwrap());
        // The claim would wait for more than a day, but it is dropped, refused, or granted by another call.
        let giant = pending(keyed.consume(&key, 1_000_000));
        tokio::task::yield_now().await;
        match key % 3 {
            0 => drop(giant),
            1 => {
                keyed.set_quota_for(&key, Quota::new(1_000_000_000, MILLI).burst(1_000_000)).unwrap();
                tokio::time::advance(MILLI).await;
                drop(giant.await.unwrap());
                keyed.reset_quota_for(&key);
            }
            _ => {
                let mut claim = task::spawn(keyed.consume(&key, 2).within(MILLI * 300));
                drop((giant, claim.poll().is_pending()));
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(keyed.snapshot().keys, 0, "removed by the background task");
}

/// It entered the queue, and was removed from it later.
#[test]
fn a_claim_that_has_waited_is_not_counted_as_refused() {
    let (keyed, _): (KeyedLimiter<u32>, _) = manual(|it| it.quota(Quota::per_second(1)));
    let _grant = keyed.try_acquire(&1, 1).unwrap();
    let mut waiting = pending(keyed.consume(&1, 1));
    let thread = thread::spawn({
        let keyed = keyed.clone();
        move || keyed.blocking_consume(&1, 1).map(drop)
    });
    while keyed.snapshot().waiting_tasks < 2 {
        thread::yield_now();
    }
    keyed.close();
    assert_eq!(assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    assert_eq!(thread.join().unwrap(), Err(ConsumeError::Closed));
    assert_eq!(keyed.snapshot().refused, 0);
    assert_eq!(assert_ready_err!(spawn(keyed.consume(&1, 1)).poll()), ConsumeError::Closed);
    assert_eq!(keyed.snapshot().refused, 1);
}

/// It has entered the queue, and has left it again.
#[test]
fn a_claim_that_may_not_wait_at_all_is_not_counted_as_refused_by_a_cap() {
    let (keyed, _): (KeyedLimiter<u32>, _) = manual(|it| it.quota(Quota::per_second(9)).max_in_flight(1));
    let _grant = keyed.try_acquire(&1, 1).unwrap();
    let timed_out = |answer: Result<(), ConsumeError>| matches!(answer, Err(ConsumeError::TimedOut { .. }));
    assert!(timed_out(assert_ready!(spawn(keyed.consume(&1, 1).within(Duration::ZERO)).poll()).map(drop)));
    assert!(timed_out(keyed.blocking_consume_within(&1, 1, Duration::ZERO).map(drop)));
    assert_eq!(keyed.snapshot().refused, 0);
}

#[test]
fn the_background_task_yields_after_some_grants_of_one_key() {
    let (keyed, clock): (KeyedLimiter<u32>, _) = manual(|it| it.quota(Quota::per_second(1).burst(10_000)));
    let runtime = alone();
    let _here = runtime.enter();
    let mut replenisher = pending(keyed.replenisher());
    let count = Arc::new(AtomicUsize::new(0));
    let woken = Arc::clone(&count);
    let waker = waker(move || _ = woken.fetch_add(1, Ordering::Relaxed));
    let claims: Vec<_> = [[1; 5_000], [2; 5_000]].iter().flatten().collect();
    drop((keyed.try_acquire(&1, 10_000).unwrap(), keyed.try_acquire(&2, 10_000).unwrap()));
    let mut claims: Vec<_> = claims.into_iter().map(|key| Box::pin(keyed.consume(key, 1))).collect();
    for claim in &mut claims {
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(replenisher.poll().is_pending());
    clock.advance(Duration::from_secs(10_000));
    for polls in 1.. {
        let before = count.load(Ordering::Relaxed);
        assert!(replenisher.poll().is_pending());
        let served = count.load(Ordering::Relaxed) - before;
        // Two turns of 128: of the key that was served, and of the one behind it.
        assert!(served <= 256, "{served} in poll {polls}");
        if before + served == 10_000 {
            break;
        }
        assert!(replenisher.is_woken(), "more claims are due");
    }
}

#[tokio::test(start_paused = true)]
async fn within_refuses_at_once_or_gives_up_in_time() {
    let keyed = KeyedLimiter::builder().quota(Quota::per_second(10).burst(1)).max_in_flight(1).build().unwrap();
    let held = keyed.consume(&"a", 1).await.unwrap();
    let start = Instant::now();
    let refusal = keyed.consume(&"a", 1).within(50 * MILLI).await.unwrap_err();
    assert!(matches!(refusal, ConsumeError::TooLate { .. }), "{refusal:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let refusal = keyed.consume(&"a", 1).within(250 * MILLI).await.unwrap_err();
    assert!(matches!(refusal, ConsumeError::TimedOut { .. }), "the cap is not in the schedule: {refusal:?}");
    assert_eq!(start.elapsed(), 250 * MILLI);
    drop(held);
    drop(keyed.consume_owned("a", 1).within(MILLI).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_quota_times_waiters_of_all_keys_anew() {
    let keyed = KeyedLimiter::new(Quota::per_second(1).burst(1)).unwrap();
    let start = Instant::now();
    let claims = (0..50_u32).map(|key| {
        let keyed = keyed.clone();
        async move {
            drop(keyed.consume(&key, 1).await.unwrap());
            drop(keyed.consume(&key, 1).await.unwrap());
            start.elapsed()
        }
    });
    let tasks: Vec<_> = claims.map(tokio::spawn).collect();
    tokio::time::sleep(500 * MILLI).await;
    keyed.set_quota_for(&7, Quota::per_second(5).burst(1)).unwrap();
    keyed.set_quota(Quota::per_second(10).burst(1)).unwrap();
    for (key, task) in tasks.into_iter().enumerate() {
        // Half a token was saved; the other half comes in 50 ms, or for the seventh in 100.
        let expected = if key == 7 { 600 * MILLI } else { 550 * MILLI };
        assert_eq!(task.await.unwrap(), expected, "key {key}");
    }
}

#[test]
fn a_runtime_that_ends_strands_no_claim_of_another() {
    // So slow that the claims ahead, which lack a token each, are not granted before their runtime ends.
    let keyed = KeyedLimiter::new(Quota::per_day(1).burst(1)).unwrap();
    let first = alone();
    let ahead: Vec<_> = (0..10).map(|key| first.spawn(keyed.clone().consume_owned(key, 2))).collect();
    first.block_on(async { tokio::time::sleep(MILLI).await });
    assert_eq!(keyed.snapshot().waiting_tasks, 10);
    let second = alone();
    let (done, count) = (Arc::new(AtomicUsize::new(0)), 10);
    let behind: Vec<_> = (0..count)
        .map(|key| {
            let (claim, done) = (keyed.clone().consume_owned(key, 1), done.clone());
            second.spawn(async move {
                drop(claim.await.unwrap());
                done.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    second.block_on(async { tokio::time::sleep(MILLI).await });
    drop(ahead);
    drop(first);
    second.block_on(async {
        try_join_all(behind).await.unwrap();
    });
    assert_eq!(done.load(Ordering::Relaxed), count);
}

#[test]
fn an_undriven_runtime_delays_no_claim_elsewhere() {
    let keyed = KeyedLimiter::new(Quota::new(1, 20 * MILLI).burst(1)).unwrap();
    let idle = alone();
    let _stuck = idle.spawn(keyed.clone().consume_owned(1, 2));
    idle.block_on(async { tokio::time::sleep(MILLI).await });
    let busy = alone();
    let behind = keyed.clone();
    busy.block_on(async move { behind.consume(&1, 1).await.map(drop) }).unwrap();
    // The claim ahead was granted too, though its own runtime has not run since.
    assert_eq!(keyed.snapshot().waiting_tasks, 0);
}

#[test]
fn outside_of_a_runtime_claims_wait_only_with_a_manual_replenisher() {
    let keyed = KeyedLimiter::new(Quota::new(1, MILLI).burst(1)).unwrap();
    drop(keyed.try_acquire(&1, 1).unwrap());
    let refusal = futures::executor::block_on(keyed.consume(&1, 5)).map(drop);
    assert_eq!(refusal, Err(ConsumeError::NoRuntime));
    let worker = alone();
    let replenisher = worker.spawn(keyed.replenisher());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        _ = worker.block_on(stopped);
        replenisher
    });
    // Claims can wait after its first poll.
    let grant = loop {
        match futures::executor::block_on(keyed.consume(&1, 5)) {
            Err(ConsumeError::NoRuntime) => thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    drop(grant);
    drop(futures::executor::block_on(keyed.consume(&2, 5)).unwrap());
    drop(stop);
    drop(thread.join());
}

#[test]
fn a_panicking_waker_of_a_manual_replenisher_does_not_affect_later_claims() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1).burst(1)));
    let timers = alone();
    let _inside = timers.enter();
    let mut by_hand = Box::pin(keyed.replenisher());
    std::panic::set_hook(Box::new(|_| {}));
    for key in 0..3_u32 {
        let bomb = waker(|| panic!("a waker"));
        assert!(by_hand.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending());
        drop(keyed.try_acquire(&key, 1).unwrap());
        let mut claim = pending(keyed.consume(&key, 1));
        clock.advance(Duration::from_secs(1));
        assert!(by_hand.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(claim.is_woken() && claim.poll().is_ready());
    }
    drop(std::panic::take_hook());
}

#[test]
fn an_unpolled_replenisher_keeps_no_live_entries_in_memory() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1).burst(1)));
    let mut kept = Box::pin(keyed.replenisher());
    assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for key in 0..5_000_u32 {
        drop(keyed.try_acquire(&key, 1).unwrap());
        let claim = pending(keyed.consume(&key, 1));
        drop(claim);
        if key % 50 == 0 {
            tick_after(&clock, &keyed, Duration::from_secs(2));
        }
    }
    assert!(keyed.snapshot().keys <= 50);
    let shown = format!("{kept:?}");
    let woken = shown.split("woken: ").nth(1).and_then(|rest| rest.split(',').next()).expect("the field is shown");
    assert!(woken.parse::<usize>().unwrap() <= 256, "{shown}");
}

#[test]
fn waiting_stays_small() {
    let keyed = KeyedLimiter::new(Quota::per_second(1)).unwrap();
    let size = size_of_val(&keyed.consume(&1_u64, 1));
    assert!(size <= 160, "{size} bytes");
}

#[test]
fn a_queue_that_is_due_later_than_announced_wakes_no_driver_before() {
    let (keyed, _clock) = manual(|it| it.quota(Quota::per_second(1).burst(1)));
    let timers = alone();
    let _inside = timers.enter();
    drop(keyed.try_acquire(&1, 1).unwrap());
    let mut first = task::spawn(keyed.consume(&1, 1));
    let mut second = task::spawn(keyed.consume(&1, 5));
    let mut by_hand = task::spawn(keyed.replenisher());
    assert!(first.poll().is_pending() && second.poll().is_pending() && by_hand.poll().is_pending());
    drop(first);
    assert!(!by_hand.is_woken(), "the driver wakes in a second, and would in five");
    drop(second);
    assert!(by_hand.is_woken(), "no claim waits any more");
}

#[tokio::test(start_paused = true)]
async fn steps_during_a_wait_are_counted_from_the_origin_too() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1).burst(5)));
    drop(keyed.try_acquire(&1, 5).unwrap());
    let mut waiting = pending(keyed.consume(&1, 1));
    clock.advance(250 * MILLI);
    keyed.set_quota(Quota::new(1, 700 * MILLI).burst(5).stepped()).unwrap();
    let mut by_hand = task::spawn(keyed.replenisher());
    clock.advance(449 * MILLI);
    assert!(by_hand.poll().is_pending() && waiting.poll().is_pending());
    clock.advance(MILLI);
    assert!(by_hand.poll().is_pending() && waiting.poll().is_ready());
}

#[test]
fn try_now_grants_what_a_key_has_and_otherwise_does_nothing() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(10).burst(3)));
    drop(keyed.try_acquire(&1, 1).unwrap());
    assert_eq!(keyed.consume(&1, 1).try_now().unwrap().remaining(), 1);
    let before = keyed.snapshot();
    let mut second = task::spawn(keyed.consume(&1, 2).try_now().unwrap_err());
    assert_eq!(keyed.snapshot(), before, "it is not counted as a refusal");
    assert!(second.poll().is_pending());
    // Nothing passes a claim that waits.
    assert!(keyed.clone().consume_owned(1, 1).try_now().is_err());
    tick_after(&clock, &keyed, 100 * MILLI);
    assert!(second.is_woken() && second.poll().is_ready());
    clock.advance(100 * MILLI);
    drop(keyed.try_acquire(&1, 1).unwrap());
    assert!(keyed.clone().consume_owned(1, 1).try_now().is_err());
}

#[test]
fn a_claim_of_a_key_polled_after_it_was_ready_panics() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(10).burst(1)));
    let is_spent = |done: &mut dyn FnMut()| {
        let panic = catch_unwind(AssertUnwindSafe(done)).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("polled after it had completed"));
    };
    let mut at_once = task::spawn(keyed.consume(&1, 1));
    drop(assert_ready_ok!(at_once.poll()));
    is_spent(&mut || drop(at_once.poll()));
    let mut waiting = pending(keyed.consume(&1, 1));
    tick_after(&clock, &keyed, 100 * MILLI);
    drop(assert_ready_ok!(waiting.poll()));
    is_spent(&mut || drop(waiting.poll()));
    let mut refused = task::spawn(keyed.consume(&1, 1).within(Duration::ZERO));
    assert!(assert_ready!(refused.poll()).is_err());
    is_spent(&mut || drop(refused.poll()));
    let mut closed = pending(keyed.consume(&1, 1));
    keyed.close();
    assert_eq!(assert_ready!(closed.poll()).unwrap_err(), ConsumeError::Closed);
    is_spent(&mut || drop(closed.poll()));
}
