//! The background task: it exists only where claims wait, and has no timer while it has nothing to do.

use super::*;
use tollgate::Replenisher;

/// Lets all runnable tasks run: paused time advances when there are none left.
async fn settle_down() {
    sleep(MILLI).await;
}

#[tokio::test(start_paused = true)]
async fn it_is_started_automatically_and_once() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    assert_eq!(tasks(), 0);
    for _ in 0..10 {
        let _grant = limiter.consume(1).await.unwrap();
        assert_eq!(tasks(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_started_while_no_claim_waits() {
    let limiter = Limiter::new(Quota::per_second(1_000)).unwrap();
    let _grants = [limiter.try_acquire(1).unwrap(), limiter.consume(1).await.unwrap()];
    assert!(limiter.try_acquire(1_000).is_err());
    assert!(limiter.consume(2_000).within(MILLI).await.is_err());
    limiter.pause_for(DAY);
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn spawned_by_hand_it_serves_and_at_most_one_other_is_started() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let _task = tokio::spawn(limiter.replenisher());
    yield_now().await;
    for n in 1..=10_u32 {
        let _grant = limiter.consume(1).await.unwrap();
        assert_eq!(Instant::now(), start + n * MILLI);
        assert!(tasks() <= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn spawned_by_hand_after_the_automatic_one_it_does_no_harm() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let waiting = enter(&limiter, 5).await;
    let _tasks = [(); 3].map(|()| tokio::spawn(limiter.replenisher()));
    assert_eq!(waiting.await.unwrap().0, start + 5 * MILLI);
    for n in 6..=10_u32 {
        let _grant = limiter.consume(1).await.unwrap();
        assert_eq!(Instant::now(), start + n * MILLI);
    }
}

/// The docs of `Replenisher`: waiters are woken and start another one on their own runtime.
#[tokio::test(start_paused = true)]
async fn spawned_by_hand_and_aborted_under_a_waiter_it_is_replaced() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let by_hand = tokio::spawn(limiter.replenisher());
    yield_now().await;
    let waiting = enter(&limiter, 20).await;
    sleep(10 * MILLI).await;
    by_hand.abort();
    let (granted, _grant) = timeout(DAY, waiting).await.expect("the waiter hangs").unwrap();
    assert_eq!(granted, start + 20 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn spawned_by_hand_and_aborted_before_any_wait_it_is_replaced() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let by_hand = tokio::spawn(limiter.replenisher());
    yield_now().await;
    by_hand.abort();
    yield_now().await;
    let _grant = timeout(DAY, limiter.consume(20)).await.expect("the waiter hangs").unwrap();
    assert_eq!((Instant::now(), tasks()), (start + 20 * MILLI, 1));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_last_clone_of_its_limiter() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    drop(limiter.consume(1).await.unwrap());
    let clone = limiter.clone();
    let by_hand = tokio::spawn(limiter.replenisher());
    settle_down().await;
    drop(limiter);
    settle_down().await;
    assert_eq!(tasks(), 2, "a clone still exists");
    drop(clone);
    timeout(DAY, by_hand).await.expect("the task does not end").unwrap();
    settle_down().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_ends_though_its_alarm_is_still_set() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    let waiting = enter(&limiter, 1_000_000).await;
    assert_eq!(tasks(), 2);
    waiting.abort();
    drop(limiter);
    settle_down().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn polled_after_its_limiter_is_gone_it_is_ready() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    let replenisher = limiter.replenisher();
    drop(limiter);
    replenisher.await;
}

#[tokio::test(start_paused = true)]
async fn thousands_of_limiters_have_a_task_each_where_claims_wait() {
    let limiters: Vec<_> = (0..4_000).map(|_| thousand_a_second(Limiter::builder()).0).collect();
    let start = Instant::now();
    let mut waiters = vec![];
    for limiter in limiters.iter().step_by(2) {
        waiters.push(enter(limiter, 5).await);
    }
    assert_eq!(tasks(), 2 * waiters.len(), "one waiter and one replenisher each");
    for waiting in waiters {
        assert_eq!(waiting.await.unwrap().0, start + 5 * MILLI);
    }
    drop(limiters);
    settle_down().await;
    assert_eq!(tasks(), 0);
}

/// Counts how often the replenisher is woken.
pub(crate) struct Counted(pub(crate) Pin<Box<Replenisher>>, pub(crate) Arc<AtomicU64>);

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn it_sleeps_without_a_timer_while_the_queue_is_empty() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    let polls = Arc::new(AtomicU64::new(0));
    tokio::spawn(Counted(Box::pin(limiter.replenisher()), Arc::clone(&polls)));
    let polls_during = async |time: Duration| {
        let before = polls.load(Ordering::Relaxed);
        sleep(time).await;
        polls.load(Ordering::Relaxed) - before
    };
    assert_eq!(polls_during(DAY).await, 1, "its first poll");
    assert_eq!(polls_during(DAY).await, 0);
    let _drained = limiter.consume(1_010).await.unwrap();
    settle_down().await;
    // The bucket fills, tokens are taken, and no claim waits.
    assert_eq!(polls_during(10 * MILLI).await, 0);
    drop(limiter.try_acquire(5).unwrap());
    assert_eq!(polls_during(DAY).await, 0);
    // A claim that is cancelled while it sleeps leaves at most the alarm that was set.
    assert!(timeout(10 * MILLI, limiter.consume(2_000)).await.is_err());
    assert!(polls_during(DAY).await <= 1);
    assert_eq!(polls_during(DAY).await, 0);
}

#[tokio::test(start_paused = true)]
async fn it_is_polled_once_for_each_due_instant() {
    let (limiter, _start) = thousand_a_second(Limiter::builder());
    let polls = Arc::new(AtomicU64::new(0));
    tokio::spawn(Counted(Box::pin(limiter.replenisher()), Arc::clone(&polls)));
    settle_down().await;
    // Ten instants, ten waiters at each, and many waiters behind them that are not due.
    let mut waiters = vec![];
    for place in 0..100 {
        waiters.push(enter(&limiter, if place % 10 == 0 { 100 } else { 0 }).await);
    }
    let before = polls.load(Ordering::Relaxed);
    for waiting in waiters {
        let _granted = waiting.await.unwrap();
    }
    assert_eq!(polls.load(Ordering::Relaxed) - before, 10);
}

#[tokio::test(start_paused = true)]
async fn it_delivers_tens_of_thousands_at_one_instant_and_lets_others_run_between() {
    let limiter = Limiter::new(Quota::manual(1 << 20).initial(0)).unwrap();
    let mut waiters = vec![];
    for _ in 0..20_000 {
        waiters.push(enter(&limiter, 1).await);
    }
    let start = Instant::now();
    limiter.replenish(1 << 20);
    for waiting in waiters {
        assert_eq!(waiting.await.unwrap().0, start);
    }
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_claim_leaves_the_queue_to_the_background_task_unless_it_is_two_milliseconds_late() {
    let (nanos, clock) = shown(ClockFn::moving);
    let (limiter, _start) = thousand_a_second(Limiter::builder().clock(clock));
    let mut waiters: Vec<_> = (0..4).map(|_| tokio_test::task::spawn(limiter.consume(1))).collect();
    for claim in &mut waiters {
        tokio_test::assert_pending!(claim.poll());
    }
    let mut join_at = |micros: u64| {
        nanos.store(1_000 * micros, Ordering::Relaxed);
        waiters.push(tokio_test::task::spawn(limiter.consume(1)));
        tokio_test::assert_pending!(waiters.last_mut().unwrap().poll());
        woken(&waiters)
    };
    // The first claim is due at 1 ms.
    assert_eq!(join_at(2_999), 0, "the background task has 1 us left");
    assert_eq!(join_at(3_000), 3, "those due at 1, 2 and 3 ms");
    // The next claim is due at 4 ms, and the queue was served at 3.
    assert_eq!(join_at(5_999), 3);
    assert_eq!(join_at(6_000), 6);
}

/// The clock panics for three milliseconds.
#[tokio::test(start_paused = true)]
async fn a_failing_clock_is_read_again_each_millisecond() {
    let base = Instant::now();
    let clock = ClockFn::moving(move || {
        let now = base.elapsed();
        if (5 * MILLI..8 * MILLI).contains(&now) {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            std::panic::resume_unwind(Box::new("a clock that fails"));
        }
        now
    });
    let (limiter, start) = thousand_a_second(Limiter::builder().clock(clock));
    let (due, later) = (enter(&limiter, 5).await, enter(&limiter, 5).await);
    assert_eq!(due.await.unwrap().0, start + 8 * MILLI);
    assert_eq!(later.await.unwrap().0, start + 10 * MILLI);
}
