//! A Redis Cluster for one test: three masters on loopback, and an optional replica of the first.

use super::server::{FOR_EVER, Server, in_the_end, wait_until};
use tollgate_redis::RedisStore;

pub struct Cluster {
    /// They share all slots: the first has those below 5,462.
    pub masters: Vec<Server>,
    /// The replica of the first master.
    pub replica: Server,
}

/// A node with a long timeout, so that a slow master on a busy machine does not count as down: see
/// [`Cluster::kill_first`].
fn node() -> Option<Server> {
    Server::start_node(&["--cluster-node-timeout", "60000"])
}

/// Connects the nodes, and waits until each knows all others and the cluster is up.
fn meet(nodes: &[Server]) {
    for server in &nodes[1..] {
        let (port, bus) = (server.port().to_string(), server.bus().unwrap().to_string());
        nodes[0].say(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    let all = format!("cluster_known_nodes:{}", nodes.len());
    let is_ready = |server: &Server| {
        let info = server.say(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok") && info.contains(&all)
    };
    wait_until("the cluster does not come up", || nodes.iter().all(is_ready));
}

/// Assigns all slots to the three nodes.
fn share_slots(nodes: &[Server]) {
    for (index, server) in nodes.iter().take(3).enumerate() {
        let (from, to) = (index * 5_462, ((index + 1) * 5_462 - 1).min(16_383));
        server.say(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        server.say(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
    }
}

/// Three masters that know each other and share all slots; `None` where Redis is not installed.
pub fn masters() -> Option<Vec<Server>> {
    let nodes = [node()?, node()?, node()?];
    share_slots(&nodes);
    meet(&nodes);
    Some(nodes.into())
}

/// A store in the cluster of these nodes. Its timeout is long, so that a slow machine is no outage.
pub async fn open_cluster_store(named: &[Server], name: &str) -> RedisStore {
    let connect = || RedisStore::connect_cluster(named.iter().map(Server::url), name);
    in_the_end(connect).await.answer_timeout(FOR_EVER)
}

impl Cluster {
    pub fn start() -> Option<Self> {
        let nodes = [node()?, node()?, node()?, node()?];
        share_slots(&nodes);
        meet(&nodes);
        let mut masters = Vec::from(nodes);
        let replica = masters.pop()?;
        replica.say(&["CLUSTER", "REPLICATE", &masters[0].say(&["CLUSTER", "MYID"])]);
        // All masters know the replica, so that they vote for it.
        let knows = |server: &Server| server.say(&["CLUSTER", "NODES"]).contains(" slave ");
        wait_until("the replica is not known", || masters.iter().all(knows));
        wait_until("the replica does not come up", || replica.is_in_step());
        Some(Self { masters, replica })
    }

    /// Whether the first master keeps the store with this name.
    pub fn is_on_first(&self, name: &str) -> bool {
        let mut command = redis::cmd("CLUSTER");
        command.arg("KEYSLOT").arg(format!("tollgate:{{{name}}}"));
        command.query::<u64>(&mut self.masters[0].client()).unwrap() < 5_462
    }

    /// Kills the first master, and makes the others detect that soon.
    pub fn kill_first(&mut self) {
        for node in self.masters.iter().chain([&self.replica]) {
            node.say(&["CONFIG", "SET", "cluster-node-timeout", "3000"]);
        }
        self.masters[0].kill();
    }
}
