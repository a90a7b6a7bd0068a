//! Masters that are killed, and replicas that replace them: real servers.
//!
//! The quota is so slow that almost no token is minted during a test, so the grants can be counted. No claim waits for
//! the last third of the burst, because the other node may hold a part of it.

use super::proxy::{Proxy, mutes};
use super::server::{FOR_EVER, Server, in_the_end, open_store, wait_until};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::{Limiter, Quota};
use tollgate_redis::RedisStore;

const BURST: u64 = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);

struct World {
    stores: Vec<RedisStore>,
    limiters: Vec<Limiter>,
    granted: u64,
    began: Instant,
}

impl World {
    fn of(stores: Vec<RedisStore>) -> Self {
        let quota = Quota::new(BURST, HOUR).burst(BURST);
        let limiter = |store: &RedisStore| Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
        Self { limiters: stores.iter().map(limiter).collect(), stores, granted: 0, began: Instant::now() }
    }

    /// Two nodes that reach Redis at this address.
    async fn at(url: &str) -> Self {
        let stores = vec![open_store(url, "failover").await, open_store(url, "failover").await];
        Self::of(stores)
    }

    /// Takes this many tokens, some on each node.
    async fn take(&mut self, tokens: u64) {
        for number in 0..tokens / 10 {
            let limiter = &self.limiters[number as usize % self.limiters.len()];
            drop(timeout(FOR_EVER, limiter.consume(10)).await.expect("the claim hangs").unwrap());
            self.granted += 10;
        }
    }

    /// Takes all available tokens for a while.
    async fn drain(&mut self) {
        for limiter in &self.limiters {
            while let Ok(Ok(grant)) = timeout(Duration::from_millis(1_000), limiter.consume(1)).await {
                self.granted += grant.cost();
            }
        }
    }

    /// The tokens leased by the nodes, used or not.
    fn leased(&self) -> u64 {
        let snapshots = self.stores.iter().map(RedisStore::snapshot);
        snapshots.map(|snapshot| snapshot.granted - snapshot.returned).sum()
    }

    /// Waits until the nodes have returned their leases, and the replica has seen that.
    async fn rests(&self, master: &Server, replica: &Server) {
        let key = self.stores[0].key();
        let rest = async {
            loop {
                let known = master.knows(key);
                // The bucket and its quota, and no node.
                if known.len() == 2 && known == replica.knows(key) && self.leased() == self.granted {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(FOR_EVER, rest).await.expect("idle nodes give back what they have, and replicas follow");
    }

    /// The tokens that one server that loses nothing may have granted by now.
    fn may(&self) -> u64 {
        BURST + (self.began.elapsed().as_nanos() * u128::from(BURST) / HOUR.as_nanos()) as u64
    }
}

/// A master and its replica.
fn pair() -> Option<(Server, Server)> {
    let (master, replica) = (Server::start()?, Server::start()?);
    replica.follow(&master);
    Some((master, replica))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_all_writes_continues_to_the_token() {
    for is_killed in [true, false] {
        let Some((mut master, replica)) = pair() else { return };
        let (proxy, url) = Proxy::before(master.port()).await;
        let mut world = World::at(&url).await;
        world.take(600).await;
        world.rests(&master, &replica).await;
        if is_killed {
            master.kill();
        }
        replica.lead();
        proxy.port.store(replica.port(), Ordering::Release);
        if !is_killed {
            // The old master is still there, and the nodes are connected to it; but it accepts no writes any more.
            master.follow(&replica);
        }
        world.take(200).await;
        world.drain().await;
        let (granted, may) = (world.granted, world.may());
        assert!(granted <= may, "{granted} of {may}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_the_last_writes_grants_those_again_and_no_more() {
    let Some((mut master, replica)) = pair() else { return };
    let (proxy, url) = Proxy::before(master.port()).await;
    let mut world = World::at(&url).await;
    world.take(200).await;
    world.rests(&master, &replica).await;
    // From here on the replica gets no writes.
    replica.lead();
    let known = world.leased();
    world.take(600).await;
    master.kill();
    proxy.port.store(replica.port(), Ordering::Release);
    let lost = world.leased() - known;
    world.take(500).await;
    world.drain().await;
    let (granted, may) = (world.granted, world.may());
    // The grants that the replica did not see. An answer may have been in transit when the master was killed, and its
    // node holds those tokens.
    let answer = BURST / 6;
    assert!(lost <= BURST && granted <= may + lost + 2 * answer, "{granted} of {may} and {lost} lost writes");
    assert!(granted >= may + 200, "{granted} of {may}: no write was lost, so the test shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_tell_the_address_of_the_master() {
    let Some((mut master, replica)) = pair() else { return };
    let Some(sentinel) = Server::start_sentinel("tollgate-test", &master) else { return };
    wait_until("the sentinel does not find the replica", || sentinel.say(&["INFO", "sentinel"]).contains("slaves=1,"));
    // The first address has no listener.
    let urls = ["redis://127.0.0.1:1/".to_owned(), sentinel.url()];
    let connect = || RedisStore::connect_sentinels(urls.clone(), "redis://tollgate-test/", "failover");
    let store = in_the_end(connect).await;
    let mut world = World::of(vec![store.beside("failover").unwrap(), store]);
    world.take(600).await;
    world.rests(&master, &replica).await;
    sentinel.fail_over_soon("tollgate-test");
    master.kill();
    world.take(200).await;
    world.drain().await;
    let (granted, may) = (world.granted, world.may());
    assert!(granted <= may, "{granted} of {may}");
    assert!(replica.say(&["INFO", "replication"]).contains("role:master"));
}

/// The first two machines are gone: they accept connections, and do not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_do_not_answer_delay_no_connection() {
    let Some(master) = Server::start() else { return };
    let Some(sentinel) = Server::start_sentinel("tollgate-test", &master) else { return };
    let (mute, url) = mutes::<2>();
    let urls = [url[0].clone(), url[1].clone(), sentinel.url()];
    let connect = || RedisStore::connect_sentinels(urls.clone(), "redis://tollgate-test/", "failover");
    let store = in_the_end(connect).await;
    let limiter = Limiter::builder().quota(Quota::per_hour(10)).distributed(store).build().unwrap();
    drop(timeout(FOR_EVER, limiter.consume(1)).await.expect("the claim hangs").unwrap());
    drop(mute);
}

#[tokio::test]
async fn a_sentinel_connection_needs_the_name_of_the_master() {
    for (urls, master) in [(vec![], "redis://master/"), (vec!["redis://127.0.0.1:1/"], "unix:///run/redis.sock")] {
        let refused = RedisStore::connect_sentinels(urls, master, "name").await;
        assert!(matches!(refused, Err(tollgate::distributed::StoreError::Misnamed(_))), "{refused:?}");
    }
}

/// In paused time a timeout passes without a real wait, so a missing answer says nothing.
#[tokio::test(start_paused = true)]
async fn a_paused_clock_is_reported_as_such() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", mute.local_addr().unwrap());
    let error = RedisStore::connect(url, "paused").await.unwrap_err();
    assert!(error.to_string().contains("MemoryStore"), "{error}");
}
