//! Bounded memory, and what still works when it is full.

use super::{millis, one_node};
use crate::distributed::law::Ledger;
use crate::fixture::*;
use std::hash::{Hash, Hasher};
use tokio::runtime::Builder;
use tollgate::DistributedKeyedLimiter;

fn bounded(store: &MemoryStore, quota: Quota, keys: u64) -> DistributedKeyedLimiter<u64> {
    DistributedKeyedLimiter::builder(store.clone()).quota(quota).max_keys(keys).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_must_wait_is_refused_exactly_while_all_entries_are_in_use() {
    let store = MemoryStore::new();
    let users = bounded(&store, Quota::per_second(1), 3);
    let mut waiting = Vec::new();
    for key in 0..3 {
        drop(users.consume(&key, 1).await.unwrap());
        let users = users.clone();
        waiting.push(tokio::spawn(async move { users.consume(&key, 1).await.map(drop) }));
        sleep(millis(1)).await;
    }
    drop(users.consume(&3, 1).await.unwrap());
    assert!(matches!(users.consume(&3, 1).await, Err(ConsumeError::TooManyKeys { most: 3 })));
    assert!(matches!(users.try_acquire(&4, 1), Err(TryAcquireError::TooLarge { .. })));
    assert!(users.limiter(&4).is_err());
    // A claim that is refused, or finds its tokens, needs no entry.
    assert!(matches!(users.consume(&3, 1).within(millis(5)).await, Err(ConsumeError::TooLate { .. })));
    for key in 10..20 {
        drop(users.consume(&key, 1).await.unwrap());
    }
    assert_eq!(users.snapshot().keys, 3);
    waiting[0].abort();
    sleep(millis(20)).await;
    // An entry is free again when its limiter holds nothing any more.
    let began = Instant::now();
    let limiter = loop {
        match users.limiter(&3) {
            Ok(limiter) => break limiter,
            Err(error) => assert_eq!(error, ConfigError::TooManyKeys { most: 3 }),
        }
        sleep(millis(20)).await;
    };
    assert!(began.elapsed() <= millis(3_000), "{:?}", began.elapsed());
    drop(limiter);
    for task in waiting.into_iter().skip(1) {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_cost_zero_needs_no_entry() {
    let store = MemoryStore::new();
    let users = bounded(&store, Quota::per_second(10), 1);
    assert_eq!(users.estimate(&1, 0), Some(millis(0)));
    assert_eq!(users.try_acquire(&1, 0).unwrap().cost(), 0);
    drop(users.consume(&1, 0).await.unwrap());
    assert_eq!((users.snapshot().keys, store.asks()), (0, 0));
    // It knows what other claims have left.
    drop(users.consume(&1, 4).await.unwrap());
    assert_eq!(users.try_acquire(&1, 0).unwrap().remaining(), 6);
    assert_eq!(users.consume(&1, 0).await.unwrap().remaining(), 6);
    let _taken = users.limiter(&2).unwrap();
    assert_eq!(users.try_acquire(&1, 0).unwrap().cost(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_cached_replies_are_bounded_for_any_keys() {
    for keys in [1, 5, 64, 1_000] {
        let store = MemoryStore::new();
        let users = bounded(&store, Quota::per_hour(2), keys);
        for key in 0..20_000 {
            drop(users.consume(&key, 1).await.unwrap());
        }
        let snapshot = users.snapshot();
        assert!(snapshot.cached <= keys && snapshot.keys == 0, "{keys}: {snapshot:?}");
        assert!(snapshot.cached > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn churning_through_keys_resets_no_limit() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(1).burst(3);
    let users = bounded(&store, quota, 2);
    let ledger = Ledger::default();
    for stranger in 1_000..11_000 {
        if users.consume(&1, 1).within(millis(0)).await.is_ok() {
            ledger.note(1);
        }
        drop(users.consume(&stranger, 1).await);
        sleep(millis(1)).await;
    }
    assert!(ledger.excess(1, 3) <= 0.0, "{}", ledger.excess(1, 3));
    assert!((12..=13).contains(&ledger.total()), "{}", ledger.total());
}

/// With one entry and many busy keys, each key is requested separately.
#[tokio::test(start_paused = true)]
async fn busy_keys_without_an_entry_are_served() {
    let store = MemoryStore::new();
    let users = bounded(&store, Quota::per_second(1_000), 1);
    let held = users.limiter(&0).unwrap();
    for _ in 0..50 {
        for key in 1..5 {
            drop(users.consume(&key, 1).await.unwrap());
        }
        sleep(millis(2)).await;
    }
    assert_eq!(store.asks(), 200);
    drop(held);
    let is_free = async {
        while users.limiter(&1).is_err() {
            sleep(millis(100)).await
        }
    };
    timeout(millis(5_000), is_free).await.expect("the entry is free again");
}

#[tokio::test(start_paused = true)]
async fn a_debt_is_not_dropped_before_it_is_reported() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10);
    let users = bounded(&store, quota, 1);
    let mut grant = users.consume(&1, 1).await.unwrap();
    sleep(millis(100)).await;
    grant.settle(21);
    drop(grant);
    // Another key needs the entry before the key's limiter could send a request.
    assert!(users.limiter(&2).is_err());
    sleep(millis(100)).await;
    let other = bounded(&store, quota, 1);
    assert!(other.consume(&1, 1).within(millis(0)).await.is_err());
}

/// The key's limiter is paused and has no handles: it requests nothing, is promised nothing, and is still in debt.
#[tokio::test(start_paused = true)]
async fn a_debt_that_cannot_be_paid_now_is_not_dropped() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10);
    let users = bounded(&store, quota, 1);
    let mut grant = users.consume(&1, 1).await.unwrap();
    let limiter = users.limiter(&1).unwrap();
    limiter.pause_for(millis(10_000));
    grant.settle(21);
    drop((grant, limiter));
    sleep(millis(5_000)).await;
    let snapshot = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.store.granted), (1, 1));
    // It is removed as soon as the debt can be paid.
    sleep(millis(10_000)).await;
    let snapshot = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.store.granted - snapshot.store.returned), (0, 21));
}

