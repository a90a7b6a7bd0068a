//! Unreachable stores, lost answers, and stores that lose their data.

use super::{millis, node, one_node};
use crate::distributed::law::Ledger;
use crate::distributed::link::{Cut, Link};
use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;

/// A key that was never requested, and one that is busy.
const COLD: u64 = 1;
const BUSY: u64 = 2;

#[tokio::test(start_paused = true)]
async fn while_stores_are_unreachable_callers_wait_fail_or_share_as_chosen() {
    let quota = Quota::per_second(100).burst(10);
    for outage in [Outage::Wait, Outage::Fail, Outage::Share(Quota::per_second(10).burst(1))] {
        let store = MemoryStore::new().outage(outage);
        let users = node(&store, quota);
        for _ in 0..20 {
            drop(users.consume(&BUSY, 1).await.unwrap());
        }
        store.set_reachable(false);
        let ledgers = [Ledger::default(), Ledger::default()];
        for (key, ledger) in [COLD, BUSY].into_iter().zip(&ledgers) {
            let (users, ledger) = (users.clone(), ledger.clone());
            tokio::spawn(timeout(millis(5_000), async move {
                loop {
                    match users.consume(&key, 1).await {
                        Ok(_) => ledger.note(1),
                        Err(_) => sleep(millis(1)).await,
                    }
                }
            }));
        }
        sleep(millis(4_900)).await;
        for (ledger, leased) in ledgers.iter().zip([0, 20]) {
            match outage {
                Outage::Share(_) => assert!((45..=52 + leased).contains(&ledger.total()), "{}", ledger.total()),
                _ => assert!(ledger.total() <= leased, "no more than the leased tokens: {}", ledger.total()),
            }
        }
        let answer = timeout(millis(50), users.consume(&3, 1)).await;
        match outage {
            Outage::Fail => assert!(matches!(answer, Ok(Err(ConsumeError::Unreachable))), "{answer:?}"),
            Outage::Wait => assert!(answer.is_err(), "{answer:?}"),
            _ => assert!(answer.is_err(), "the share starts empty: {answer:?}"),
        }
        sleep(millis(200)).await;
        let snapshot = users.snapshot();
        assert!(snapshot.store.is_out && snapshot.store.outages >= 1 && snapshot.store.error.is_some(), "{snapshot:?}");
        store.set_reachable(true);
        let back = Instant::now();
        for key in [COLD, BUSY, 3, 4] {
            while users.consume(&key, 1).await.is_err() {
                sleep(millis(1)).await;
            }
        }
        assert!(back.elapsed() <= millis(1_000), "{outage:?}: {:?}", back.elapsed());
        sleep(millis(5_000)).await;
        let snapshot = users.snapshot();
        assert!(!snapshot.store.is_out && snapshot.keys == 0, "{outage:?}: {snapshot:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_until_a_request_is_sent_is_a_part_of_the_wait() {
    let store = MemoryStore::new();
    let links = [(); 2].map(|()| Link::to(&store, Outage::Wait).repeating_after(millis(600)));
    let node =
        |link: &Link| DistributedKeyedLimiter::builder(link.clone()).quota(Quota::per_second(1)).build().unwrap();
    let [users, others]: [DistributedKeyedLimiter<u64>; 2] = links.each_ref().map(node);
    for allowed in [1_000, 1_400].map(millis) {
        links[0].cut(Cut::Unsent);
        let began = Instant::now();
        let claim = tokio::spawn(users.consume(&1, 1).within(allowed));
        sleep(millis(500)).await;
        links[0].cut(Cut::Nowhere);
        // The next token comes 1.5 s after the claim.
        drop(others.consume(&1, 1).await.unwrap());
        let answer = claim.await.unwrap();
        assert!(answer.is_err() && began.elapsed() <= allowed, "{answer:?} after {:?}", began.elapsed());
        sleep(millis(5_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_its_own_tokens_and_grants_nothing_twice() {
    let store = MemoryStore::new();
    let quota = Quota::per_hour(100).burst(10);
    let users = node(&store, quota);
    for _ in 0..2 {
        store.lose_answers(1);
        // The second request is that of a limiter.
        drop(users.consume(&1, 2).await.unwrap());
        sleep(millis(2_000)).await;
    }
    let rest = users.consume(&1, 2).within(millis(10)).await.unwrap();
    assert_eq!(rest.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_data_grants_a_burst_more_despite_cached_replies() {
    let (store, users) = one_node(Quota::per_second(1).burst(5));
    drop(users.consume(&1, 5).await.unwrap());
    store.forget();
    // The bucket is full, and this node does not know it, except for the time of a token.
    assert!(users.consume(&1, 1).within(millis(10)).await.is_err());
    sleep(millis(1_000)).await;
    assert_eq!(users.consume(&1, 1).within(millis(10)).await.unwrap().remaining(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_reachable_again_is_found_by_the_next_call() {
    let store = MemoryStore::new().outage(Outage::Fail);
    let users = node(&store, Quota::per_second(10));
    store.set_reachable(false);
    assert!(matches!(users.consume(&1, 1).await, Err(ConsumeError::Unreachable)));
    store.set_reachable(true);
    // No limiter on this node would notice it.
    sleep(millis(100)).await;
    drop(users.consume(&2, 1).await.unwrap());
}
