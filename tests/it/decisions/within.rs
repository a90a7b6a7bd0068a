//! `within`: too late, in time, timed out.

use super::*;

/// A thousand tokens a second on tokio's clock, from an empty bucket.
fn paused_time(builder: Builder) -> (Limiter, Instant) {
    let limiter = builder.quota(Quota::per_second(1_000).burst(5).initial(0)).build().unwrap();
    (limiter, Instant::now())
}

#[tokio::test(start_paused = true)]
async fn within_grants_what_comes_in_the_very_last_moment() {
    let (limiter, start) = paused_time(Limiter::builder());
    let grant = limiter.consume(20).within(20 * MILLI).await.unwrap();
    assert_eq!((grant.cost(), Instant::now()), (20, start + 20 * MILLI));
    let owned = limiter.clone().consume_owned(7).within(7 * MILLI).await.unwrap();
    assert_eq!((owned.cost(), Instant::now()), (7, start + 27 * MILLI));
}

#[tokio::test(start_paused = true)]
async fn within_ends_at_its_time_under_a_ceiling() {
    let (limiter, start) = paused_time(Limiter::builder().max_in_flight(5));
    let held = limiter.consume(5).await.unwrap();
    let error = limiter.consume(1).within(20 * MILLI).await.unwrap_err();
    assert_eq!(error, ConsumeError::TimedOut { waited: 20 * MILLI, by: Bound::InFlight, quota_name: None });
    assert_eq!((Instant::now(), limiter.snapshot().waiting_tasks), (start + 25 * MILLI, 0));
    drop(held);
    assert_eq!(limiter.available(), 5, "the claim that timed out took nothing");
}