/// A call on another runtime removes them.
#[test]
fn limiters_are_removed_also_after_the_end_of_the_building_runtime() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let users = first.block_on(async { bounded(&MemoryStore::new(), Quota::per_second(10), 100) });
    first.block_on(async { assert!(users.limiter(&1).is_ok()) });
    drop(first);
    second.block_on(async {
        for round in 0..3 {
            assert!((0..20).all(|key| users.limiter(&key).is_ok()));
            sleep(millis(5_000)).await;
            assert_eq!(users.snapshot().keys, 0, "round {round}");
        }
    });
}

/// No call for the key asks for the answer.
#[test]
fn a_limiter_is_removed_also_if_its_runtime_ends_during_a_request() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = MemoryStore::new();
    store.set_latency(millis(200));
    let users = first.block_on(async {
        let users = bounded(&store, Quota::per_second(10), 1);
        assert!(users.try_acquire(&1, 1).is_err());
        sleep(millis(100)).await;
        users
    });
    drop(first);
    second.block_on(async {
        assert!(users.limiter(&2).is_err());
        sleep(millis(5_000)).await;
        assert!(users.limiter(&2).is_ok());
    });
}

/// All keys have one hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Alike(u64);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[tokio::test(start_paused = true)]
async fn keys_of_one_hash_have_nothing_else_in_common() {
    let store = MemoryStore::new();
    let builder = DistributedKeyedLimiter::builder_by(store.clone(), |key: &Alike| key.0.to_string());
    let users = builder.quota(Quota::per_hour(10)).build().unwrap();
    drop(users.consume(&Alike(1), 10).await.unwrap());
    assert!(users.consume(&Alike(1), 1).within(millis(1)).await.is_err());
    assert_eq!(users.consume(&Alike(2), 4).within(millis(1)).await.unwrap().remaining(), 6);
    let limiters = [users.limiter(&Alike(1)).unwrap(), users.limiter(&Alike(2)).unwrap()];
    assert_eq!(users.snapshot().keys, 2);
    drop(timeout(millis(10), limiters[1].consume(3)).await.expect("the tokens are available").unwrap());
    drop(timeout(millis(10), users.consume(&Alike(2), 3)).await.expect("the tokens are available").unwrap());
    assert!(timeout(millis(10), users.consume(&Alike(1), 1)).await.is_err());
}

/// Whichever thread is first: a key has one limiter on this node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_threads_find_the_same_limiter_of_a_key() {
    let (_store, users) = one_node(Quota::per_second(10));
    let host = tokio::runtime::Handle::current();
    for key in 0..500 {
        let gate = Barrier::new(4);
        let find = || {
            let _entered = host.enter();
            gate.wait();
            users.limiter(&key).unwrap()
        };
        let found: Vec<Limiter> = std::thread::scope(|scope| {
            let finders: Vec<_> = (0..4).map(|_| scope.spawn(find)).collect();
            finders.into_iter().map(|finder| finder.join().unwrap()).collect()
        });
        found[0].close();
        assert!(found.iter().all(Limiter::is_closed), "key {key}");
    }
}
