//! Two classes with weights of 4 to 1 over many nodes, in paused time: the mixes of the model `leases_classes.py`.

use super::class_fleet::{Fleet, Node, POLICY};
use super::nodes::millis;
use crate::fixture::*;

/// The nodes, the callers on each and the cost of a claim, of both classes, and what the first class has of the rate.
struct Mix {
    pages: (usize, usize, u64),
    backup: (usize, usize, u64),
    rate: u64,
    trip: Duration,
    share: f64,
}

const MIX: Mix = Mix { pages: (1, 60, 1), backup: (1, 60, 1), rate: 500, trip: Duration::from_millis(2), share: 0.8 };
const FAR: Duration = Duration::from_millis(50);

#[rustfmt::skip]
const MIXES: &[Mix] = &[
    MIX,
    Mix { backup: (8, 20, 1), ..MIX },
    Mix { pages: (8, 60, 1), ..MIX },
    Mix { backup: (8, 20, 20), ..MIX },
    Mix { pages: (4, 1, 1), backup: (4, 1, 1), ..MIX },
    Mix { pages: (4, 4, 1), backup: (4, 40, 1), ..MIX },
    // One caller has one token a round trip and 5 ms.
    Mix { pages: (1, 1, 1), backup: (1, 50, 1), share: 0.25, ..MIX },
    Mix { backup: (8, 20, 1), trip: FAR, share: 0.538, ..MIX },
    Mix { pages: (3, 60, 1), backup: (3, 60, 1), rate: 5, ..MIX },
    Mix { pages: (3, 60, 1), backup: (3, 60, 1), rate: 50_000, share: 0.5, ..MIX },
];

impl Mix {
    async fn run(&self) -> (f64, f64) {
        let burst = (self.rate / 10).max(self.rate.min(100));
        let fleet = Fleet::new(Quota::per_second(self.rate).burst(burst), POLICY);
        fleet.store.set_latency(self.trip / 2);
        let mut nodes: Vec<Node> = Vec::new();
        for (class, (count, callers, cost)) in [("pages", self.pages), ("backup", self.backup)] {
            for _ in 0..count {
                let mut node = fleet.node(&[]);
                fleet.consume(&mut node, class, callers, cost);
                nodes.push(node);
                sleep(millis(1)).await;
            }
        }
        let time = millis(match self.rate {
            5 => 100_000,
            500 => 5_000,
            _ => 600,
        });
        sleep(time).await;
        let [pages, backup] = fleet.granted_in(time, ["pages", "backup"]).await;
        let excess = fleet.ledger.excess(self.rate, burst);
        assert!(excess <= self.rate as f64 * self.trip.as_secs_f64(), "{excess}");
        (pages / (pages + backup), (pages + backup) / self.rate as f64 / time.as_secs_f64())
    }
}

#[tokio::test(start_paused = true)]
async fn classes_share_as_the_model_says() {
    let mut wrong = Vec::new();
    for (number, mix) in MIXES.iter().enumerate() {
        let (share, rate) = mix.run().await;
        println!("mix {number}: {share:.3}, {} in the model; {rate:.3} of the rate", mix.share);
        if share < 0.95 * mix.share || mix.share == 0.8 && share > 0.84 || rate < 0.99 {
            wrong.push((number, share, rate));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The store forgot a class while its nodes slept, and left tokens for nodes that came for them long after: most tokens were
/// lost, and the rest went to one class.
#[tokio::test(start_paused = true)]
async fn classes_share_a_scarce_quota_while_their_nodes_sleep() {
    for (secs, count, callers) in [(1, 1, 3), (3, 3, 20), (20, 3, 20)] {
        let fleet = Fleet::new(Quota::new(1, millis(1_000 * secs)).burst(1), POLICY);
        let mut nodes: Vec<Node> = Vec::new();
        for class in ["pages", "backup"].repeat(count) {
            let mut node = fleet.node(&[]);
            fleet.consume(&mut node, class, callers, 1);
            nodes.push(node);
        }
        sleep(millis(20_000 * secs)).await;
        let asks = fleet.store.asks();
        let [pages, backup] = fleet.granted_in(millis(100_000 * secs), ["pages", "backup"]).await;
        let asks = (fleet.store.asks() - asks) as f64 / (pages + backup);
        println!("one token in {secs} s, {count} nodes of each class: {pages} to {backup}, {asks} requests a token");
        assert!(
            (19.0..=21.0).contains(&backup) && pages + backup >= 99.0 && asks <= 6.0,
            "{pages} to {backup}, {asks}"
        );
    }
}

/// A class that comes now and then beside a busy one, on another node or on the same one.
#[tokio::test(start_paused = true)]
async fn a_light_class_waits_little_and_the_busy_one_has_the_rest_of_the_rate() {
    for is_beside in [false, true] {
        let fleet = Fleet::of_two();
        let busy = fleet.node(&[("backup", 60)]);
        let other = fleet.node(&[]);
        let light = if is_beside { &busy } else { &other }.classes["pages"].clone();
        sleep(millis(1_000)).await;
        let (before, began) = (fleet.ledger.total(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..100 {
            let asked = Instant::now();
            light.wait(1).await.unwrap();
            waits.push(asked.elapsed());
            fleet.ledger.note(1);
            sleep(millis(37)).await;
        }
        waits.remove(0);
        let (mean, most) = (waits.iter().sum::<Duration>() / 99, *waits.iter().max().unwrap());
        println!("on the same node {is_beside}: {mean:?} on average, {most:?} at most");
        assert!(mean <= millis(9) && most <= millis(12), "{mean:?}, {most:?}");
        let rate = (fleet.ledger.total() - before) as f64 / began.elapsed().as_secs_f64();
        assert!(rate >= 495.0, "{rate}");
        fleet.assert_lawful(500, 50);
    }
}
