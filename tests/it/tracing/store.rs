//! The events of a distributed quota's store.

use super::RecordingSubscriber;
use crate::distributed::failing::Failing;
use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;
use tollgate::distributed::{ReplyKind, StoreError};

fn events(subscriber: &RecordingSubscriber) -> Vec<String> {
    subscriber.read().into_iter().filter(|line| line.contains(" .store.name=")).collect()
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_an_event_when_it_begins_and_one_when_it_ends_for_all_limiters_together() {
    let (subscriber, _here) = RecordingSubscriber::here();
    let store = MemoryStore::new();
    let limiter = || Limiter::builder().quota(Quota::per_second(10)).distributed(store.clone()).build().unwrap();
    let nodes = [limiter(), limiter()];
    for node in &nodes {
        drop(node.consume(1).await.unwrap());
    }
    for _ in 0..2 {
        store.set_reachable(false);
        let waiters = nodes.clone().map(|node| tokio::spawn(async move { node.consume(10).await.map(drop) }));
        sleep(Duration::from_secs(5)).await;
        let events_so_far = events(&subscriber);
        let [begun] = &events_so_far[..] else { panic!("one event: {events_so_far:?}") };
        assert!(begun.contains("WARN") && begun.contains("outage of the store begins"), "{begun}");
        assert!(begun.contains(".type=unreachable"), "{begun}");
        store.set_reachable(true);
        sleep(Duration::from_secs(5)).await;
        let [ended] = &events(&subscriber)[..] else { panic!("one event") };
        assert!(ended.contains("INFO") && ended.contains("outage of the store is over"), "{ended}");
        try_join_all(waiters).await.unwrap().into_iter().for_each(Result::unwrap);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_by_error_replies_is_an_event_with_the_kind() {
    let (subscriber, _here) = RecordingSubscriber::here();
    let store = Failing::over(MemoryStore::new());
    let limiter = Limiter::builder().quota(Quota::per_second(10)).distributed(store.clone()).build().unwrap();
    let message = "`MISCONF unable to persist`: make the disk writable again".to_owned();
    store.fail(StoreError::Reply { kind: ReplyKind::NotSaved, message });
    let waiter = tokio::spawn(async move { limiter.consume(1).await.map(drop) });
    sleep(Duration::from_secs(5)).await;
    let [begun] = &events(&subscriber)[..] else { panic!("one event") };
    assert!(begun.contains("WARN") && begun.contains(".type=not_saved"), "{begun}");
    assert!(begun.contains("outage of the store begins") && begun.contains("MISCONF"), "{begun}");
    store.fail(None);
    waiter.await.unwrap().unwrap();
    let [ended] = &events(&subscriber)[..] else { panic!("one event") };
    assert!(ended.contains("INFO") && ended.contains("outage of the store is over"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_single_requests_of_keys_meet_is_reported_too() {
    let (subscriber, _here) = RecordingSubscriber::here();
    let store = MemoryStore::new().outage(tollgate::distributed::Outage::Fail);
    let users = DistributedKeyedLimiter::<u64>::builder(store.clone()).quota(Quota::per_second(10)).build();
    let users = users.unwrap();
    store.set_reachable(false);
    for user in 0..5 {
        assert!(users.consume(&user, 1).await.is_err());
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(events(&subscriber).len(), 1);
    store.set_reachable(true);
    drop(users.consume(&7, 1).await.unwrap());
    let [ended] = &events(&subscriber)[..] else { panic!("one event") };
    assert!(ended.contains("outage of the store is over"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_state_is_an_event_with_the_excess() {
    let (subscriber, _here) = RecordingSubscriber::here();
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(40);
    let node = Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
    drop(node.consume(30).await.unwrap());
    store.forget();
    drop(node.consume(2).await.unwrap());
    sleep(Duration::from_secs(1)).await;
    let [lost] = &events(&subscriber)[..] else { panic!("one event") };
    assert!(lost.contains("WARN") && lost.contains("store has lost its state"), "{lost}");
    assert!(lost.contains(".excess_tokens=3") || lost.contains(".excess_tokens=40"), "{lost}");
    assert_eq!(store.snapshot().losses, 1);
    // The bucket is full by now, so nothing is lost with it.
    drop(node.consume(1).await.unwrap());
    sleep(Duration::from_secs(60)).await;
    let before = store.snapshot().excess_estimate;
    store.forget();
    drop(node.consume(1).await.unwrap());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(store.snapshot().excess_estimate, before);
}
