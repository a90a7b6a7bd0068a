//! Callers outside of every runtime: blocked threads, and futures that are driven from elsewhere.

use super::*;
use futures::executor::block_on;
use tokio::sync::oneshot;

/// Spawns the limiter's replenisher, and returns when it is registered.
fn drive(limiter: &Limiter, runtime: &Runtime) -> tokio::task::JoinHandle<()> {
    let (ready, is_ready) = oneshot::channel();
    let replenisher = limiter.replenisher();
    let task = runtime.spawn(async move {
        let mut replenisher = std::pin::pin!(replenisher);
        assert!(futures::poll!(&mut replenisher).is_pending());
        ready.send(()).unwrap();
        replenisher.await;
    });
    block_on(is_ready).unwrap();
    task
}

#[test]
fn outside_of_a_runtime_available_tokens_are_granted_and_waits_are_refused() {
    let limiter = Limiter::new(Quota::manual(3)).unwrap();
    drop(block_on(limiter.consume(3)).unwrap());
    assert_eq!(block_on(limiter.consume(1)).unwrap_err(), ConsumeError::NoRuntime);
    assert_eq!(block_on(limiter.consume(1).within(Duration::MAX)).unwrap_err(), ConsumeError::NoRuntime);
    assert_eq!(block_on(limiter.clone().consume_owned(1)).unwrap_err(), ConsumeError::NoRuntime);
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.waiting_tasks, snapshot.refused, snapshot.granted), (0, 3, 3));
}

#[test]
fn on_another_executor_everything_works_where_a_runtime_is_entered() {
    to_its_end(|| {
        let timers = workers(1);
        let limiter = Limiter::new(Quota::per_second(1_000).burst(1)).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _entered = timers.enter();
                    block_on(async {
                        for _ in 0..10 {
                            limiter.wait(1).await.unwrap();
                            limiter.wait(1).within(Duration::from_secs(600)).await.unwrap();
                        }
                    });
                });
            }
        });
        assert_eq!(limiter.snapshot().granted, 60);
        limiter.pause_for(Duration::from_secs(600));
        let _entered = timers.enter();
        let late = block_on(limiter.wait(1).within(Duration::from_secs(1)));
        assert!(matches!(late, Err(ConsumeError::TooLate { .. })), "{late:?}");
    });
}

#[test]
fn outside_of_a_runtime_a_replenisher_elsewhere_serves_the_waiters() {
    to_its_end(|| {
        let (limiter, runtime) = (empty(), workers(1));
        let task = drive(&limiter, &runtime);
        for _ in 0..20 {
            drop(block_on(limiter.consume(1)).unwrap());
        }
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        drop(limiter);
        runtime.block_on(task).unwrap();
    });
}

/// The claim was let in because a replenisher would wake it, and that one has ended.
#[test]
fn outside_of_a_runtime_a_waiter_is_refused_when_its_replenisher_ends() {
    to_its_end(|| {
        let runtime = workers(1);
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        drop(drive(&limiter, &runtime));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(limiter.consume(1)).map(|grant| grant.cost()));
            await_waiters(&limiter, 1);
            drop(runtime);
            limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
            assert_eq!(waiting.join().unwrap(), Err(ConsumeError::NoRuntime));
        });
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
    });
}

#[test]
fn outside_of_a_runtime_a_joint_claim_is_woken_when_a_replenisher_of_its_limiters_ends() {
    let runtime = workers(1);
    let limiters = [(); 2].map(|()| Limiter::new(Quota::manual(1).initial(0)).unwrap());
    let inside = runtime.enter();
    let replenishers = limiters.each_ref().map(|limiter| pending(limiter.replenisher()));
    drop(inside);
    let mut joint = pending(join(limiters.each_ref().map(|limiter| (limiter, 1))));
    drop(replenishers);
    assert!(joint.is_woken());
    assert!(matches!(joint.poll(), Poll::Ready(Err(JoinError::Refused { error: ConsumeError::NoRuntime, .. }))));
}

/// A blocked thread drives the queue while it waits; other claims must not rely on it.
#[test]
fn outside_of_a_runtime_a_waiter_does_not_rely_on_a_blocked_thread() {
    to_its_end(|| {
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| limiter.blocking_consume(1).unwrap().cost());
            await_waiters(&limiter, 1);
            let outside = scope.spawn(|| block_on(limiter.consume(1)).map(|grant| grant.cost()));
            // The claim is refused at once, or waits until the thread is served.
            while !outside.is_finished() && limiter.snapshot().waiting_tasks < 2 {
                thread::yield_now();
            }
            limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
            assert_eq!(blocked.join().unwrap(), 1);
            let answer = outside.join().unwrap();
            assert!(matches!(answer, Err(ConsumeError::NoRuntime) | Ok(1)), "{answer:?}");
        });
    });
}

