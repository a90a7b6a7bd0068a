//! Stores that are made while Redis is down.

use super::masters::masters;
use super::server::{FOR_EVER, Server};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tollgate::distributed::{Outage, StoreError};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Limiter, Quota};
use tollgate_redis::RedisStore;

const QUOTA: Quota = Quota::per_second(1_000).burst(50);

fn limiter(store: &RedisStore, outage: Outage) -> Limiter {
    Limiter::builder().quota(QUOTA).distributed(store.clone().outage(outage)).build().unwrap()
}

/// Waits until the claim of a limiter that fails during outages is granted.
async fn comes_back(limiter: &Limiter) {
    let granted = async {
        while limiter.wait(1).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(FOR_EVER, granted).await.expect("the store does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_starts_while_redis_is_down_and_obeys_the_outage_policy_until_it_is_up() {
    let Some(mut server) = Server::start() else { return };
    server.kill();
    let store = RedisStore::connect_lazy(server.url(), "lazy").unwrap();
    let failing = limiter(&store, Outage::Fail);
    let sharing = limiter(&store, Outage::Share(Quota::per_second(1_000).burst(5)));
    let waiting = limiter(&store, Outage::Wait);
    assert_eq!(failing.wait(1).await, Err(ConsumeError::Unreachable));
    // By its own quota, which begins empty.
    timeout(FOR_EVER, sharing.wait(20)).await.expect("nothing is shared").unwrap();
    let waiter = tokio::spawn(async move { waiting.wait(1).await });
    let keys = DistributedKeyedLimiter::builder(store.clone().outage(Outage::Fail)).quota(QUOTA).build().unwrap();
    assert_eq!(keys.consume(&7, 1).await.map(drop), Err(ConsumeError::Unreachable));
    assert_eq!(store.snapshot().round_trips, 0);
    assert!(store.snapshot().is_out);
    server.restart();
    comes_back(&failing).await;
    timeout(FOR_EVER, waiter).await.expect("the waiter is not served").unwrap().unwrap();
    sharing.wait(20).await.unwrap();
    assert!(store.snapshot().round_trips > 0);
    // The nodes of three limiters.
    assert!(!server.knows(store.key()).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lazy_stores_of_clusters_and_sentinels_find_their_servers() {
    let Some(masters) = masters() else { return };
    let cluster = RedisStore::connect_cluster_lazy(masters.iter().map(Server::url), "lazy").unwrap();
    timeout(FOR_EVER, limiter(&cluster, Outage::Wait).wait(1)).await.expect("no master is found").unwrap();
    let Some(server) = Server::start() else { return };
    let Some(sentinel) = Server::start_sentinel("main", &server) else { return };
    let master = RedisStore::connect_sentinels_lazy([sentinel.url()], "redis://main/", "lazy").unwrap();
    timeout(FOR_EVER, limiter(&master, Outage::Wait).wait(1)).await.expect("no master is found").unwrap();
    assert!(!server.knows(master.key()).is_empty());
}

#[tokio::test]
async fn a_lazy_store_checks_its_address_and_its_name() {
    for (url, name) in [("no address", "name"), ("redis://127.0.0.1:1/", "")] {
        let made = RedisStore::connect_lazy(url, name);
        assert!(matches!(made, Err(StoreError::Misnamed(_))), "{made:?}");
    }
}

/// `&String` is what a program has that reads its settings from a file.
#[tokio::test]
async fn addresses_are_taken_from_any_kind_of_text() {
    let url = String::from("redis://127.0.0.1:1/");
    assert!(RedisStore::connect_lazy(&url, "text").is_ok());
    assert!(RedisStore::connect(&url, "").await.is_err());
    assert!(RedisStore::connect_cluster_lazy([&url], "text").is_ok());
    assert!(RedisStore::connect_sentinels_lazy([url.clone()], &url, "text").is_ok());
}
