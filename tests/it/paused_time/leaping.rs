//! A clock that leaps while tokio's timers sleep, as one does that counts the time of a suspension.

use super::*;

/// Tokio's time plus the time of a suspension, which is set by its nanoseconds.
fn suspended() -> (Instant, Arc<AtomicU64>, ClockFn) {
    let (start, (nanos, suspension)) = (Instant::now(), shown(ClockFn::moving));
    (start, nanos, ClockFn::moving(move || start.elapsed() + suspension.now()))
}

async fn suspend_soon(nanos: &AtomicU64) {
    sleep(Duration::from_secs(1)).await;
    nanos.store(3 * HOUR.as_nanos() as u64, SeqCst);
}

/// One token an hour.
fn hourly() -> Quota {
    Quota::per_hour(1).burst(1).initial(0)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_within_a_minute_of_the_end_of_a_suspension() {
    let (start, nanos, clock) = suspended();
    let limiter = Limiter::builder().quota(hourly()).clock(clock).build().unwrap();
    let waiting = enter(&limiter, 1).await;
    suspend_soon(&nanos).await;
    let (granted, _grant) = waiting.await.unwrap();
    assert!(granted - start <= MINUTE, "{:?}", granted - start);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_wait_within_a_minute_of_the_end_of_a_suspension() {
    let (start, nanos, clock) = suspended();
    let limiter = Limiter::builder().quota(Quota::manual(1).initial(0)).clock(clock).build().unwrap();
    let waiting = tokio::spawn(async move { limiter.wait(1).within(HOUR).await });
    suspend_soon(&nanos).await;
    assert!(matches!(waiting.await.unwrap(), Err(ConsumeError::TimedOut { .. })));
    assert!(start.elapsed() <= MINUTE + MILLI, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_waiter_of_a_key_is_served_within_a_minute_of_the_end_of_a_suspension() {
    let (start, nanos, clock) = suspended();
    let quota = Quota::per_hour(1).burst(1);
    let keyed = tollgate::KeyedLimiter::builder().quota(quota).clock(clock).build().unwrap();
    drop(keyed.try_acquire(&7, 1).unwrap());
    let waiting = tokio::spawn(async move { keyed.wait(&7, 1).await });
    suspend_soon(&nanos).await;
    waiting.await.unwrap().unwrap();
    assert!(start.elapsed() <= MINUTE + MILLI, "{:?}", start.elapsed());
}
