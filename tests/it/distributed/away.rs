//! Limiters over an unreachable store in memory, in paused time.

use super::law::Ledger;
use super::nodes::{consume_for, limiter, millis};
use crate::fixture::*;

#[tokio::test(start_paused = true)]
async fn while_the_store_is_unreachable_callers_wait_fail_or_share_as_chosen() {
    let quota = Quota::per_second(100).burst(10).initial(0);
    for outage in [Outage::Wait, Outage::Fail, Outage::Share(Quota::per_second(10).burst(1))] {
        let store = MemoryStore::new().outage(outage);
        let limiter = limiter(&store, quota);
        drop(limiter.consume(5).await.unwrap());
        store.set_reachable(false);
        let ledger = Ledger::default();
        let consuming = tokio::spawn(consume_for(limiter.clone(), 1, millis(5_000), ledger.clone()));
        sleep(millis(4_900)).await;
        match outage {
            Outage::Share(_) => assert!((45..=60).contains(&ledger.total()), "{}", ledger.total()),
            _ => assert!(ledger.total() <= 30, "no more than the leased tokens: {}", ledger.total()),
        }
        if outage == Outage::Fail {
            assert!(matches!(limiter.consume(1).await, Err(ConsumeError::Unreachable)));
            assert!(matches!(limiter.try_acquire(1), Err(TryAcquireError::Unreachable)));
        } else if outage == Outage::Wait {
            assert!(timeout(millis(50), limiter.consume(1)).await.is_err());
        }
        consuming.await.unwrap();
        store.set_reachable(true);
        let back = Instant::now();
        while store.snapshot().is_out || limiter.consume(1).await.is_err() {
            sleep(millis(1)).await;
        }
        assert!(back.elapsed() <= millis(1_000), "{outage:?}: {:?}", back.elapsed());
        let snapshot = store.snapshot();
        assert!(snapshot.outages >= 1 && snapshot.outage >= millis(4_000) && !snapshot.is_out, "{snapshot:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_under_an_unreachable_parent_get_unreachable_and_not_closed() {
    let store = MemoryStore::new().outage(Outage::Fail);
    let parent = limiter(&store, Quota::per_second(100).burst(10).initial(0));
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1_000).burst(100));
    let keyed = builder.parent(&parent).build().unwrap();
    drop(keyed.consume(&1, 5).await.unwrap());
    store.set_reachable(false);
    // It waits in the parent when the outage is noticed.
    let waiting = pending(keyed.consume(&1, 10));
    let answer = timeout(millis(10_000), waiting).await.expect("no claim waits for ever");
    assert_eq!(answer.map(drop), Err(ConsumeError::Unreachable));
    sleep(millis(3_000)).await;
    for cost in [5, 10] {
        let answer = timeout(millis(10_000), keyed.consume(&1, cost)).await.expect("no claim waits for ever");
        assert_eq!(answer.map(drop), Err(ConsumeError::Unreachable));
        let within = timeout(millis(10_000), keyed.consume(&2, cost).within(millis(5_000))).await;
        assert_eq!(within.expect("no claim waits for ever").map(drop), Err(ConsumeError::Unreachable));
    }
    store.set_reachable(true);
    sleep(millis(3_000)).await;
    drop(keyed.consume(&1, 5).await.unwrap());
    parent.close();
    assert_eq!(keyed.consume(&1, 5).await.map(drop), Err(ConsumeError::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_joint_claim_names_the_unreachable_limiter() {
    let store = MemoryStore::new().outage(Outage::Fail);
    let shared = limiter(&store, Quota::per_second(1).burst(100).initial(0));
    let plain = Limiter::builder().quota(Quota::per_second(1_000).burst(100)).build().unwrap();
    drop(shared.consume(1).await.unwrap());
    store.set_reachable(false);
    let mut waiting = tokio_test::task::spawn(join([(&plain, 1), (&shared, 50)]));
    assert!(waiting.poll().is_pending());
    let answer = timeout(millis(10_000), waiting).await.expect("no claim waits for ever");
    assert_eq!(answer.map(drop), Err(JoinError::Refused { limiter: 1, error: ConsumeError::Unreachable }));
    assert_eq!(plain.available(), 100);
}
