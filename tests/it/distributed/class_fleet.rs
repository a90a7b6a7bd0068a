//! Fleets of nodes with classes that share one quota, in paused time.

use super::law::Ledger;
use crate::fixture::*;

/// Two classes: the first has four times the weight of the second.
pub const POLICY: &[(&str, u64)] = &[("pages", 4), ("backup", 1)];

/// Nodes that all have the same classes. `a/b` is the class `b` in the class `a`, which comes before it.
pub struct Fleet {
    pub store: MemoryStore,
    pub quota: Quota,
    pub classes: &'static [(&'static str, u64)],
    pub ledger: Ledger,
    /// What each class was granted on all nodes.
    pub granted: Arc<Mutex<HashMap<&'static str, u64>>>,
}

pub struct Node {
    pub classes: HashMap<&'static str, Class>,
    pub limiter: Limiter,
    pub tasks: JoinSet<()>,
}

impl Fleet {
    pub fn new(quota: Quota, classes: &'static [(&'static str, u64)]) -> Self {
        let store = store_at(Duration::from_micros(500));
        Self { store, quota, classes, ledger: Ledger::default(), granted: Arc::default() }
    }

    /// A fleet of 500 tokens a second with [`POLICY`].
    pub fn of_two() -> Self {
        Self::new(Quota::per_second(500).burst(50), POLICY)
    }

    /// A node on which so many tasks consume one token again and again, in each of these classes.
    pub fn node(&self, tasks: &[(&'static str, usize)]) -> Node {
        let limiter = Limiter::builder().quota(self.quota).distributed(self.store.clone()).classes().build().unwrap();
        let mut classes: HashMap<&str, Class> = HashMap::new();
        for (path, weight) in self.classes {
            let share = Share::weight(*weight);
            let class = match path.rsplit_once('/') {
                Some((parent, name)) => classes[parent].class(name, share),
                None => limiter.class(*path, share),
            };
            classes.insert(path, class.unwrap());
        }
        let mut node = Node { limiter, classes, tasks: JoinSet::new() };
        for (class, tasks) in tasks {
            self.consume(&mut node, class, *tasks, 1);
        }
        node
    }

    /// A task claims 20 tokens at a time, each time in a class that `make` makes and that is removed after it. They are counted
    /// as those of `backup`.
    pub fn claim_in_new_classes(&self, make: impl Fn(u64) -> Class + Send + 'static) {
        let (granted, ledger) = (Arc::clone(&self.granted), self.ledger.clone());
        tokio::spawn(async move {
            for number in 0.. {
                let class = make(number);
                class.wait(20).await.unwrap();
                *granted.lock().unwrap().entry("backup").or_default() += 20;
                ledger.note(20);
                class.remove();
            }
        });
    }

    /// Has so many tasks consume `cost` tokens again and again.
    pub fn consume(&self, node: &mut Node, path: &'static str, tasks: usize, cost: u64) {
        self.consume_every(node, path, tasks, cost, Duration::ZERO);
    }

    /// Has so many tasks consume `cost` tokens again and again, and sleep for `pause` after each grant.
    pub fn consume_every(&self, node: &mut Node, path: &'static str, tasks: usize, cost: u64, pause: Duration) {
        for _ in 0..tasks {
            let (granted, ledger) = (Arc::clone(&self.granted), self.ledger.clone());
            let class = node.classes[path].clone();
            node.tasks.spawn(async move {
                while class.consume(cost).await.is_ok() {
                    *granted.lock().unwrap().entry(path).or_default() += cost;
                    ledger.note(cost);
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                }
            });
        }
    }

    /// What each of these classes is granted in `time`.
    pub async fn granted_in<const N: usize>(&self, time: Duration, classes: [&str; N]) -> [f64; N] {
        let read = || classes.map(|class| self.granted.lock().unwrap().get(class).copied().unwrap_or(0) as f64);
        let before = read();
        sleep(time).await;
        let after = read();
        std::array::from_fn(|class| after[class] - before[class])
    }

    /// Checks that both classes of [`POLICY`] get their shares in `time` within 2 %, and no token is lost.
    pub async fn check_policy(&self, time: Duration, what: &str) {
        let [pages, backup] = self.granted_in(time, ["pages", "backup"]).await;
        let (ratio, most) = (pages / backup, 500.0 * time.as_secs_f64());
        println!("{what}: {pages} to {backup} in {time:?}: {ratio:.3}; {:.4} of the rate", (pages + backup) / most);
        assert!((ratio / 4.0 - 1.0).abs() <= 0.02, "{what}: {pages} to {backup}");
        assert!(pages + backup >= 0.99 * most, "{what}: {pages} and {backup} of {most}");
    }

    pub fn assert_lawful(&self, per_second: u64, burst: u64) {
        // Answers take half a millisecond.
        let excess = self.ledger.excess(per_second, burst);
        assert!(excess <= per_second as f64 / 2e3, "{excess}");
    }
}
