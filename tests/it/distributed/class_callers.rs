//! The shares of classes with few callers, and of claims of different sizes, in paused time.

use super::class_fleet::{Fleet, Node};
use super::nodes::millis;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn explore_trickle() {
    for (count, every) in [(8, 50), (8, 200), (4, 10), (8, 10)] {
        let fleet = Fleet::of_two();
        let _pages = fleet.node(&[("pages", 60)]);
        let mut nodes: Vec<Node> = (0..count).map(|_| fleet.node(&[])).collect();
        for node in &mut nodes {
            fleet.consume(node, "backup", 4, 20);
            if every > 0 {
                fleet.consume_every(node, "pages", 1, 1, millis(every));
            }
        }
        sleep(millis(5_000)).await;
        let asks = fleet.store.asks();
        let [pages, backup] = fleet.granted_in(millis(40_000), ["pages", "backup"]).await;
        println!("{count} nodes, every {every}: backup {backup}, all {}, asks {}", pages + backup, fleet.store.asks() - asks);
        fleet.assert_lawful(500, 50);
    }
}

#[tokio::test(start_paused = true)]
async fn explore_few() {
    for nodes in [2, 16] {
        for (name, first, second) in [
            ("1+1", [1, 1], [1, 1]),
            ("2+2", [2, 2], [2, 2]),
            ("8+8", [8, 8], [8, 8]),
            ("4|4", [4, 0], [0, 4]),
            ("8|8", [8, 0], [0, 8]),
            ("16|16", [16, 0], [0, 16]),
            ("60|4", [60, 0], [0, 4]),
            ("4|60", [4, 0], [0, 60]),
            ("60+4|4", [60, 4], [0, 4]),
            ("4+60|60", [4, 60], [0, 60]),
            ("4+4|60", [4, 4], [0, 60]),
            ("2+8", [2, 8], [2, 8]),
            ("8+2", [8, 2], [8, 2]),
        ] {
            let fleet = Fleet::of_two();
            let _nodes: Vec<Node> = (0..nodes)
                .map(|node| {
                    let [pages, backup] = if node % 2 == 0 { first } else { second };
                    fleet.node(&[("pages", pages), ("backup", backup)])
                })
                .collect();
            sleep(millis(2_000)).await;
            let asks = fleet.store.asks();
            let mut line = String::new();
            let (mut p, mut b) = (0.0, 0.0);
            for _ in 0..1 {
                let [pages, backup] = fleet.granted_in(millis(10_000), ["pages", "backup"]).await;
                (p, b) = (p + pages, b + backup);
                line += &format!(" {:.3}", pages / backup);
            }
            println!("{nodes} nodes, {name:8}: {line}; {:.3}; rate {:.4}; asks {}", p / b, (p + b) / 5_000.0, fleet.store.asks() - asks);
            fleet.assert_lawful(500, 50);
        }
    }
}