#[test]
fn blocked_threads_share_the_rate_without_any_runtime() {
    to_its_end(|| {
        let limiter = Limiter::new(Quota::per_second(10_000).burst(1).initial(0)).unwrap();
        let take = || (1..=25).map(|cost| limiter.blocking_consume(cost % 3).unwrap().cost()).sum::<u64>();
        let taken: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let snapshot = limiter.snapshot();
        assert_eq!((taken, snapshot.granted, snapshot.waiting_tasks), (4 * 25, 4 * 25, 0));
    });
}

/// Threads and tasks in one queue: each records its number while it holds the only token in flight.
#[test]
fn blocked_threads_and_waiting_tasks_are_served_in_their_order_of_arrival() {
    const COUNT: usize = 60;
    to_its_end(|| {
        let runtimes = [workers(1), workers(1)];
        let limiter = Limiter::builder().quota(Quota::per_second(5_000).burst(1)).max_in_flight(1).build().unwrap();
        let held = limiter.try_acquire(1).unwrap();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut threads = Vec::new();
        let mut tasks = Vec::new();
        for index in 0..COUNT {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            let seen = limiter.clone();
            if index % 2 == 0 {
                threads.push(thread::spawn(move || {
                    let grant = limiter.blocking_consume(1).unwrap();
                    order.lock().unwrap().push(index);
                    drop(grant);
                }));
            } else {
                tasks.push(runtimes[index % 4 / 2].spawn(async move {
                    let grant = limiter.consume_owned(1).await.unwrap();
                    order.lock().unwrap().push(index);
                    drop(grant);
                }));
            }
            await_waiters(&seen, index as u64 + 1);
        }
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
        assert!(order.lock().unwrap().iter().copied().eq(0..COUNT), "{order:?}");
    });
}

#[test]
fn a_limiter_that_is_closed_lets_blocked_threads_go() {
    to_its_end(|| {
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..5).map(|_| scope.spawn(|| limiter.blocking_consume(1).unwrap_err())).collect();
            await_waiters(&limiter, 5);
            limiter.close();
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), ConsumeError::Closed));
        });
    });
}

/// A thread that leaves the queue wakes the claims that are due, and no others.
#[test]
fn a_served_blocked_thread_wakes_no_claim_that_is_not_due() {
    to_its_end(|| {
        let runtime = workers(1);
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| drop(limiter.blocking_consume(1).unwrap()));
            await_waiters(&limiter, 1);
            let _runtime = runtime.enter();
            let behind = [(); 3].map(|()| pending(limiter.consume(1)));
            limiter.replenish(1);
            blocked.join().unwrap();
            assert_eq!(woken(&behind), 0);
        });
    });
}

/// Waking every 10 ms, or each millisecond on the clock that stands, would be far more readings.
#[test]
fn a_blocked_thread_sleeps_until_its_turn_or_until_the_queue_is_served() {
    to_its_end(|| {
        let quota = |period| Quota::new(1, Duration::from_millis(period)).burst(1).initial(0);
        let (asked, start) = (Arc::new(AtomicU64::new(0)), std::time::Instant::now());
        let times = || asked.load(Relaxed);
        let (real, standing) = (Arc::clone(&asked), Arc::clone(&asked));
        let clock = ClockFn::moving(move || {
            real.fetch_add(1, Relaxed);
            start.elapsed()
        });
        let limiter = Limiter::builder().quota(quota(500)).clock(clock).build().unwrap();
        let before = times();
        drop(limiter.blocking_consume(1).unwrap());
        assert!(times() - before <= 20, "{} times, when it enters and when it leaves", times() - before);
        let clock = ClockFn::manual(move || {
            standing.fetch_add(1, Relaxed);
            Duration::ZERO
        });
        let limiter = Limiter::builder().quota(quota(1)).clock(clock).build().unwrap();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| drop(limiter.blocking_consume(1).unwrap()));
            await_waiters(&limiter, 1);
            let before = times();
            thread::sleep(Duration::from_millis(200));
            // The thread may just have entered.
            assert!(times() - before <= 10, "{} times", times() - before);
            limiter.replenish(1);
            blocked.join().unwrap();
        });
    });
}
