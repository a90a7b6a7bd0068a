//! Redis Cluster: three masters on loopback, and a replica.

use super::masters::{Cluster, masters, open_cluster_store};
use super::outages::World;
use super::server::Server;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_moves_to_another_master_is_followed_with_its_state() {
    let Some(masters) = masters() else { return };
    let store = open_cluster_store(&masters, "tenant:moves").await;
    let mut world = World::of(vec![store.clone()], 1_000, 50);
    world.goes_on(100).await;
    let say = |server: &Server, args: &[&str]| server.say(&[&["CLUSTER"], args].concat());
    let slot: usize = redis::cmd("CLUSTER").arg("KEYSLOT").arg(store.key()).query(&mut masters[0].client()).unwrap();
    let (from, to) = (slot / 5_462, (slot / 5_462 + 1) % 3);
    let (old, new, slot) = (say(&masters[from], &["MYID"]), say(&masters[to], &["MYID"]), slot.to_string());
    say(&masters[to], &["SETSLOT", &slot, "IMPORTING", &old]);
    say(&masters[from], &["SETSLOT", &slot, "MIGRATING", &new]);
    world.goes_on(100).await;
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(masters[to].port()).arg(store.key()).arg(0).arg(5_000);
    migrate.exec(&mut masters[from].client()).unwrap();
    // The old master redirects the requests, and the new one does not have the script yet.
    world.goes_on(300).await;
    for master in [to, from, 3 - from - to] {
        say(&masters[master], &["SETSLOT", &slot, "NODE", &new]);
    }
    world.goes_on(300).await;
    let (granted, may) = world.stop().await;
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
    let named = &cluster.masters[..1];
    let stores = [open_cluster_store(named, &name).await, open_cluster_store(named, &name).await];
    let stores = stores.map(|store| store.answer_timeout(Duration::from_secs(1)));
    let mut world = World::of(stores.into(), 1_000, 100);
    world.goes_on(500).await;
    assert!(cluster.replica.knows(world.stores[0].key()).len() > 2, "the replica has the data of the nodes");
    cluster.kill_first();
    world.goes_on(500).await;
    assert!(cluster.replica.say(&["INFO", "replication"]).contains("role:master"));
    let (granted, may) = world.stop().await;
    // The replica may lack the last writes: at most a burst, and a turn and a quarter of each node.
    assert!(granted <= may + 100 + 125, "{granted} of {may}");
}
