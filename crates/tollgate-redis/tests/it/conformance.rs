//! The tests of `tollgate-store-tests`, with real servers: one Redis, a cluster, and a master behind sentinels.

use super::masters::{masters, open_cluster_store};
use super::server::{FOR_EVER, Server, in_the_end, open_store};
use std::sync::Arc;
use tollgate::distributed::{Store, StoreError};
use tollgate_redis::RedisStore;
use tollgate_store_tests::check;

fn opened(store: RedisStore) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(store))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms() {
    let Some(server) = Server::start() else { return };
    check(async |name: &str, _| opened(open_store(&server.url(), name).await), 0..8).await.unwrap();
}

/// The stores are spread over the masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_masters_conforms() {
    let Some(masters) = masters() else { return };
    check(async |name: &str, _| opened(open_cluster_store(&masters, name).await), 0..8).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_sentinels_conforms() {
    let Some(master) = Server::start() else { return };
    let Some(sentinel) = Server::start_sentinel("conformance", &master) else { return };
    let open = async |name: &str, _| {
        let connect = || RedisStore::connect_sentinels([sentinel.url()], "redis://conformance/", name);
        opened(in_the_end(connect).await.answer_timeout(FOR_EVER))
    };
    check(open, 0..8).await.unwrap();
}