#[tokio::test(start_paused = true)]
async fn within_is_granted_if_the_ceiling_opens_in_time() {
    let (limiter, start) = paused_time(Limiter::builder().max_in_flight(5));
    let held = limiter.clone().consume_owned(5).await.unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(19 * MILLI).await;
        drop(held);
    });
    let _grant = limiter.consume(1).within(20 * MILLI).await.unwrap();
    assert_eq!(Instant::now(), start + 24 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn within_knows_a_pause_that_came_before_it() {
    let (limiter, start) = paused_time(Limiter::builder());
    limiter.pause_for(21 * MILLI);
    let error = limiter.consume(1).within(20 * MILLI).await.unwrap_err();
    let by = Bound::Pause;
    assert_eq!(error, ConsumeError::TooLate { estimate: 21 * MILLI, allowed: 20 * MILLI, by, quota_name: None });
    let _grant = limiter.consume(1).within(21 * MILLI).await.unwrap();
    assert_eq!(Instant::now(), start + 21 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn within_ends_at_its_time_under_a_pause_that_came_after_it() {
    let (limiter, start) = paused_time(Limiter::builder());
    let task = tokio::spawn(limiter.clone().consume_owned(10).within(20 * MILLI));
    tokio::time::sleep(4 * MILLI).await;
    limiter.pause_for(100 * MILLI);
    assert_eq!(
        task.await.unwrap().unwrap_err(),
        ConsumeError::TimedOut { waited: 20 * MILLI, by: Bound::Pause, quota_name: None }
    );
    assert_eq!((Instant::now(), limiter.snapshot().waiting_tasks), (start + 20 * MILLI, 0));
}

#[tokio::test(start_paused = true)]
async fn within_that_timed_out_lets_the_claims_behind_move_up_at_that_instant() {
    let (limiter, start) = paused_time(Limiter::builder().max_in_flight(5));
    let _held = limiter.consume(3).await.unwrap();
    let with_deadline = tokio::spawn(limiter.clone().consume_owned(4).within(10 * MILLI));
    tokio::task::yield_now().await;
    let _grant = limiter.consume(2).await.unwrap();
    assert_eq!(Instant::now(), start + 13 * MILLI);
    assert!(with_deadline.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn within_a_long_time_does_not_mind() {
    let (limiter, start) = paused_time(Limiter::builder());
    let _grant = limiter.consume(3).within(Duration::MAX).await.unwrap();
    assert_eq!(Instant::now(), start + 3 * MILLI);
}

#[test]
fn within_by_a_clock_moved_by_hand_ends_when_it_is_polled_after_its_time() {
    let fixture = Fixture::new(Quota::manual(9).initial(0));
    let mut waiting = pending(fixture.limiter.consume(3).within(5 * MILLI));
    fixture.clock.advance(5 * MILLI - NANO);
    assert_pending!(waiting.poll());
    fixture.clock.advance(3 * MILLI);
    let error = assert_ready_err!(waiting.poll());
    assert_eq!(error, ConsumeError::TimedOut { waited: 8 * MILLI - NANO, by: Bound::Quota(0), quota_name: None });
}

/// There is no runtime and no timer: the thread watches the deadline itself.
#[test]
fn a_blocked_thread_refuses_at_once_what_the_schedule_says_is_too_late() {
    let limiter = Limiter::new(Quota::per_hour(1)).unwrap();
    assert_eq!(limiter.blocking_consume_within(1, MILLI).unwrap().cost(), 1);
    let error = limiter.blocking_consume_within(1, MILLI).unwrap_err();
    assert!(matches!(error, ConsumeError::TooLate { allowed, .. } if allowed == MILLI), "{error}");
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}

#[test]
fn a_blocked_thread_gives_up_at_its_deadline_and_leaves_the_queue() {
    let limiter = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap();
    let held = limiter.blocking_consume(1).unwrap();
    let error = limiter.blocking_consume_within(1, 20 * MILLI).unwrap_err();
    assert!(matches!(error, ConsumeError::TimedOut { waited, .. } if waited >= 20 * MILLI), "{error}");
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
    drop(held);
    assert_eq!(limiter.blocking_consume_within(1, 20 * MILLI).unwrap().cost(), 1);
}

#[test]
fn a_blocked_thread_on_a_manual_clock_gives_up_by_that_clock() {
    let clock = tollgate::ManualClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).clock(clock.clone());
    let limiter = builder.build().unwrap();
    let held = limiter.blocking_consume(1).unwrap();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| limiter.blocking_consume_within(1, 20 * MILLI).map(drop));
        await_waiters(&limiter, 1);
        // The thread may read the clock for the first time only after the first of these steps.
        while !blocked.is_finished() {
            clock.advance(20 * MILLI);
            std::thread::sleep(MILLI);
        }
        let error = blocked.join().unwrap().unwrap_err();
        assert!(matches!(error, ConsumeError::TimedOut { waited, .. } if waited >= 20 * MILLI), "{error}");
    });
    drop(held);
    assert_eq!((limiter.available(), limiter.snapshot().waiting_tasks), (1, 0));
}

#[test]
fn a_blocked_thread_is_granted_within_its_deadline() {
    let limiter = Limiter::new(Quota::per_second(1_000).burst(1)).unwrap();
    for _ in 0..20 {
        assert_eq!(limiter.blocking_consume_within(1, Duration::from_secs(3_600)).unwrap().cost(), 1);
    }
}

/// `within` returns the future it was called on, so it can be called again: the last limit counts.
#[tokio::test(start_paused = true)]
async fn within_limits_the_same_future_and_the_last_limit_counts() {
    let (limiter, start) = paused_time(Limiter::builder());
    let claim: tollgate::Consume<'_> = limiter.consume(20).within(MILLI).within(20 * MILLI);
    assert_eq!((claim.await.unwrap().cost(), Instant::now()), (20, start + 20 * MILLI));
}

#[test]
fn a_claim_that_panicked_in_its_first_poll_can_be_polled_again_and_keeps_its_limit() {
    let is_sound = Arc::new(AtomicBool::new(true));
    let sound = Arc::clone(&is_sound);
    let clock = ClockFn::manual(move || {
        assert!(sound.load(Relaxed), "this clock fails");
        SECOND
    });
    let limiter = Limiter::builder().quota(one_per_milli(5)).clock(clock).build().unwrap();
    let mut claim = spawn(limiter.consume(21).within(20 * MILLI));
    is_sound.store(false, Relaxed);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| claim.poll())).is_err());
    is_sound.store(true, Relaxed);
    let error = assert_ready_err!(claim.poll());
    assert_eq!(error, too_late(21 * MILLI, 20 * MILLI));
}

/// With no more than a token a day, no clock can tell when a million tokens are there.
#[test]
fn a_wait_beyond_the_end_of_time_is_too_late() {
    let century = 100 * 365 * Duration::from_secs(86_400);
    let is_too_late =
        |error| matches!(error, ConsumeError::TooLate { by: Bound::Quota(0), allowed, .. } if allowed == century);
    for quota in [Quota::per_day(1), Quota::per_day(1).stepped()] {
        let fixture = Fixture::new(quota);
        let _one = fixture.take(1);
        for _ in 0..2 {
            let error = assert_ready_err!(spawn(fixture.limiter.consume(1_000_000).within(century)).poll());
            assert!(is_too_late(error), "{error}");
            // And behind another claim.
            std::mem::forget(fixture.enter(5));
        }
        let fixture = Fixture::built(Limiter::builder().quota(quota).classes());
        let class = fixture.limiter.class("a", tollgate::Share::weight(1)).unwrap();
        let error = assert_ready_err!(spawn(class.consume(1_000_000).within(century)).poll());
        assert!(is_too_late(error), "{error}");
        {
            let users =
                tollgate::KeyedLimiter::builder().quota(quota).clock(tollgate::ManualClock::new()).build().unwrap();
            let error = assert_ready_err!(spawn(users.consume(&1, 1_000_000).within(century)).poll());
            assert!(is_too_late(error), "{error}");
        }
    }
    // A quota that only the program refills may be refilled at any time.
    let fixture = Fixture::new(Quota::manual(5).initial(0));
    assert_pending!(spawn(fixture.limiter.consume(5).within(century)).poll());
}
