//! Classes that share one quota over many nodes, in paused time.

use super::law::Ledger;
use super::nodes::millis;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, Instant};
use tollgate::distributed::MemoryStore;
use tollgate::{Class, Limiter, Quota, Share};

/// A fleet whose nodes all have the same classes.
struct Fleet {
    store: MemoryStore,
    quota: Quota,
    weights: &'static [u64],
    ledger: Ledger,
    /// What each class was granted on all nodes.
    granted: Vec<Arc<AtomicU64>>,
}

struct Node {
    limiter: Limiter,
    classes: Vec<Class>,
    tasks: JoinSet<()>,
}

impl Fleet {
    fn new(quota: Quota, weights: &'static [u64]) -> Self {
        let store = MemoryStore::new();
        store.set_latency(Duration::from_micros(500));
        Self { store, quota, weights, ledger: Ledger::default(), granted: weights.iter().map(|_| Arc::default()).collect() }
    }

    /// A node where so many tasks consume `cost` tokens again and again, in each class.
    fn node(&self, tasks: &[usize], cost: u64) -> Node {
        let builder = Limiter::builder().quota(self.quota).distributed(self.store.clone());
        let limiter = builder.classes().build().unwrap();
        let class = |(number, weight): (usize, &u64)| limiter.class(format!("class {number}"), Share::weight(*weight)).unwrap();
        let classes = self.weights.iter().enumerate().map(class).collect();
        let mut node = Node { limiter, classes, tasks: JoinSet::new() };
        for (class, tasks) in tasks.iter().enumerate() {
            for _ in 0..*tasks {
                self.consume(&mut node, class, cost);
            }
        }
        node
    }

    fn consume(&self, node: &mut Node, class: usize, cost: u64) {
        let (granted, ledger) = (Arc::clone(&self.granted[class]), self.ledger.clone());
        let class = node.classes[class].clone();
        node.tasks.spawn(async move {
            while class.consume(cost).await.is_ok() {
                granted.fetch_add(cost, Relaxed);
                ledger.note(cost);
            }
        });
    }

    fn granted(&self) -> Vec<u64> {
        self.granted.iter().map(|granted| granted.load(Relaxed)).collect()
    }

    /// What the classes are granted in `time`.
    async fn granted_in(&self, time: Duration) -> Vec<u64> {
        let before = self.granted();
        sleep(time).await;
        self.granted().iter().zip(before).map(|(now, before)| now - before).collect()
    }
}

/// The ratio of the first class to the second.
fn ratio(granted: &[u64]) -> f64 {
    granted[0] as f64 / granted[1] as f64
}

#[tokio::test(start_paused = true)]
async fn scratch() {
    for (count, cost, rate) in [(2, 1, 1_000), (16, 1, 1_000)] {
        let shapes: [(&str, fn(usize, usize) -> [usize; 2]); 5] = [
            ("deep skew", |node, _| if node == 0 { [300, 40] } else { [4, 100] }),
            ("balanced", |_, count| [200 / count, 200 / count]),
            ("skewed", |node, _| if node == 0 { [300, 20] } else { [4, 40] }),
            ("one-sided", |node, count| if node < count / 2 { [300 / count, 0] } else { [0, 300 / count] }),
            ("one-node", |node, count| if node == 0 { [300, 0] } else { [0, 300 / count] }),
        ];
        for (name, tasks) in shapes {
            let began = std::time::Instant::now();
            let fleet = Fleet::new(Quota::per_second(rate).burst(rate / 10), &[4, 1]);
            let _nodes: Vec<Node> = (0..count).map(|node| fleet.node(&tasks(node, count), cost)).collect();
            sleep(millis(1_000)).await;
            let mut windows = Vec::new();
            for _ in 0..8 {
                windows.push(fleet.granted_in(millis(1_000)).await);
            }
            let sums = [0, 1].map(|class| windows.iter().map(|window| window[class]).sum::<u64>());
            let excess = fleet.ledger.excess(rate, rate / 10);
            println!(
                "{count} nodes, cost {cost}, rate {rate}, {name}: {:.3} {:?}; achieved {:.4}, excess {excess:.1}, asks {}, {:?}",
                ratio(&sums),
                windows.iter().map(|window| (ratio(window) * 1e3).round() / 1e3).collect::<Vec<_>>(),
                (sums[0] + sums[1]) as f64 / rate as f64 / 8.0,
                fleet.store.asks(),
                began.elapsed(),
            );
        }
    }
    _ = sleep_until(Instant::now());
}
