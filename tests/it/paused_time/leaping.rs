//! A clock that leaps while tokio's timers sleep, as one does that counts the time of a suspension.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tollgate::{Clock, ConsumeError};

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// tokio's time, and the time of all suspensions so far.
#[derive(Clone, Debug)]
struct Suspended {
    start: Instant,
    seconds: Arc<AtomicU64>,
}

impl Suspended {
    fn new() -> Self {
        Self { start: Instant::now(), seconds: Arc::default() }
    }

    async fn suspend_soon(&self) {
        sleep(Duration::from_secs(1)).await;
        self.seconds.store(3 * 3_600, SeqCst);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_secs(self.seconds.load(SeqCst))
    }
}

/// One token an hour.
fn hourly() -> Quota {
    Quota::per_hour(1).burst(1).initial(0)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_within_a_minute_of_the_end_of_a_suspension() {
    let clock = Suspended::new();
    let limiter = Limiter::builder().quota(hourly()).clock(clock.clone()).build().unwrap();
    let waiting = enter(&limiter, 1).await;
    clock.suspend_soon().await;
    let (granted, _grant) = waiting.await.unwrap();
    assert!(granted - clock.start <= MINUTE, "{:?}", granted - clock.start);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_wait_within_a_minute_of_the_end_of_a_suspension() {
    let clock = Suspended::new();
    let limiter = Limiter::builder().quota(Quota::manual(1).initial(0)).clock(clock.clone()).build().unwrap();
    let waiting = tokio::spawn(async move { limiter.wait(1).within(HOUR).await });
    clock.suspend_soon().await;
    assert!(matches!(waiting.await.unwrap(), Err(ConsumeError::TimedOut { .. })));
    assert!(clock.start.elapsed() <= MINUTE + MILLI, "{:?}", clock.start.elapsed());
}

#[cfg(feature = "keyed")]
#[tokio::test(start_paused = true)]
async fn the_waiter_of_a_key_is_served_within_a_minute_of_the_end_of_a_suspension() {
    let clock = Suspended::new();
    let quota = Quota::per_hour(1).burst(1);
    let keyed = tollgate::KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    drop(keyed.try_acquire(&7, 1).unwrap());
    let waiting = tokio::spawn(async move { keyed.wait(&7, 1).await });
    clock.suspend_soon().await;
    waiting.await.unwrap().unwrap();
    assert!(clock.start.elapsed() <= MINUTE + MILLI, "{:?}", clock.start.elapsed());
}
