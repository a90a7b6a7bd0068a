//! Redis Cluster: three masters on loopback, and a replica.

use super::masters::{Cluster, masters, open_cluster_store};
use super::server::{FOR_EVER, Server};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::{Limiter, Quota};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_of_a_cluster_are_on_all_masters_and_keep_the_rate_law() {
    let Some(masters) = masters() else { return };
    // A bucket that does not start full is remembered even when it is full.
    let quota = Quota::per_second(1_000).burst(50).initial(49);
    let began = Instant::now();
    let mut tenants = Vec::new();
    for tenant in 0..12 {
        let name = format!("tenant:{tenant}");
        let one = open_cluster_store(&masters, &name).await;
        let two = one.beside(&name).unwrap();
        let limiters = [one, two].map(|store| Limiter::builder().quota(quota).distributed(store).build().unwrap());
        tenants.push(limiters);
    }
    for limiters in &tenants {
        let tasks = limiters.clone().map(|limiter| {
            tokio::spawn(async move {
                for _ in 0..60 {
                    drop(limiter.consume(1).await.unwrap());
                }
            })
        });
        for task in tasks {
            timeout(FOR_EVER, task).await.expect("the task hangs").unwrap();
        }
        let granted: u64 = limiters.iter().map(|limiter| limiter.snapshot().granted).sum();
        assert_eq!(granted, 120);
    }
    // 120 tokens from a burst of 50 take at least 70 ms; each store has its own quota.
    assert!(began.elapsed() >= Duration::from_millis(70));
    let keys: Vec<u64> =
        masters.iter().map(|master| redis::cmd("DBSIZE").query(&mut master.client()).unwrap()).collect();
    assert_eq!(keys.iter().sum::<u64>(), 12, "one key of Redis per store");
    assert!(keys.iter().all(|count| *count > 0), "each master must have some: {keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_moves_to_another_master_is_followed_with_its_state() {
    let Some(masters) = masters() else { return };
    let store = open_cluster_store(&masters, "tenant:moves").await;
    let quota = Quota::per_second(1_000).burst(50).initial(0);
    let began = Instant::now();
    let limiter = Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} })
        })
        .collect();
    // This many more must be granted, wherever the store is now.
    let goes_on = async |count: u64| {
        let before = limiter.snapshot().granted;
        let more = async {
            while limiter.snapshot().granted < before + count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(FOR_EVER, more).await.expect("no grants after the move");
    };
    goes_on(100).await;
    let say = |server: &Server, args: &[&str]| server.say(&[&["CLUSTER"], args].concat());
    let slot: usize = redis::cmd("CLUSTER").arg("KEYSLOT").arg(store.key()).query(&mut masters[0].client()).unwrap();
    let (from, to) = (slot / 5_462, (slot / 5_462 + 1) % 3);
    let (old, new, slot) = (say(&masters[from], &["MYID"]), say(&masters[to], &["MYID"]), slot.to_string());
    say(&masters[to], &["SETSLOT", &slot, "IMPORTING", &old]);
    say(&masters[from], &["SETSLOT", &slot, "MIGRATING", &new]);
    goes_on(100).await;
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(masters[to].port()).arg(store.key()).arg(0).arg(5_000);
    migrate.exec(&mut masters[from].client()).unwrap();
    // The old master redirects the requests, and the new one does not have the script yet.
    goes_on(300).await;
    for master in [to, from, 3 - from - to] {
        say(&masters[master], &["SETSLOT", &slot, "NODE", &new]);
    }
    goes_on(300).await;
    limiter.close();
    for task in tasks {
        timeout(FOR_EVER, task).await.expect("the task hangs").unwrap();
    }
    let (granted, may) = (limiter.snapshot().granted, began.elapsed().as_nanos() as u64 / 1_000_000);
    assert!(granted <= may, "{granted} of {may}");
    let keys: u64 = redis::cmd("DBSIZE").query(&mut masters[to].client()).unwrap();
    assert_eq!(keys, 1, "the store is on the new master");
}

/// The stores were given only one address, that of the master that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_followed_though_it_was_not_configured() {
    let Some(mut cluster) = Cluster::start() else { return };
    // The replica belongs to the first master.
    let name = (0..).map(|number| format!("tenant:{number}")).find(|name| cluster.is_on_first(name)).unwrap();
    let quota = Quota::per_second(1_000).burst(100).initial(0);
    let began = Instant::now();
    let named = &cluster.masters[..1];
    let stores = [open_cluster_store(named, &name).await, open_cluster_store(named, &name).await];
    let stores = stores.map(|store| store.answer_timeout(Duration::from_secs(1)));
    let limiters = stores.clone().map(|store| Limiter::builder().quota(quota).distributed(store).build().unwrap());
    let mut tasks = Vec::new();
    for limiter in &limiters {
        tasks.extend((0..20).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} })
        }));
    }
    let granted = || limiters.iter().map(|limiter| limiter.snapshot().granted).sum::<u64>();
    let goes_on = async |count: u64| {
        let enough = granted() + count;
        let more = async {
            while granted() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(FOR_EVER, more).await.expect("no grants after the failover");
    };
    goes_on(500).await;
    assert!(cluster.replica.knows(stores[0].key()).len() > 2, "the replica has the data of the nodes");
    cluster.kill_first();
    goes_on(500).await;
    assert!(cluster.replica.say(&["INFO", "replication"]).contains("role:master"));
    limiters.iter().for_each(Limiter::close);
    for task in tasks {
        timeout(FOR_EVER, task).await.expect("the task hangs").unwrap();
    }
    let may = began.elapsed().as_nanos() as u64 / 1_000_000;
    // The replica may lack the last writes: at most a burst, and a turn and a quarter of each node.
    assert!(granted() <= may + 100 + 125, "{} of {may}", granted());
}
