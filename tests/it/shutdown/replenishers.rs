//! Replenishers that are spawned, polled or dropped by hand, at the wrong time.

use super::*;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{advance, timeout};
use tokio_test::task::spawn;

const MILLI: Duration = Duration::from_millis(1);

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_replenisher_polled_by_hand_serves_the_queue_but_no_waiter_relies_on_it() {
    let limiter = empty();
    let mut replenisher = spawn(limiter.replenisher());
    assert!(replenisher.poll().is_pending());
    let mut waiting = spawn(limiter.consume(1));
    assert!(waiting.poll().is_pending());
    assert_eq!(alive(), 1, "it may never be polled again, so the waiter started another one");
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
    assert_eq!(alive(), 1, "the waiter started a replenisher");
    drop(unused);
    drop(limiter.consume(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_replenisher_dropped_after_a_poll_is_replaced_for_later_claims() {
    let limiter = empty();
    let mut replenisher = spawn(limiter.replenisher());
    assert!(replenisher.poll().is_pending());
    drop(replenisher);
    drop(limiter.consume(1).await.unwrap());
    assert_eq!(alive(), 1);
}

/// "It can be dropped at any time: waiters are woken and start another one where they are."
#[tokio::test(start_paused = true)]
async fn a_replenisher_dropped_under_its_waiters_is_replaced_by_them() {
    let limiter = empty();
    let mut replenisher = spawn(limiter.replenisher());
    assert!(replenisher.poll().is_pending());
    let mut waiting = [spawn(limiter.consume(1)), spawn(limiter.consume(1))];
    assert!(waiting.iter_mut().all(|claim| claim.poll().is_pending()));
    assert!(replenisher.poll().is_pending());
    drop(replenisher);
    // The woken waiter is polled again.
    for claim in &mut waiting {
        assert!(!claim.is_woken() || claim.poll().is_pending());
    }
    yield_now().await;
    assert_eq!(alive(), 1);
    for _ in 0..2 {
        advance(MILLI * 2).await;
        yield_now().await;
    }
    assert!(waiting.iter_mut().all(|claim| claim.is_woken() && claim.poll().is_ready()));
}

#[test]
fn an_aborted_replenisher_is_replaced_by_the_waiters() {
    to_its_end(|| {
        workers(1).block_on(async {
            let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
            let replenisher = tokio::spawn(limiter.replenisher());
            while alive() < 1 {
                yield_now().await;
            }
            let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(limiter.clone().consume_owned(1))).collect();
            while limiter.snapshot().waiting_tasks < 10 {
                yield_now().await;
            }
            replenisher.abort();
            assert!(replenisher.await.unwrap_err().is_cancelled());
            limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
            for claim in waiting {
                drop(claim.await.unwrap().unwrap());
            }
        });
    });
}

#[tokio::test(start_paused = true)]
async fn many_replenishers_of_one_limiter_do_no_harm() {
    const COUNT: usize = if cfg!(miri) { 5 } else { 50 };
    let limiter = empty();
    let many: Vec<_> = (0..COUNT).map(|_| tokio::spawn(limiter.replenisher())).collect();
    yield_now().await;
    let started = tokio::time::Instant::now();
    for _ in 0..10 {
        drop(limiter.consume(1).await.unwrap());
    }
    assert_eq!(started.elapsed(), MILLI * 10);
    assert_eq!((alive(), limiter.snapshot().granted), (COUNT + 1, 10), "the first waiter started one more");
    drop(limiter);
    for replenisher in many {
        // On the paused clock: at once, if no other event is pending.
        timeout(MILLI, replenisher).await.expect("the replenisher ends with its limiter").unwrap();
    }
}

/// A limiter that is dropped before the replenisher's first poll, and one that is dropped after it.
#[tokio::test(start_paused = true)]
async fn a_replenisher_ends_with_its_limiter() {
    let (never, once) = (empty(), empty());
    let mut unpolled = spawn(never.replenisher());
    let mut polled = spawn(once.replenisher());
    assert!(polled.poll().is_pending());
    drop((never, once));
    assert!(unpolled.poll().is_ready());
    assert!(polled.is_woken() && polled.poll().is_ready());
}
