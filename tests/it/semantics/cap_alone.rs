//! A limiter with an in-flight cap and no quota.

use super::*;

fn capped(tokens: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().max_in_flight(tokens))
}

#[test]
fn cap_alone_serves_in_order_as_grants_are_dropped_and_at_no_other_time() {
    let (limiter, clock) = capped(5);
    let (three, two) = (limiter.try_acquire(3).unwrap(), limiter.try_acquire(2).unwrap());
    let mut large = pending(limiter.consume(4));
    let mut small = pending(limiter.consume(1));
    tick_after(&clock, &limiter, DAY);
    assert!(!large.is_woken() && !small.is_woken(), "time releases nothing");
    drop(two);
    assert!(
        !large.is_woken() && !small.is_woken(),
        "2 are available: too few for the front, and no claim overtakes it"
    );
    drop(three);
    let large = assert_ready_ok!(large.poll());
    let _small = assert_ready_ok!(small.poll());
    assert_eq!((large.cost(), limiter.snapshot().in_flight), (4, Some(5)));
}

#[test]
fn cap_alone_has_what_the_cap_leaves_available_and_no_schedule() {
    let (limiter, _clock) = capped(5);
    assert_eq!((limiter.available(), limiter.deficiency(), limiter.estimate(5)), (5, 0, Some(Duration::ZERO)));
    let mut grant = limiter.try_acquire(4).unwrap();
    assert_eq!((grant.remaining(), limiter.available()), (1, 1));
    assert_eq!(limiter.estimate(5), Some(Duration::ZERO), "a cap has no schedule");
    assert_eq!(limiter.estimate(6), None, "more than the cap");
    let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(2) else { panic!("only 1 is left") };
    assert_eq!((denied.by, denied.remaining, denied.retry_after), (Bound::InFlight, 1, None));
    assert_eq!(
        limiter.try_acquire(6).unwrap_err(),
        TryAcquireError::TooLarge { cost: 6, most: 5, by: Bound::InFlight, quota_name: None }
    );
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.quotas.len(), snapshot.max_in_flight, snapshot.granted), (0, Some(5), 4));
    grant.settle(2);
    assert_eq!((limiter.available(), limiter.snapshot().refunded), (3, 2));
    grant.settle(5);
    assert_eq!((limiter.available(), limiter.snapshot().in_flight), (0, Some(5)));
    drop(grant);
    assert_eq!((limiter.available(), limiter.snapshot().in_flight), (5, Some(0)));
}

#[test]
fn cap_alone_can_be_changed_paused_and_closed_and_has_no_quota_to_set() {
    let (limiter, clock) = capped(2);
    let error = limiter.set_quota(0, Quota::per_second(1)).unwrap_err();
    assert_eq!(error, ConfigError::UnknownQuota { which: "0".to_owned(), count: 0 });
    assert!(error.to_string().contains("set_max_in_flight"), "{error}");
    let held = limiter.try_acquire(2).unwrap();
    let mut waiting = pending(limiter.consume(1));
    limiter.set_max_in_flight(3).unwrap();
    let third = assert_ready_ok!(waiting.poll());
    drop((held, third));
    limiter.pause_for(SECOND);
    assert_eq!((limiter.available(), limiter.estimate(1)), (0, Some(SECOND)));
    let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(1) else { panic!("the limiter is paused") };
    assert_eq!((denied.by, denied.retry_after), (Bound::Pause, Some(SECOND)));
    let mut waiting = pending(limiter.consume(1));
    tick_after(&clock, &limiter, SECOND);
    let _grant = assert_ready_ok!(waiting.poll());
    limiter.replenish(100);
    assert_eq!(limiter.available(), 2, "the limiter has no bucket to fill");
    limiter.close();
    assert_eq!(limiter.try_acquire(1).unwrap_err(), TryAcquireError::Closed);
}

/// Grants and releases in a hot loop use the path without the lock, and never exceed the cap.
#[test]
fn cap_alone_holds_among_threads() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let limiter = Limiter::builder().max_in_flight(3).build().unwrap();
    let in_flight = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let grant = limiter.blocking_consume(1).unwrap();
                    assert!(in_flight.fetch_add(1, Ordering::SeqCst) < 3, "more than the cap");
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    drop(grant);
                }
            });
        }
    });
    assert_eq!((limiter.available(), limiter.snapshot().granted), (3, 8_000));
}

#[tokio::test(start_paused = true)]
async fn cap_alone_refuses_a_wait_without_a_grant() {
    let limiter = Limiter::builder().max_in_flight(3).build().unwrap();
    assert_eq!(limiter.wait(1).await, Err(ConsumeError::MustHold));
    assert_eq!(limiter.wait(0).within(SECOND).await, Err(ConsumeError::MustHold), "always, not only when it is full");
    assert_eq!(limiter.snapshot().granted, 0);
    let error = ConsumeError::MustHold.to_string();
    assert!(error.contains("let _grant = limiter.consume(cost).await?"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn wait_takes_the_tokens_on_schedule_and_leaves_the_queue_when_it_is_dropped() {
    let limiter = Limiter::new(Quota::per_second(1).burst(1)).unwrap();
    let start = tokio::time::Instant::now();
    limiter.wait(1).await.unwrap();
    limiter.wait(2).await.unwrap();
    assert_eq!((start.elapsed(), limiter.available()), (2 * SECOND, 0));
    let late = limiter.wait(1).within(Duration::from_millis(999)).await;
    assert!(matches!(late, Err(ConsumeError::TooLate { .. })), "{late:?}");
    let gone = pending(limiter.wait(100));
    drop(gone);
    limiter.wait(1).await.unwrap();
    assert_eq!(start.elapsed(), 3 * SECOND);
    limiter.close();
    assert_eq!(limiter.wait(1).await, Err(ConsumeError::Closed));
}
