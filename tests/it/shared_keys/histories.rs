//! Random histories of several nodes and many keys, checked for each key against the rate law of one bucket.

use super::millis;
use crate::distributed::law::Ledger;
use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;

type Node = DistributedKeyedLimiter<u64>;

struct World {
    store: MemoryStore,
    quota: Quota,
    max_keys: u64,
    /// Nodes join and leave.
    nodes: Mutex<Vec<Node>>,
    ledgers: Vec<Ledger>,
    end: Instant,
}

impl World {
    fn node(&self) -> Node {
        DistributedKeyedLimiter::builder(self.store.clone()).quota(self.quota).max_keys(self.max_keys).build().unwrap()
    }

    fn some_node(&self, random: &mut fastrand::Rng) -> Node {
        let nodes = self.nodes.lock().unwrap();
        nodes[random.usize(..nodes.len())].clone()
    }

    /// A random key: one of a few common keys, or of all.
    fn some_key(&self, random: &mut fastrand::Rng) -> u64 {
        let keys = self.ledgers.len();
        let some = if random.bool() { keys.min(2) } else { keys };
        random.usize(..some) as u64
    }

    fn note(&self, key: u64, cost: u64) {
        self.ledgers[key as usize].note(cost);
    }
}

/// One random caller of some node: it waits, cancels, is refused, tries, pauses and resumes keys, rests.
async fn behave(world: Arc<World>, seed: u64, most: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while Instant::now() < world.end {
        let (node, key) = (world.some_node(&mut random), world.some_key(&mut random));
        let cost = random.u64(1..=most);
        let max_wait = Duration::from_micros(random.u64(..200_000));
        match random.u32(..13) {
            0..3 => {
                if let Ok(mut grant) = node.consume(&key, cost).within(max_wait).await {
                    world.note(key, cost);
                    if random.u32(..8) == 0 {
                        grant.settle(cost + random.u64(..3));
                    }
                }
            }
            3..6 => {
                if let Ok(Ok(grant)) = timeout(max_wait, node.consume(&key, cost)).await {
                    world.note(key, cost);
                    sleep(Duration::from_micros(random.u64(..20_000))).await;
                    drop(grant);
                }
            }
            6..8 => {
                let left = world.end.saturating_duration_since(Instant::now());
                if timeout(left, node.consume(&key, cost)).await.is_ok_and(|answer| answer.is_ok()) {
                    world.note(key, cost);
                }
            }
            8 | 9 => {
                if node.try_acquire(&key, cost).is_ok() {
                    world.note(key, cost);
                }
                sleep(Duration::from_micros(random.u64(..5_000))).await;
            }
            10 if random.bool() => node.pause_for(&key, max_wait),
            10 => node.resume(&key),
            _ => {
                let tired = if random.u32(..20) == 0 { 3_000_000 } else { 50_000 };
                sleep(Duration::from_micros(random.u64(..tired))).await;
            }
        }
    }
}

/// Runs one history. Returns the tokens granted, and by how much the worst key exceeded its law.
async fn live(seed: u64) -> (u64, f64, String) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rate = [5, 100, 1_000, 20_000][random.usize(..4)];
    let burst = [1, 2, 7, 100, 2_000][random.usize(..5)];
    let latency = [0, 0, 1, 40][random.usize(..4)];
    let outage = [Outage::Wait, Outage::Fail][random.usize(..2)];
    let store = store_at(millis(latency)).outage(outage);
    let world = Arc::new(World {
        store,
        quota: Quota::per_second(rate).burst(burst),
        max_keys: [1, 2, 5, 100][random.usize(..4)],
        nodes: Mutex::default(),
        ledgers: (0..random.usize(1..9)).map(|_| Ledger::default()).collect(),
        end: Instant::now() + millis(4_000),
    });
    let count = random.usize(1..5);
    *world.nodes.lock().unwrap() = (0..count).map(|_| world.node()).collect();
    let most = (burst / 2).clamp(1, 5);
    let callers: Vec<_> =
        (0..random.u64(1..40)).map(|caller| tokio::spawn(behave(world.clone(), seed << 32 | caller, most))).collect();
    while Instant::now() < world.end {
        sleep(Duration::from_micros(random.u64(..400_000))).await;
        match random.u32(..8) {
            0 => world.store.set_reachable(random.bool()),
            1 => world.store.lose_answers(random.u64(..3)),
            2 => world.store.step_clock(-random.i64(0..2_000_000)),
            3 => {
                let fresh = world.node();
                let old = std::mem::replace(&mut world.nodes.lock().unwrap()[random.usize(..count)], fresh);
                drop(old);
            }
            _ => world.store.set_reachable(true),
        }
    }
    try_join_all(callers).await.unwrap();
    let name = format!("{} nodes, {} keys of {}, {latency} ms", count, world.ledgers.len(), world.quota);
    // Tokens that are granted at once may be late by the latency from the store to the node. Timers are late by up to a
    // millisecond.
    let lateness = ((latency + 1) * rate) as f64 / 1_000.0;
    let excess = world.ledgers.iter().map(|ledger| ledger.excess(rate, burst) - lateness).fold(f64::MIN, f64::max);
    (world.ledgers.iter().map(Ledger::total).sum(), excess, name)
}

#[tokio::test(start_paused = true)]
async fn any_calls_on_any_nodes_keep_the_rate_law_for_each_key() {
    let (mut total, mut wrong) = (0, Vec::new());
    for seed in 0..150 {
        let (granted, excess, name) = live(seed).await;
        if excess > 1e-6 {
            wrong.push(format!("seed {seed}: {excess} above the law; {name}"));
        }
        total += granted;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(total > 100_000, "{total}");
}
