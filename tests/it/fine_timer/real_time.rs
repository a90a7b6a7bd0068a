//! Real time: what the fine timer improves, what it keeps, and what it leaves behind.

use super::*;
use crate::paused_time::replenisher::Counted;
use std::time::Instant;
use tokio::runtime;

#[test]
fn the_rate_and_the_order_are_kept_by_two_workers() {
    const COUNT: usize = 3_000;
    to_its_end(|| {
        let runtime = workers(2);
        let limiter = Limiter::builder().quota(Quota::manual(1).initial(0)).max_in_flight(1).build().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..COUNT {
            let (claim, order) = (limiter.clone().consume_owned(1), Arc::clone(&order));
            tasks.push(runtime.spawn(async move {
                let grant = claim.await.unwrap();
                order.lock().unwrap().push((number, Instant::now()));
                drop(grant);
            }));
            while limiter.snapshot().waiting_tasks <= number as u64 {
                thread::yield_now();
            }
        }
        let start = Instant::now();
        limiter.set_quota(0, Quota::per_second(20_000).burst(5)).unwrap();
        runtime.block_on(async {
            try_join_all(tasks).await.unwrap();
        });
        let order = order.lock().unwrap();
        assert_eq!(order.len(), COUNT);
        for (place, (number, passed)) in order.iter().enumerate() {
            assert_eq!(place, *number);
            let minted = (*passed - start).as_nanos() * 20_000 / 1_000_000_000;
            assert!(
                (place as u128) < minted + 6,
                "number {place} was granted early, {:?} after the start",
                *passed - start
            );
        }
    });
}

#[tokio::test]
async fn without_waiters_the_fine_timer_wakes_nothing() {
    let limiter = Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap();
    let looks = Arc::new(AtomicU64::new(0));
    tokio::spawn(Counted(Box::pin(limiter.replenisher()), Arc::clone(&looks)));
    for _ in 0..3 {
        let _grant = limiter.consume(1).await.unwrap();
    }
    let before = looks.load(SeqCst);
    sleep(Duration::from_millis(100)).await;
    // At most the alarms that the last waiter left behind: that of the fine timer and that of the coarse one.
    assert!(looks.load(SeqCst) - before <= 2);
}

#[tokio::test]
async fn a_clock_that_stands_still_is_not_read_in_a_busy_loop() {
    // It stands just before the instant at which the front is due.
    let (nanos, clock) = shown(ClockFn::moving);
    let quota = Quota::per_second(1_000).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(clock).build().unwrap();
    let looks = Arc::new(AtomicU64::new(0));
    tokio::spawn(Counted(Box::pin(limiter.replenisher()), Arc::clone(&looks)));
    let start = Instant::now();
    let waiting = tokio::spawn(limiter.clone().consume_owned(1));
    nanos.store(999_999, SeqCst);
    sleep(Duration::from_millis(20)).await;
    let (looks, most) = (looks.load(SeqCst), start.elapsed().as_micros() as u64 / 400 + 5);
    assert!(looks <= most, "{looks} readings, expected at most {most}");
    nanos.store(1_000_000, SeqCst);
    let _grant = waiting.await.unwrap().unwrap();
}

#[test]
fn a_runtime_without_io_uses_the_coarse_timer() {
    to_its_end(|| {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let limiter = Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap();
        runtime.block_on(async {
            for _ in 0..5 {
                let _grant = limiter.consume(1).await.unwrap();
            }
            assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        });
    });
}

#[tokio::test]
async fn a_thread_that_waits_for_the_fine_timer_sleeps() {
    let (readings, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let counted = Arc::clone(&readings);
    let clock = ClockFn::moving(move || {
        counted.fetch_add(1, SeqCst);
        start.elapsed()
    });
    let quota = Quota::per_second(10).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(clock).build().unwrap();
    for _ in 0..3 {
        drop(limiter.consume(1).await.unwrap());
    }
    // Polling for 20 ms of each wait would take some hundred thousand readings.
    assert!(readings.load(SeqCst) < 1_000, "{readings:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn waiters_are_served_under_the_clock_that_counts_suspension() {
    use tollgate::clock::BootClock;
    let quota = Quota::per_second(1_000).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(BootClock::new()).build().unwrap();
    let before = BootClock::new().now();
    for _ in 0..5 {
        let _grant = limiter.consume(1).await.unwrap();
    }
    assert!(BootClock::new().now() - before >= Duration::from_millis(4));
}
