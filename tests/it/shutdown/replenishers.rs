//! Replenishers that are polled by hand, or never: `paused_time/replenisher.rs` has those that are spawned.

use super::*;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn a_replenisher_polled_by_hand_serves_the_queue_but_no_waiter_relies_on_it() {
    let limiter = empty();
    let mut replenisher = pending(limiter.replenisher());
    let mut waiting = pending(limiter.consume(1));
    assert_eq!(tasks(), 1, "it may never be polled again, so the waiter started another one");
    assert!(replenisher.is_woken(), "the replenisher has an alarm to set");
    assert!(replenisher.poll().is_pending());
    advance(MILLI).await;
    assert!(replenisher.is_woken());
    assert!(replenisher.poll().is_pending());
    assert!(waiting.is_woken() && waiting.poll().is_ready(), "served by either of the two");
    drop(waiting);
    drop(limiter);
    assert!(replenisher.is_woken() && replenisher.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn no_waiter_relies_on_a_replenisher_that_is_never_polled() {
    let limiter = empty();
    let unused = limiter.replenisher();
    drop(limiter.replenisher());
    drop(limiter.consume(1).await.unwrap());
    assert_eq!(tasks(), 1, "the waiter started a replenisher");
    drop(unused);
    drop(limiter.consume(1).await.unwrap());
}
